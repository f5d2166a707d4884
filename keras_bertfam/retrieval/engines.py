"""Vectors in an engine that searches by inner product: FAISS, ScaNN or SciPy."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from keras_bertfam.retrieval import faiss_files, inverted_engine, scann_engine
from keras_bertfam.types import Config

# The number of vectors that FAISS wants for each cell that it learns.
_VECTORS_OF_A_CELL = 39
# With so many vectors, the values for rounding are learnt for good. With fewer they are
# learnt anew whenever vectors are added; so the vectors are kept unrounded until then.
_VECTORS_OF_RANGES = 2**16
_MOST_IN_16_BITS = 65504 / 2  # as a difference from a cell may be twice as much
# FAISS's names of roundings, by the bits of a number.
_ROUNDINGS = {16: "QT_fp16", 8: "QT_8bit", 4: "QT_4bit"}


def import_faiss() -> Any:
    """Import FAISS, an optional dependency.

    Raises:
        ImportError: with what to install.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "An index needs FAISS. Install it by `pip install "
            "'keras-bertfam[retrieval]'`."
        ) from error
    return faiss


def _reader(check):
    def read(path, settings):
        faiss = import_faiss()
        check(path)
        return faiss.read_index(path)

    return read


def _read_rounded(path, settings):
    faiss = import_faiss()
    faiss_files.check_rounded(path, bits=settings["bits"])
    return faiss.read_index(path)


def _read_cells(path, settings):
    faiss = import_faiss()
    faiss_files.check_cells(path, bits=settings["bits"])
    engine = faiss.read_index(path)
    lists = type(faiss.downcast_InvertedLists(engine.invlists)).__name__
    if lists != "ArrayInvertedLists":
        raise ValueError(f"Its lists must be in memory. Received: {lists}.")
    engine.set_direct_map_type(faiss.DirectMap.NoMap)  # the file's isn't trusted
    return engine


def _write_faiss(engine, path):
    import_faiss().write_index(engine, path)


@dataclasses.dataclass(frozen=True)
class EngineKind:
    """A kind of index.

    Attributes:
        class_name: of the engine's class.
        settings: dict of its settings, with their defaults.
        make: function of a width, a number of vectors and the settings; gives an
            engine.
        tune: function of an engine and the settings; sets what only a search reads.
        learns: whether it learns from the vectors at the first search.
        file: name of the file of vectors in a folder.
        read: function of a path and the settings; gives an engine.
        write: function of an engine and a path.
    """

    class_name: str
    make: Callable[[int, int, Config], Any]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tune: Callable[[Any, Config], None] = lambda engine, settings: None
    learns: bool = False
    file: str = "vectors.faiss"
    read: Callable[[str, Config], Any] = _reader(faiss_files.check_flat)
    write: Callable[[Any, str], None] = _write_faiss


def _exact(dim, count, settings):
    return import_faiss().IndexFlatIP(dim)


def _rounding(settings):
    return getattr(import_faiss().ScalarQuantizer, _ROUNDINGS[settings["bits"]])


def _rounded(dim, count, settings):
    faiss = import_faiss()
    metric = faiss.METRIC_INNER_PRODUCT
    return faiss.IndexScalarQuantizer(dim, _rounding(settings), metric)


