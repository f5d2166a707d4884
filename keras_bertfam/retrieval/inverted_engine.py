"""An engine for sparse vectors, with the methods of FAISS that an index needs.

It works like the index of a book. For each place of the vectors, such as a token of the
vocabulary, it keeps a list of the passages with a nonzero number there. A query reads
only the lists of its own nonzero places.
"""

import functools
import tokenize
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.types import Config

# The arrays of a matrix, in the order in which SciPy takes them, and their axes.
_PARTS = {
    "data": (("float32",), 1),
    "indices": (("int32", "int64"), 1),
    "indptr": (("int32", "int64"), 1),
    "shape": (("int64",), 1),
}
_WIDEST = 2**24
# What NumPy's readers raise for other bytes; that of headers is Python's.
NUMPY_ERRORS: tuple[type[Exception], ...] = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    SyntaxError,
    tokenize.TokenError,
    TypeError,
    ValueError,
)


@functools.cache
def import_scipy() -> Any:
    """Import SciPy's sparse matrices, an optional dependency.

    Raises:
        ImportError: with what to install.
    """
    try:
        import scipy.sparse
    except ImportError as error:
        raise ImportError(
            'kind="inverted" needs SciPy. Install it by `pip install '
            "'keras-bertfam[retrieval]'`."
        ) from error
    return scipy.sparse


class InvertedEngine:
    """Sparse vectors, found by the places that they share with a query.

    Args:
        dim: int.
        parts: matrices of SciPy `(count, dim)`, the vectors.
    """

    metric_type = 0  # FAISS's number of the inner product

    def __init__(self, dim: int, parts: Sequence[Any] = ()) -> None:
        import_scipy()
        self.d = dim
        self._parts = [*parts]
        self._postings: Any = None

    @property
    def ntotal(self) -> int:
        """Count the vectors."""
        return sum(part.shape[0] for part in self._parts)

    @property
    def vectors(self) -> Any:
        """Give the vectors, a sparse matrix `(ntotal, dim)`."""
        if len(self._parts) != 1:
            none = import_scipy().csr_array((0, self.d), dtype="float32")
            self._parts = [import_scipy().vstack([none, *self._parts], format="csr")]
        return self._parts[0]

    def add(self, vectors: np.ndarray) -> None:
        """Add vectors, `(count, dim)`."""
        self._parts.append(import_scipy().csr_array(vectors))
        self._postings = None

    def search(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find scores and ids `(count, k)` of the best; the first of equal ones.

        A passage that shares no place with a query isn't found. Ids in places left are
        -1.
        """
        if self._postings is None:
            self._postings = self.vectors.T.tocsr()
        scores = np.full((len(vectors), k), -np.inf, "float32")
        ids = np.full((len(vectors), k), -1, "int64")
        for row, query in enumerate(vectors):
            found = import_scipy().csr_array(query[None]) @ self._postings
            values, places = found.data, found.indices
            if len(values) > k:
                least = np.partition(values, -k)[-k]
                values, places = values[values >= least], places[values >= least]
            order = np.lexsort((places, -values))[:k]
            scores[row, : len(order)] = values[order]
            ids[row, : len(order)] = places[order]
        return scores, ids

    def reconstruct_batch(self, ids: np.ndarray) -> np.ndarray:
        """Look up the vectors of ids, `(count, dim)`."""
        return self.vectors[ids].toarray()


def write_engine(engine: InvertedEngine, path: str) -> None:
    """Write the vectors as the arrays of a matrix of sparse rows, in NumPy's file."""
    parts = {name: getattr(engine.vectors, name) for name in _PARTS}
    np.savez(path, **parts)


def read_engine(path: str, settings: Config) -> InvertedEngine:
    """Read the engine of a file that `write_engine` wrote.

    Raises:
        ValueError: for another file.
    """
    try:
        with zipfile.ZipFile(path) as file:
            packed = [x.filename for x in file.infolist() if x.compress_type]
        if packed:  # a small one could fill the memory
            raise ValueError(f"Its parts mustn't be compressed. Received: {packed}.")
        with np.load(path, allow_pickle=False) as file:
            parts = {name: file[name] for name in _PARTS}
    except NUMPY_ERRORS as error:
        raise ValueError(f"It must have arrays of a matrix: {error}.") from error
    for name, (dtypes, dims) in _PARTS.items():
        found = parts[name]
        if found.dtype.name not in dtypes or found.ndim != dims:
            raise ValueError(
                f"{name!r} must be {' or '.join(dtypes)}, of {dims} axes. Received: "
                f"{found.dtype}, of {found.ndim}."
            )
    shape = parts.pop("shape").tolist()
    if len(shape) != 2 or not 0 < shape[1] <= _WIDEST or shape[0] < 0:
        raise ValueError(
            f"'shape' must be rows, and a width of at most {_WIDEST}. "
            f"Received: {shape}."
        )
    if not np.isfinite(parts["data"]).all():
        raise ValueError("'data' must be finite numbers. Received some that aren't.")
    vectors = import_scipy().csr_array(tuple(parts.values()), shape=tuple(shape))
    vectors.check_format(full_check=True)
    return InvertedEngine(shape[1], [vectors])
