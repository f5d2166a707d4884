"""The vectors of an index, and which of them are nearest."""

from typing import Any

import numpy as np

from keras_bertfam.retrieval.engines import KINDS, checked_settings
from keras_bertfam.types import Config

_QUERIES_AT_ONCE = 1024


class Vectors:
    """Vectors in an engine, by their ids, which begin at 0.

    Args:
        dim: int.
        kind: a name in `KINDS`.
        settings: dict, of that kind.
        engine: the one that was read, or `None` for a new one.
    """

    def __init__(
        self, dim: int, kind: str, settings: Config, engine: Any = None
    ) -> None:
        if not isinstance(dim, int) or dim < 1:
            raise ValueError(f"`dim` must be a positive integer. Received: {dim!r}.")
        self.settings = checked_settings(kind, settings)
        self.dim = dim
        self._kind = KINDS[kind]
        self._waiting: list[np.ndarray] = []  # until cells are learnt
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

    def engine(self) -> Any:
        """Give the index of FAISS, its cells learnt, or a `ScannEngine`."""
        if self._engine is None:
            vectors = np.concatenate(self._waiting)
            engine = self._new(len(vectors))
            engine.train(vectors)
            engine.add(vectors)
            self._engine, self._waiting = engine, []
        return self._engine

    def checked(self, vectors: Any) -> np.ndarray:
        """Check vectors, and make them what FAISS takes.

        Raises:
            ValueError: for vectors of another width, or that aren't finite.
        """
        vectors = np.ascontiguousarray(vectors, "float32")
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise ValueError(
                f"`vectors` must be of the shape (count, {self.dim}), as those of the "
                f"index. Received: shape {vectors.shape}."
            )
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            raise ValueError(
                "`vectors` must be finite. Received others, the first in row "
                f"{int(np.argmin(finite))}."
            )
        return vectors

    def add(self, vectors: np.ndarray) -> None:
        """Add vectors that are `checked`."""
        if self._engine is None:
            self._waiting.append(vectors.copy())
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
        return scores, ids

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Look up the vectors of ids that are there, `(*ids.shape, dim)`."""
        engine = self.engine()
        if self._kind.learns and not self._mapped:
            engine.make_direct_map()
            self._mapped = True
        found = engine.reconstruct_batch(np.ascontiguousarray(ids.reshape(-1)))
        return found.reshape(*ids.shape, self.dim)
