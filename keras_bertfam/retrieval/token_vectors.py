"""Passages with a vector for each token, and their scores for queries."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from keras_bertfam.retrieval.engines import Vectors, checked_settings
from keras_bertfam.types import Config

# How many queries, and tokens of passages, a search compares at a time.
_QUERIES, _TOKENS = 32, 2**14


def best_matches(
    queries: Sequence[np.ndarray], passages: Sequence[np.ndarray]
) -> np.ndarray:
    """Score passages for queries: sum the best product of each token of a query.

    A query of vectors `[1, 0]` and `[.6, .8]` has for a passage of `[.8, .6]`, `[0, 1]`
    and `[-1, 0]` the products `[.8, 0, -1]` and `[.96, .8, -.6]`, and the score `.8 +
    .96 = 1.76`.

    Args:
        queries: list of float arrays `(tokens, width)`.
        passages: list of such arrays.

    Returns:
        float32 array `(len(queries), len(passages))`. It is `-inf` for passages without
        tokens, and 0 for queries without tokens.
    """
    scores = np.zeros((len(queries), len(passages)), "float32")
    scores[:, [not len(passage) for passage in passages]] = -np.inf
    asked = [place for place, query in enumerate(queries) if len(query)]
    there = [place for place, passage in enumerate(passages) if len(passage)]
    if asked and there:
        queries = [queries[place] for place in asked]
        passages = [passages[place] for place in there]
        products = np.concatenate(passages) @ np.concatenate(queries).T
        best = np.maximum.reduceat(products, _starts(passages), axis=0)
        sums = np.add.reduceat(best, _starts(queries), axis=1)
        scores[np.ix_(asked, there)] = sums.T
    return scores


def _starts(texts):
    ends = np.cumsum([len(text) for text in texts])
    return [0, *ends[:-1]]


class TokenVectors:
    """Passages of several vectors each; `Vectors` has one for each passage.

    The engine finds tokens. A search asks it for the nearest tokens to each token of a
    query. The passages with these tokens are then compared with the query in full. The
    kind `"exact"` compares all passages.

    Args:
        dim: int.
        kind: a name in `KINDS`.
        settings: dict, of that kind, and `token_hits`.
        engine: an engine that was read, or `None` for a new one.
        sizes: how many tokens each passage in `engine` has.
    """

    def __init__(
        self,
        dim: int,
        kind: str,
        settings: Config,
        engine: Any = None,
        sizes: Iterable[int] = (),
    ) -> None:
        self.settings = checked_settings(kind, settings, token_vectors=True)
        self.dim = dim
        self.kind = kind
        of_engine = dict(self.settings)
        self._hits = of_engine.pop("token_hits", None)
        self._tokens = Vectors(dim, kind, of_engine, engine)
        # Where each passage's tokens begin, and where the last one's end.
        self._bounds = np.cumsum([0, *sizes])

    def check_count(self) -> None:
        """See `Vectors.check_count`."""
        self._tokens.check_count()

    def engine(self) -> Any:
        """Give the engine of tokens, its cells learnt."""
        return self._tokens.engine()

    def emptied(self) -> Self:
        """Make a copy without passages; see `Vectors.emptied`."""
        made = type(self)(self.dim, self.kind, self.settings)
        made._tokens = self._tokens.emptied()
        return made

    def sizes(self) -> list[int]:
        """Give the number of each passage's tokens."""
        return [int(size) for size in np.diff(self._bounds)]

    def checked(self, vectors: Any) -> list[np.ndarray]:
        """Check the vectors of texts, a list of arrays `(tokens, dim)`.

        Raises:
            ValueError: for vectors of another width, that aren't finite, or none.
        """
        shapes = [np.shape(text) for text in vectors]
        for place, shape in enumerate(shapes):
            if len(shape) != 2 or shape[0] == 0 or shape[1] != self.dim:
                raise ValueError(
                    "`vectors` must be a list of an array `(tokens, dim)` for each "
                    f"text, of a token or more and dim={self.dim}. Received: shape "
                    f"{shape}, for text {place}."
                )
        return [self._tokens.checked(text) for text in vectors]

    def add(self, vectors: list[np.ndarray]) -> None:
        """Add passages whose vectors are `checked`."""
        if vectors:
            self._tokens.add(np.concatenate(vectors))
            ends = np.cumsum([len(passage) for passage in vectors])
            self._bounds = np.append(self._bounds, self._bounds[-1] + ends)

    def search(
        self, vectors: list[np.ndarray], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find scores and ids `(count, k)` of the best; see `Index.search`."""
        scores = np.full((len(vectors), k), -np.inf, "float32")
        ids = np.full((len(vectors), k), -1, "int64")
        for begin in range(0, len(vectors), _QUERIES):
            queries = vectors[begin : begin + _QUERIES]
            for row, (places, found) in enumerate(self._found(queries), begin):
                order = np.lexsort((places, -found))[:k]
                scores[row, : len(order)] = found[order]
                ids[row, : len(order)] = places[order]
        return scores, ids

    def _found(self, queries):
        """Give the ids of passages and their scores, for each query."""
        if self._hits is None:
            places = np.arange(len(self._bounds) - 1)
            scores = self._scores(queries, places)
            return [(places, row) for row in scores]
        hits = min(self._hits, int(self._bounds[-1]))
        _, tokens = self._tokens.search(np.concatenate(queries), hits)
        passages = np.searchsorted(self._bounds[1:], tokens, side="right")
        passages[tokens < 0] = -1
        found = []
        for query, rows in zip(
            queries, np.split(passages, _starts(queries)[1:]), strict=True
        ):
            places = np.unique(rows[rows >= 0])
            found.append((places, self._scores([query], places)[0]))
        return found

    def _scores(self, queries, places):
        """Score passages for queries, some at a time."""
        parts = [np.zeros((len(queries), 0), "float32")]
        ends = np.cumsum(np.diff(self._bounds)[places])
        begin = 0
        while begin < len(places):
            room = (ends[begin - 1] if begin else 0) + _TOKENS
            end = max(begin + 1, int(np.searchsorted(ends, room, side="right")))
            parts.append(best_matches(queries, self.take(places[begin:end])))
            begin = end
        return np.concatenate(parts, axis=1)

    def take(self, ids: np.ndarray) -> list[np.ndarray]:
        """Look up the vectors of passages, an array `(tokens, dim)` of each id."""
        ids = ids.reshape(-1)
        bounds = zip(self._bounds[ids], self._bounds[ids + 1], strict=True)
        ranges = [np.arange(begin, end) for begin, end in bounds]
        if not ranges:
            return []
        found = self._tokens.take(np.concatenate(ranges))
        return np.split(found, np.cumsum([len(x) for x in ranges])[:-1])
