"""Find passages by their words with BM25, in place of a retriever."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam import retrieval, tasks
from keras_bertfam.types import Model

_K1, _B = 1.5, 0.75
_MOST_AT_ONCE = 256  # queries at a time: their scores for all passages are in memory


def words_of(text: str) -> list[str]:
    """List the words of a text, in lower case and without accents."""
    plain = unicodedata.normalize("NFD", text.lower())
    plain = "".join(c for c in plain if unicodedata.category(c) != "Mn")
    return re.findall(r"\w+", plain)


class WordIndex:
    """Find passages by BM25, in Lucene's form.

    Args:
        texts: list of str.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        import scipy.sparse

        self._numbers: dict[str, int] = {}
        rows, columns = [], []
        for number, text in enumerate(texts):
            for word in words_of(text):
                rows.append(number)
                columns.append(self._numbers.setdefault(word, len(self._numbers)))
        shape = (len(texts), max(len(self._numbers), 1))
        counts = scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape)
        counts.sum_duplicates()
        lengths = np.asarray(counts.sum(1))[:, 0]
        known = np.bincount(counts.indices, minlength=shape[1])
        rarity = np.log1p((len(texts) - known + 0.5) / (known + 0.5))
        room = _K1 * (1 - _B + _B * lengths / max(lengths.mean(), 1e-9))
        entries = counts.tocoo()
        weights = entries.data / (entries.data + room[entries.row])
        weights *= rarity[entries.col]
        places = (entries.row, entries.col)
        self._weights = scipy.sparse.csc_matrix((weights, places), shape)

    def search(self, queries: Sequence[str], count: int) -> np.ndarray:
        """Find the best passages: int array `(queries, count)`, the best first."""
        found = [
            self._found(queries[k : k + _MOST_AT_ONCE], count)
            for k in range(0, max(len(queries), 1), _MOST_AT_ONCE)
        ]
        return np.concatenate(found)

    def _found(self, queries, count):
        import scipy.sparse

        asked = scipy.sparse.lil_matrix((self._weights.shape[1], len(queries)))
        for column, query in enumerate(queries):
            for word in words_of(query):
                if word in self._numbers:
                    asked[self._numbers[word], column] += 1
        scores = (self._weights @ asked.tocsc()).toarray().T
        return np.argsort(-scores, axis=1, kind="stable")[:, :count]


class WordSearch(tasks.PassageSearch):
    """Find passages by BM25 for tasks that read them; give each the same weight.

    Args:
        retriever: `keras_bertfam.tasks.DualEncoder`, which isn't used.
        passages: list of passages, strings or tuples of title and text.
    """

    def __init__(self, retriever: Model, passages: Sequence[Any]) -> None:
        index = retrieval.Index(retriever.vector_dim)
        index.add(np.zeros((len(passages), retriever.vector_dim), "float32"), passages)
        super().__init__(retriever, index, stale="allow")
        self._words = WordIndex([as_text(passage) for passage in passages])
        self._tokenizer = retriever.preprocessor.tokenizer

    def look_up(
        self, query: dict[str, Any], count: int, sources: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        self.check_count(count)
        rows = np.asarray(query["token_ids"])
        special = [
            self._tokenizer.start_token_id,
            self._tokenizer.end_token_id,
            self._tokenizer.pad_token_id,
        ]
        texts = [
            self._tokenizer.detokenize(row[~np.isin(row, special)]) for row in rows
        ]
        found = self._words.search([*map(_as_str, texts)], count).astype("int32")
        return found, np.zeros((*found.shape, self.index.dim), "float32")


def as_text(passage: Any) -> str:
    """Join a passage's title, if it has one, and its text."""
    return passage if isinstance(passage, str) else " ".join(passage)


def _as_str(text):
    text = text.numpy() if hasattr(text, "numpy") else text
    return text.decode() if isinstance(text, bytes) else str(text)