def _ivf(dim, count, settings):
    faiss = import_faiss()
    nlist = settings["nlist"]
    if nlist is None:
        nlist = min(round(4 * math.sqrt(count)), count // _VECTORS_OF_A_CELL)
        nlist = max(nlist, 1)
    if nlist > count:
        raise ValueError(
            "`nlist` must be at most the number of vectors that its cells are learnt "
            f"from, {count}. Received: nlist={nlist}."
        )
    cells, metric = faiss.IndexFlatIP(dim), faiss.METRIC_INNER_PRODUCT
    if settings["bits"] == 32:
        return faiss.IndexIVFFlat(cells, dim, nlist, metric)
    return faiss.IndexIVFScalarQuantizer(
        cells, dim, nlist, _rounding(settings), metric, True
    )


def _tune_ivf(engine, settings):
    engine.nprobe = settings["nprobe"]


def _hnsw(dim, count, settings):
    faiss = import_faiss()
    return faiss.IndexHNSWFlat(dim, settings["m"], faiss.METRIC_INNER_PRODUCT)


def _tune_hnsw(engine, settings):
    engine.hnsw.efConstruction = settings["ef_construction"]
    engine.hnsw.efSearch = settings["ef_search"]


KINDS = {
    "exact": EngineKind("IndexFlatIP", _exact, {"bits": 32}),
    "ivf": EngineKind(
        "IndexIVFFlat",
        _ivf,
        {"nlist": None, "nprobe": 16, "bits": 32},
        _tune_ivf,
        learns=True,
        read=_read_cells,
    ),
    "hnsw": EngineKind(
        "IndexHNSWFlat",
        _hnsw,
        {"m": 32, "ef_construction": 80, "ef_search": 64},
        _tune_hnsw,
        read=_reader(faiss_files.check_graph),
    ),
    "scann": EngineKind(
        "ScannEngine",
        lambda dim, count, settings: scann_engine.ScannEngine(dim, settings),
        {"nlist": None, "nprobe": 16, "reorder": 100},
        file="vectors.scann",
        read=scann_engine.read_engine,
        write=scann_engine.write_engine,
    ),
    "inverted": EngineKind(
        "InvertedEngine",
        lambda dim, count, settings: inverted_engine.InvertedEngine(dim),
        file="vectors.npz",
        read=inverted_engine.read_engine,
        write=inverted_engine.write_engine,
    ),
}

# As the kinds of these names, with fewer bits.
_OF_FEWER_BITS = {
    "exact": dataclasses.replace(
        KINDS["exact"],
        class_name="IndexScalarQuantizer",
        make=_rounded,
        learns=True,
        read=_read_rounded,
    ),
    "ivf": dataclasses.replace(KINDS["ivf"], class_name="IndexIVFScalarQuantizer"),
}


def are_rounded(settings: Config) -> bool:
    """Tell whether vectors are stored in fewer than 32 bits a number."""
    return bool(settings.get("bits", 32) < 32)


def engine_kind(kind: str, settings: Config) -> EngineKind:
    """Give the kind of engine that a kind and its settings ask for."""
    return (_OF_FEWER_BITS if are_rounded(settings) else KINDS)[kind]


# How many tokens of passages are found for each token of a query, by default.
TOKEN_HITS = 64


def checked_settings(
    kind: str, settings: Mapping[str, Any], token_vectors: bool = False
) -> Config:
    """Check the settings of a kind, and add defaults for those left out.

    Args:
        kind: str.
        settings: dict.
        token_vectors: whether passages have a vector for each token.

    Raises:
        ValueError: for an unknown kind, or settings that it doesn't have or that aren't
            positive.
    """
    if kind not in KINDS:
        raise ValueError(f"`kind` must be one of {tuple(KINDS)}. Received: {kind!r}.")
    if token_vectors and kind == "inverted":
        raise ValueError(
            f"`kind` mustn't be 'inverted' with `token_vectors`. Received: {kind!r}."
        )
    known = dict(KINDS[kind].settings)
    if token_vectors and kind != "exact":
        known["token_hits"] = TOKEN_HITS
    if not {*settings} <= {*known}:
        raise ValueError(
            f"The settings of kind={kind!r} must be of {tuple(known)}. "
            f"Received: {sorted(settings)}."
        )
    for name, value in settings.items():
        missing = value is None and known[name] is None
        if not missing and (type(value) is not int or value < 1):
            raise ValueError(
                f"`{name}` must be a positive integer. Received: {value!r}."
            )
    if settings.get("bits", 32) not in (32, *_ROUNDINGS):
        raise ValueError(
            f"`bits` must be one of {(32, *_ROUNDINGS)}. Received: {settings['bits']}."
        )
    return {**known, **settings}


_QUERIES_AT_ONCE = 1024


class Vectors:
    """Vectors in an engine, by their ids, which begin at 0.

    Args:
        dim: int.
        kind: a name in `KINDS`.
        settings: dict, of that kind.
        engine: an engine that was read, or `None` for a new one.
    """

    def __init__(
        self, dim: int, kind: str, settings: Config, engine: Any = None
    ) -> None:
        if not isinstance(dim, int) or dim < 1:
            raise ValueError(f"`dim` must be a positive integer. Received: {dim!r}.")
        self.settings = checked_settings(kind, settings)
        self.dim = dim
        self.kind = kind
        self._kind = engine_kind(kind, self.settings)
        # Vectors for an engine that isn't made yet, or is made anew.
        self._waiting: list[np.ndarray] = []
        self._count = 0 if engine is None else engine.ntotal
        # Whether the values for rounding are learnt for good.
        self._settled = not are_rounded(self.settings) or self._has_many()
        self._engine = engine
        self._mapped = False
        if engine is not None:
            self._kind.tune(engine, self.settings)
        elif not self._kind.learns:
            self._engine = self._new(0)

    def _new(self, count: int) -> Any:
        engine = self._kind.make(self.dim, count, self.settings)
        self._kind.tune(engine, self.settings)
        return engine

    def check_count(self) -> None:
        """Raise a `ValueError` for settings that need more vectors than there are."""
        if self._engine is None:
            self._kind.make(self.dim, self._count, self.settings)

    def engine(self) -> Any:
        """Give the engine, its cells learnt."""
        if self._engine is None:
            vectors = np.concatenate(self._waiting)
            engine = self._new(len(vectors))
            engine.train(vectors)
            engine.add(vectors)
            self._engine, self._mapped = engine, False
            self._settled = self._settled or self._has_many()
            if self._settled:
                self._waiting = []
        return self._engine

    def _has_many(self):
        return self._count >= _VECTORS_OF_RANGES

    def emptied(self) -> Self:
        """Make a copy without vectors.

        Values for rounding that were learnt for good stay. So a rounded vector, added
        to the same cell, isn't changed again.
        """
        if not (are_rounded(self.settings) and self._settled):
            return type(self)(self.dim, self.kind, self.settings)
        engine = import_faiss().clone_index(self.engine())
        engine.reset()
        made = type(self)(self.dim, self.kind, self.settings, engine)
        made._settled = True
        return made

    def sizes(self) -> None:
        """Give `None`: each passage has one vector."""

    def checked(self, vectors: Any) -> np.ndarray:
        """Check vectors, and bring them to the form that FAISS takes.

        Raises:
            ValueError: for vectors of another width, or that aren't finite.
        """
        vectors = np.ascontiguousarray(vectors, "float32")
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise ValueError(
                f"`vectors` must have the shape (count, {self.dim}), as the index "
                f"has. Received: shape {vectors.shape}."
            )
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            raise ValueError(
                "`vectors` must be finite. Received some that aren't, the first in "
                f"row {int(np.argmin(finite))}."
            )
        if self.settings.get("bits") == 16 and np.any(abs(vectors) > _MOST_IN_16_BITS):
            raise ValueError(
                f"`vectors` must have numbers up to {_MOST_IN_16_BITS} with bits=16. "
                f"Received: {np.abs(vectors).max()}."
            )
        return vectors

    def add(self, vectors: np.ndarray) -> None:
        """Add vectors that are `checked`."""
        if not self._settled and self._count and not self._waiting:  # of a file
            self._waiting = [self.take(np.arange(self._count))]
        self._count += len(vectors)
        if self._waiting or self._engine is None:
            self._waiting.append(vectors.copy())
            self._engine = None
            if not self._settled and self._has_many():
                self.engine()
        else:
            self._engine.add(vectors)
            self._mapped = False

    def search(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find scores and ids `(count, k)` of the nearest; see `Index.search`."""
        engine = self.engine()
        scores = np.empty((len(vectors), k), "float32")
        ids = np.empty((len(vectors), k), "int64")
        for begin in range(0, len(vectors), _QUERIES_AT_ONCE):
            part = slice(begin, begin + _QUERIES_AT_ONCE)
            scores[part], ids[part] = engine.search(vectors[part], k)
        scores[ids < 0] = -np.inf
        order = np.lexsort((ids, -scores))  # equal scores by their ids
        return np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Look up the vectors of ids that are there, `(*ids.shape, dim)`."""
        engine = self.engine()
        if hasattr(engine, "make_direct_map") and not self._mapped:
            engine.make_direct_map()
            self._mapped = True
        found = engine.reconstruct_batch(np.ascontiguousarray(ids.reshape(-1)))
        return found.reshape(*ids.shape, self.dim)
