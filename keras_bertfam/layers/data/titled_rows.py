"""A text in a row, behind its title if it has one."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.layouts import head, special_ids
from keras_bertfam.layers.data.length_batches import pad_rows
from keras_bertfam.presets.families.record import Layout
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer


@dataclasses.dataclass(frozen=True)
class TitledRows:
    """How texts are laid out: `[start] title [end] text [end]`, `[start] text [end]`.

    A title is cut to half of a row at most, and a text to what is left.

    Args:
        tokenizer: a tokenizer layer.
        layout: a `Layout`.
        sequence_length: int. Tokens of a row, special ones included.
    """

    tokenizer: Tokenizer
    layout: Layout
    sequence_length: int

    @property
    def title_length(self) -> int:
        """int: the most tokens of a title."""
        return (self.sequence_length - self.layout.specials(2)) // 2

    def room(self, title_lengths: TFTensor) -> TFTensor:
        """Tokens of texts, int32 `(rows,)`, beside titles of so many tokens."""
        budget = self.sequence_length - self.layout.specials(1)
        titled = title_lengths + self.layout.separators
        return budget - tf.where(title_lengths > 0, titled, 0)

    def __call__(
        self,
        texts: TFRagged,
        titles: TFRagged | None = None,
        buckets: list[int] | None = None,
    ) -> dict[str, TFTensor]:
        """Rows of texts. Works in a graph.

        Args:
            texts: ragged int32 tensor `(rows, None)`.
            titles: ragged int32 tensor `(rows, None)`, empty where there is none; or
                `None` for texts without titles.
            buckets: lengths, see `length_buckets`, of which rows are padded to the
                least that they fit in; `sequence_length` by default.

        Returns:
            A dict of `token_ids` and `segment_ids`, int32 `(rows, length)`, and
            `padding_mask`, bool of that shape. A text behind a title is segment 1.
        """
        ids, segments = self._joined(texts, titles)
        rows = {"token_ids": ids, "segment_ids": segments}
        buckets = buckets or [self.sequence_length]
        return pad_rows((rows, None, None), buckets, self.tokenizer.pad_token_id)[0]

    def _joined(self, texts, titles):
        """Ids and segments of rows, ragged."""
        rows, separators = texts.nrows(), self.layout.separators
        if titles is None:
            titles = tf.RaggedTensor.from_row_lengths(
                tf.zeros([0], tf.int32), tf.zeros([rows], tf.int64)
            )
        titles = titles[:, : self.title_length]
        sizes = tf.cast(titles.row_lengths(), tf.int32)
        texts = head(texts, self.room(sizes))
        start_id, separator_id, end_id = special_ids(self.tokenizer, self.layout)
        between = tf.where(sizes > 0, separators, 0)
        parts = [
            titles,
            tf.RaggedTensor.from_row_lengths(
                tf.fill([tf.reduce_sum(between)], separator_id),
                tf.cast(between, tf.int64),
            ),
            texts,
            tf.fill([rows, 1], end_id),
        ]
        last = self.layout.start_last
        parts.insert(len(parts) if last else 0, tf.fill([rows, 1], start_id))
        ids = tf.concat(parts, 1)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        place = tf.ragged.range(lengths)
        begin = tf.where(sizes > 0, sizes + separators + (0 if last else 1), lengths)
        flat = place.flat_values
        owner = place.value_rowids()
        segments = tf.cast(flat >= tf.gather(begin, owner), tf.int32)
        if last:
            segments = tf.where(flat == tf.gather(lengths, owner) - 1, 2, segments)
        return ids, place.with_flat_values(segments)


def refuse_too_long(over: np.ndarray, sequence_length: int) -> None:
    """Raises a `ValueError` for the first text that doesn't fit in its row.

    Args:
        over: int array: by how many tokens each is longer than there is room for.
        sequence_length: int. Tokens of a row.
    """
    if (over > 0).any():
        row = int(np.argmax(over > 0))
        raise ValueError(
            f"`texts` must fit into rows of {sequence_length} tokens, special ones "
            f"included. Received: one of {sequence_length + int(over[row])}, in row "
            f"{row}."
        )
