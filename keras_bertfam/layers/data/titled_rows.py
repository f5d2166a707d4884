"""A text in a row, behind its title if it has one."""

import dataclasses
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.layouts import special_ids
from keras_bertfam.presets.families.record import Layout
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer

# Where ranges of tokens begin, and their lengths.
Ranges: TypeAlias = tuple[TFTensor, TFTensor]


@dataclasses.dataclass(frozen=True)
class TitledRows:
    """A layout of texts: `[start] title [end] text [end]`, `[start] text [end]`.

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
        """Count the tokens that titles leave to texts, int32 `(rows,)`."""
        budget = self.sequence_length - self.layout.specials(1)
        titled = title_lengths + self.layout.separators
        return budget - tf.where(title_lengths > 0, titled, 0)

    def __call__(
        self,
        texts: TFRagged,
        titles: TFRagged | None = None,
        buckets: list[int] | None = None,
    ) -> dict[str, TFTensor]:
        """Make rows of texts. Works in a graph.

        Args:
            texts: ragged int32 tensor `(rows, None)`.
            titles: ragged int32 tensor `(rows, None)`, empty where there is none; or
                `None` for texts without titles.
            buckets: see `lay_out`.

        Returns:
            See `lay_out`.
        """
        tokens, text = texts.flat_values, _ranges(texts)
        if titles is None:
            return self.lay_out(tokens, [text], None, buckets)
        at, sizes = _ranges(titles)
        title = (at + tf.size(tokens), sizes)
        tokens = tf.concat([tokens, titles.flat_values], 0)
        return self.lay_out(tokens, [text], title, buckets)

    def lay_out(
        self,
        tokens: TFTensor,
        texts: list[Ranges],
        title: Ranges | None = None,
        buckets: list[int] | None = None,
    ) -> dict[str, TFTensor]:
        """Make rows of ranges of tokens. Works in a graph.

        Args:
            tokens: int32 tensor of rank 1.
            texts: list of pairs of int32 tensors `(rows,)`: where in `tokens` a part of
                each row's text begins, and its length. The parts follow each other.
            title: such a pair, of length 0 where there is none; or `None`.
            buckets: lengths, see `length_buckets`, of which rows are padded to the
                least that they fit in; `sequence_length` by default.

        Returns:
            A dict of `token_ids` and `segment_ids`, int32 `(rows, length)`, and
            `padding_mask`, bool of that shape. A text behind a title is segment 1.
        """
        at, sizes, titled = self._pieces(tf.size(tokens), texts, title)
        ends = tf.cumsum(sizes, axis=1)
        total = ends[:, -1:]
        width: Any = self.sequence_length
        if buckets is not None:
            longest = tf.reduce_max(tf.pad(total, [[1, 0], [0, 0]]))
            width = tf.gather(buckets, tf.searchsorted(buckets, longest[None])[0])
        place = tf.broadcast_to(tf.range(width), [tf.shape(total)[0], width])
        piece = tf.searchsorted(ends, place, side="right")
        inside = place < total
        known = tf.where(inside, piece, 0)
        index = tf.gather(at - ends + sizes, known, batch_dims=1) + place
        ids = tf.gather(
            tf.concat([tokens, self._specials()], 0), tf.where(inside, index, 0)
        )
        last = self.layout.start_last
        begun = inside & (piece >= (2 if last else 3)) & titled[:, None]
        segments = tf.cast(begun, tf.int32)
        if last:
            segments = tf.where(inside & (place == total - 1), 2, segments)
        rows = {
            "token_ids": tf.where(inside, ids, self.tokenizer.pad_token_id),
            "segment_ids": segments,
            "padding_mask": inside,
        }
        static = [None, self.sequence_length if buckets is None else None]
        return {name: tf.ensure_shape(x, static) for name, x in rows.items()}

    def _specials(self):
        start, between, end = special_ids(self.tokenizer, self.layout)
        return [*start, *between, *end]

    def _pieces(self, count, texts, title):
        """Find where the pieces of rows begin, and their sizes, `(rows, pieces)`.

        Special tokens are behind the `count` tokens. And which rows have a title.
        """
        none = tf.zeros_like(texts[0][1])
        title_at, title_size = (none, none) if title is None else title
        title_size = tf.minimum(title_size, self.title_length)
        titled, left = title_size > 0, self.room(title_size)
        separators = self.layout.separators
        between = tf.where(titled, separators, 0)
        begin = int(bool(self.layout.start_token))
        pieces = [(title_at, title_size), (count + begin + none, between)]
        for at, size in texts:
            kept = tf.minimum(size, left)
            left -= kept
            pieces.append((at, kept))
        ends = int(self.layout.ends)
        pieces.append((count + begin + separators + none, ends + none))
        start = len(pieces) if self.layout.start_last else 0
        pieces.insert(start, (count + none, begin + none))
        at, sizes = (tf.stack(part, 1) for part in zip(*pieces, strict=True))
        return at, sizes, titled


def _ranges(ragged):
    """Find where each row begins in the flat values, and how long it is, int32."""
    bounds = tf.cast(ragged.row_splits, tf.int32)
    return bounds[:-1], bounds[1:] - bounds[:-1]


def refuse_too_long(over: np.ndarray, sequence_length: int) -> None:
    """Raise a `ValueError` for the first text that doesn't fit in its row.

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
