"""ScaNN behind the methods of FAISS that an index of passages needs."""

import functools
import math
import os
import sys
import tarfile
import tempfile
from typing import Any

import numpy as np

from keras_bertfam.types import Config

# As ScaNN's documentation advises.
_DIMENSIONS_PER_BLOCK, _THRESHOLD = 2, 0.2
_SAMPLE = 250_000
_CODES = 16  # for which it wants as many vectors
_VECTORS, _ENDINGS = "dataset.npy", (".npy", ".pb", ".pbtxt")


@functools.cache
def import_scann() -> Any:
    """ScaNN's module for arrays, which is an extra.

    Raises:
        ImportError: with what to install.
    """
    # `import scann` loads an operation for TensorFlow if that is there, which fails
    # unless it is the very version that it was compiled for, and isn't needed here.
    loaded = sys.modules.get("tensorflow")
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    try:
        from scann.scann_ops.py import scann_ops_pybind
    except ImportError as error:
        raise ImportError(
            'kind="scann" needs ScaNN, which has wheels for Linux. Install it by `pip '
            "install 'keras-bertfam[scann]'`."
        ) from error
    finally:
        del sys.modules["tensorflow"]
        if loaded is not None:
            sys.modules["tensorflow"] = loaded
    return scann_ops_pybind


class ScannEngine:
    """Vectors that ScaNN searches: coarse cells, then codes, then the vectors.

    What it learns, it learns at the first search after vectors were added.

    Args:
        dim: int.
        settings: dict of `nlist`, `nprobe` and `reorder`.
        vectors: float32 array `(count, dim)`, or `None` for none.
        searcher: ScaNN's, of these vectors, or `None` for one that is still to learn.
    """

    metric_type = 0  # FAISS's number of the inner product

    def __init__(
        self,
        dim: int,
        settings: Config,
        vectors: np.ndarray | None = None,
        searcher: Any = None,
    ) -> None:
        import_scann()
        self.d = dim
        self.settings = settings
        self._parts = [] if vectors is None else [vectors]
        self._searcher = searcher

    @property
    def ntotal(self) -> int:
        """int: how many vectors there are."""
        return sum(map(len, self._parts))

    @property
    def vectors(self) -> np.ndarray:
        """float32 array `(ntotal, dim)`."""
        if len(self._parts) != 1:
            none = np.zeros((0, self.d), "float32")
            self._parts = [np.concatenate([none, *self._parts])]
        return self._parts[0]

    def add(self, vectors: np.ndarray) -> None:
        """Adds vectors, `(count, dim)`."""
        self._parts.append(vectors.copy())
        self._searcher = None

    def search(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores and ids `(count, k)` of the nearest, -1 where fewer are found."""
        ids, scores = self.searcher().search_batched(
            vectors, k, max(self.settings["reorder"], k), self.settings["nprobe"]
        )
        missing = np.isnan(scores)
        ids = np.where(missing, -1, np.asarray(ids, "int64"))
        return np.where(missing, -np.inf, scores), ids

    def searcher(self) -> Any:
        """ScaNN's searcher of all vectors."""
        self._searcher = self._searcher or self._learnt()
        return self._searcher

    def _learnt(self):
        count, settings = self.ntotal, self.settings
        builder = import_scann().builder(self.vectors, 1, "dot_product")
        if count < _CODES:
            return builder.score_brute_force().build()
        cells = settings["nlist"] or round(math.sqrt(count))
        sample = min(count, _SAMPLE)
        builder.tree(min(cells, count), settings["nprobe"], training_sample_size=sample)
        builder.score_ah(
            _DIMENSIONS_PER_BLOCK, anisotropic_quantization_threshold=_THRESHOLD
        )
        return builder.reorder(settings["reorder"]).build()

    def reconstruct_batch(self, ids: np.ndarray) -> np.ndarray:
        """The vectors of ids, `(count, dim)`."""
        return self.vectors[ids]


def write_engine(engine: ScannEngine, path: str) -> None:
    """Writes an engine with all that it has learnt, as a tar file of ScaNN's files."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        engine.searcher().serialize(folder, relative_path=True)
        with tarfile.open(path, "w") as archive:
            for name in sorted(os.listdir(folder)):
                archive.add(os.path.join(folder, name), name)


def read_engine(path: str, settings: Config) -> ScannEngine:
    """The engine of a file that `write_engine` wrote.

    Raises:
        ValueError: for another file.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise ValueError(f"It must be a tar file: {error}.") from error
        names = os.listdir(folder)
        if _VECTORS not in names or not all(n.endswith(_ENDINGS) for n in names):
            raise ValueError(  # ScaNN would unpickle another
                f"It must have {_VECTORS} and files {', '.join(_ENDINGS)}. Received: "
                f"{sorted(names)}."
            )
        vectors = np.load(os.path.join(folder, _VECTORS), allow_pickle=False)
        searcher = import_scann().load_searcher(folder, assets_backcompat_shim=False)
    return ScannEngine(vectors.shape[-1], settings, vectors, searcher)
