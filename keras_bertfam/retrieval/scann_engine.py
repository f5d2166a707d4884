"""An engine of ScaNN, with the methods of FAISS that an index needs."""

import functools
import importlib
import math
import os
import re
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
_ASSETS, _CONFIG = "scann_assets.pbtxt", "scann_config.pb"
_ASSET_LIST = re.compile(
    r'(assets \{\s+asset_type: [A-Z0-9_]+\s+asset_path: "[\w.]+"\s+\}\s+)*'
)
# What a config may have as text; other texts in it are names of files.
_DISTANCE = re.compile(r"\A[A-Za-z0-9]+Distance\Z")


@functools.cache
def import_scann(name: str = "scann.scann_ops.py.scann_ops_pybind") -> Any:
    """Import a module of ScaNN, an optional dependency.

    Args:
        name: str, of the module. The default is ScaNN's module for arrays.

    Raises:
        ImportError: with what to install.
    """
    # `import scann` loads an operation for TensorFlow if that is there, which fails
    # unless it is the very version that it was compiled for, and isn't needed here.
    loaded = sys.modules.get("tensorflow")
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            'kind="scann" needs ScaNN, which has wheels for Linux. Install it by `pip '
            "install 'keras-bertfam[scann]'`."
        ) from error
    finally:
        del sys.modules["tensorflow"]
        if loaded is not None:
            sys.modules["tensorflow"] = loaded


class ScannEngine:
    """Vectors that ScaNN searches in three steps: cells, then codes, then vectors.

    It learns at the first search after vectors were added.

    Args:
        dim: int.
        settings: dict of `nlist`, `nprobe` and `reorder`.
        vectors: float32 array `(count, dim)`, or `None` for none.
        searcher: ScaNN's searcher of these vectors, or `None` if it hasn't learnt yet.
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
        """Count the vectors."""
        return sum(map(len, self._parts))

    @property
    def vectors(self) -> np.ndarray:
        """Give the vectors, a float32 array `(ntotal, dim)`."""
        if len(self._parts) != 1:
            none = np.zeros((0, self.d), "float32")
            self._parts = [np.concatenate([none, *self._parts])]
        return self._parts[0]

    def add(self, vectors: np.ndarray) -> None:
        """Add vectors, `(count, dim)`."""
        self._parts.append(vectors.copy())
        self._searcher = None

    def search(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find scores and ids `(count, k)` of the nearest, -1 where fewer are found."""
        ids, scores = self.searcher().search_batched(
            vectors, k, max(self.settings["reorder"], k), self.settings["nprobe"]
        )
        missing = np.isnan(scores)
        ids = np.where(missing, -1, np.asarray(ids, "int64"))
        return np.where(missing, -np.inf, scores), ids

    def searcher(self) -> Any:
        """Make ScaNN's searcher of all vectors."""
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
        """Look up the vectors of ids, `(count, dim)`."""
        return self.vectors[ids]


def write_engine(engine: ScannEngine, path: str) -> None:
    """Write an engine with all that it has learnt, as a tar file of ScaNN's files."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        engine.searcher().serialize(folder, relative_path=True)
        with tarfile.open(path, "w") as archive:
            for name in sorted(os.listdir(folder)):
                archive.add(os.path.join(folder, name), name)


def read_engine(path: str, settings: Config) -> ScannEngine:
    """Read the engine of a file that `write_engine` wrote.

    Raises:
        ValueError: for another file.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive.getmembers():
                    if not member.isreg() or member.issparse():
                        raise ValueError(
                            f"It must have plain files. Received: {member.name!r}."
                        )
                archive.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise ValueError(f"It must be a tar file: {error}.") from error
        names = os.listdir(folder)
        lacks = {_VECTORS, _ASSETS, _CONFIG} - {*names}
        if lacks or not all(n.endswith(_ENDINGS) for n in names):
            raise ValueError(  # ScaNN would unpickle another
                f"It must have {_VECTORS}, {_ASSETS}, {_CONFIG} and files "
                f"{', '.join(_ENDINGS)}. Received: {sorted(names)}."
            )
        _check_references(folder, names)
        arrays = {n: _mapped(folder, n) for n in names if n.endswith(".npy")}
        _check_arrays(arrays, settings)
        searcher = import_scann().load_searcher(folder, assets_backcompat_shim=False)
        vectors = np.array(arrays[_VECTORS])
    return ScannEngine(vectors.shape[-1], settings, vectors, searcher)


def _check_references(folder, names):
    """Raise a `ValueError` for files that refer to files elsewhere."""
    with open(os.path.join(folder, _ASSETS), encoding="utf-8") as file:
        text = file.read()
    if not _ASSET_LIST.fullmatch(text):
        raise ValueError(f"{_ASSETS} must be as ScaNN writes it. Received: {text!r}.")
    elsewhere = {*re.findall(r'"(.*?)"', text)} - {*names}
    with open(os.path.join(folder, _CONFIG), "rb") as file:
        config = import_scann("scann.proto.scann_pb2").ScannConfig()
        try:
            config.ParseFromString(file.read())
        except Exception as error:  # protobuf's own, of a module it doesn't name
            raise ValueError(f"{_CONFIG} must be a config: {error}.") from error
    elsewhere |= {text for text in _strings(config) if not _DISTANCE.match(text)}
    if elsewhere:
        raise ValueError(
            f"It must refer to its own files. Received: {sorted(elsewhere)}."
        )


def _strings(message):
    """Collect all texts in a message of protobuf."""
    for _, value in message.ListFields():
        single = isinstance(value, str | bytes) or not hasattr(value, "__len__")
        for each in [value] if single else value:
            if hasattr(each, "ListFields"):
                yield from _strings(each)
            elif isinstance(each, str | bytes):
                yield str(each)


def _mapped(folder, name):
    """Map an array in a file, whose size is compared with what is there."""
    try:
        return np.load(os.path.join(folder, name), "r", allow_pickle=False)
    except Exception as error:  # NumPy's reader of headers is Python's
        raise ValueError(f"{name} must have an array: {error}.") from error


def _check_arrays(arrays, settings):
    """Raise a `ValueError` for arrays of wrong shapes, or with numbers out of range."""
    vectors = arrays[_VECTORS]
    with np.errstate(over="ignore"):
        if not np.isfinite(np.square(vectors, dtype="float32").sum()):
            raise ValueError(f"{_VECTORS} must have vectors with finite squares.")
    ranges = {
        "datapoint_to_token.npy": settings["nlist"] or round(math.sqrt(len(vectors))),
        "hashed_dataset.npy": _CODES,
    }
    for name, array in arrays.items():
        most = ranges.get(name)
        if len(array) != len(vectors) or array.ndim != 2 - (array.dtype == "int32"):
            raise ValueError(
                f"{name} must have {len(vectors)} rows, as {_VECTORS}. Received: the "
                f"shape {array.shape}."
            )
        if most and array.size and not 0 <= array.min() <= array.max() < most:
            raise ValueError(f"{name} must have numbers below {most}.")
