"""What the preprocessors share that find passages while they make batches."""

from typing import Any

import tensorflow as tf

from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Mixin, TFTensor


class PassagesPreprocessor(Mixin):
    """Mixin of preprocessors with `num_passages` passages for each row.

    Attributes:
        excluding: bool. Whether passages of a query's own document are left out.
    """

    num_passages: int
    excluding = False
    _search: Any = None

    @property
    def search(self) -> Any:
        """`keras_bertfam.tasks.PassageSearch`: what finds the passages, or `None`."""
        return self._search

    @search.setter
    def search(self, search: Any) -> None:
        search.check_count(self.num_passages, self.excluding)
        self.check_fits(search)
        self._search = search
        self.trace_again()

    def check_fits(self, search: Any) -> None:
        """Raise a `ValueError` for a search that the rows can't be read with."""

    def trace_again(self) -> None:
        """Forget the graphs that were made with another `search`."""

    def check_search(self) -> None:
        """Raise a `ValueError` unless `search` is set."""
        if self._search is None:
            raise ValueError(
                "`search` must be set to a `PassageSearch` before texts are read. "
                "Expected: preprocessor.search = PassageSearch(retriever, index). "
                "Received: None."
            )

    def rows_of(
        self, kind: str, texts: TFTensor, titles: TFTensor | None = None
    ) -> dict[str, TFTensor]:
        """Make rows as the retriever reads them, of equal length. Works in a graph.

        Args:
            kind: `"query"` or `"passage"`. A query that is too long is an error, and a
                passage is cut.
            texts: string tensor `(batch,)`.
            titles: string tensor `(batch,)`, `""` for none, or `None`.

        Returns:
            A dict of `token_ids`, `segment_ids` and `padding_mask`, `(batch, length)`.
        """
        self.check_search()
        rows = self._search.retriever.preprocessor.rows_of(kind)
        ids = tokenize(rows.tokenizer, to_utf8(texts))
        if titles is not None:
            titles = tokenize(rows.tokenizer, to_utf8(titles))
        if kind == "query":
            most = rows.room(tf.zeros([], tf.int32))
            refuse_over(
                tf.cast(ids.row_lengths(), tf.int32) - most,
                f"`x` must be queries that fit into rows of {rows.sequence_length} "
                "tokens, special ones included.",
            )
        return rows(ids, titles)

    def find_passages(
        self, query: dict[str, TFTensor], sources: TFTensor | None = None
    ) -> tuple[TFTensor, ...]:
        """Ask `search`, which is the host's work. Works in a graph.

        Args:
            query: dict of tensors `(batch, length)`, rows of the query encoder.
            sources: int tensor `(batch,)` or `None`, see `PassageSearch.find`.

        Returns:
            Tuple of the numbers of passages, int32 `(batch, num_passages)`; string
            tensors of that shape, titles and texts; and float32 vectors `(batch,
            num_passages, dim)`.
        """
        search, count, names = self._search, self.num_passages, sorted(query)

        def find(*rows):
            own = None if sources is None else rows[-1]
            given = dict(zip(names, rows, strict=False))
            found, vectors = search.look_up(given, count, own)
            return found, vectors, *search.texts(found)

        given = [query[name] for name in names]
        kinds = (tf.int32, tf.float32, tf.string, tf.string)
        with tf.device("CPU:0"):
            found, vectors, *texts = tf.numpy_function(
                find, given if sources is None else [*given, sources], kinds
            )
        shape = [None, count]
        vectors = tf.ensure_shape(vectors, [*shape, search.index.dim])
        return (*(tf.ensure_shape(x, shape) for x in (found, *texts)), vectors)


def refuse_over(over: TFTensor, expected: str) -> None:
    """Raise a `tf.errors.InvalidArgumentError` for tokens over. Works in a graph.

    Args:
        over: int32 tensor `(rows,)`, the tokens that each row has too many.
        expected: sentence, what must be.
    """
    most = tf.reduce_max(tf.concat([over, [0]], 0))
    row = tf.argmax(tf.concat([over, [0]], 0))
    said = tf.strings.format(
        f"{expected} Received: {{}} tokens too many, in row {{}}.", (most, row)
    )
    tf.debugging.Assert(most <= 0, [said])
