"""Ragged tensors of parts that are known to fit, made of few operations.

TensorFlow checks what a ragged tensor is made of, which takes some sixty operations in
a graph, and finds the row of each value by seventy. Most of a byte-pair tokenizer's
graph was of these, and building it took seconds in each dataset. What users give is
checked where they give it, so these functions check static shapes at most.
"""

from typing import Any

import tensorflow as tf
from tensorflow_text.python.ops import regex_split_ops

from keras_bertfam.types import TFRagged, TFTensor


def from_lengths(values: Any, lengths: TFTensor) -> TFRagged:
    """Divide values into rows of these lengths."""
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def from_row_ids(values: Any, row_ids: TFTensor, count: TFTensor) -> TFRagged:
    """Divide values into `count` rows, given the row of each, in ascending order."""
    count = tf.cast(count, row_ids.dtype)
    return tf.RaggedTensor.from_value_rowids(values, row_ids, count, validate=False)


def row_ids(rows: TFRagged) -> TFTensor:
    """Tell the row of each value of the first ragged dimension, int64."""
    # Of the lengths 2, 0 and 1, rows end at 2, 2 and 3: the values 0, 1 and 2 come
    # after 0, 0 and 2 ends.
    ends = rows.row_splits[1:]
    places = tf.range(rows.row_splits[-1])
    ids = tf.raw_ops.UpperBound(
        sorted_inputs=ends[None], values=places[None], out_type=tf.int64
    )
    return ids[0]


def keep(values: TFTensor, chosen: TFTensor) -> TFTensor:
    """Keep what `chosen`, bool, says, as `tf.boolean_mask` does."""
    values, chosen = tf.convert_to_tensor(values), tf.convert_to_tensor(chosen)
    values.shape[: chosen.shape.rank].assert_is_compatible_with(chosen.shape)
    return tf.gather_nd(values, tf.where(chosen))


def keep_in_matrix(matrix: TFTensor, chosen: TFTensor) -> TFRagged:
    """Make rows of some elements of a dense matrix, as the bool matrix `chosen` says.

    An element may have axes of its own.
    """
    lengths = tf.reduce_sum(tf.cast(chosen, tf.int64), 1)
    return from_lengths(keep(matrix, chosen), lengths)


def keep_in_rows(rows: TFRagged, chosen: TFTensor) -> TFRagged:
    """Keep some values of rows `(n, None)`; `chosen`, bool, has one for each value."""
    before = tf.cumsum(tf.cast(tf.concat([[False], chosen], 0), rows.row_splits.dtype))
    return tf.RaggedTensor.from_row_splits(
        keep(rows.values, chosen),
        tf.gather(before, rows.row_splits),
        validate=False,
    )


def fill_rows(rows: TFRagged, empty: TFTensor, values: TFTensor) -> TFRagged:
    """Give one value each to rows of a matrix that are empty.

    Of the rows `[1, 2]`, `[]`, `[3]`, of which the second gets 9: `[1, 2]`, `[9]`,
    `[3]`.

    Args:
        rows: ragged tensor of shape `(n, None)`.
        empty: bool tensor of shape `(n,)`: which rows get a value. They are empty.
        values: tensor of shape `(k,)`, one for each of them.
    """
    lengths = rows.row_lengths()
    own = tf.cast(empty, lengths.dtype)
    both = from_lengths(
        tf.concat([rows.flat_values, values], 0),
        tf.concat([lengths, tf.ones_like(values, lengths.dtype)], 0),
    )
    count = tf.size(lengths, lengths.dtype)
    place = tf.where(empty, count + tf.cumsum(own) - 1, tf.range(count))
    return tf.gather(both, place)


def concat(parts: list[Any]) -> TFRagged:
    """Join rows side by side, as `tf.concat(parts, 1)` does.

    Args:
        parts: list of tensors of shape `(rows, None)`, at least one of them ragged. The
            values of all may have more axes.
    """
    counts = (x.nrows() for x in parts if isinstance(x, tf.RaggedTensor))
    count = tf.cast(next(counts), tf.int64)
    values, lengths = [], []
    for part in parts:
        if isinstance(part, tf.RaggedTensor):
            values.append(part.values)
            lengths.append(tf.cast(part.row_lengths(), tf.int64))
        else:
            values.append(tf.reshape(part, [-1, *part.shape[2:]]))
            lengths.append(tf.fill([count], tf.shape(part, tf.int64)[1]))
    below = from_lengths(tf.concat(values, 0), tf.concat(lengths, 0))
    # The first rows of all parts come first, then the second ones.
    number = tf.range(len(parts), dtype=tf.int64)
    order = tf.range(count)[:, None] + count * number
    beside = tf.gather(below, tf.reshape(order, [-1]))
    splits = tf.gather(beside.row_splits, tf.range(count + 1) * len(parts))
    return tf.RaggedTensor.from_row_splits(beside.values, splits, validate=False)


def head(rows: TFRagged, sizes: int | TFTensor) -> TFRagged:
    """Take the first values of each row `(n, None)`: `sizes` of all, or `sizes[i]`."""
    starts = rows.row_starts()
    ends = tf.minimum(starts + tf.cast(sizes, starts.dtype), rows.row_limits())
    places = tf.ragged.range(starts, ends)
    return places.with_flat_values(tf.gather(rows.values, places.flat_values))


def tail(rows: TFRagged, sizes: int | TFTensor) -> TFRagged:
    """Take the last values of each row `(n, None)`: `sizes` of all, or `sizes[i]`."""
    ends = rows.row_limits()
    starts = tf.maximum(ends - tf.cast(sizes, ends.dtype), rows.row_starts())
    places = tf.ragged.range(starts, ends)
    return places.with_flat_values(tf.gather(rows.values, places.flat_values))


def groups(rows: TFRagged, size: int | TFTensor) -> TFRagged:
    """Make groups of so many rows each, `(batch, size, None)`."""
    return tf.RaggedTensor.from_uniform_row_length(rows, size, validate=False)


def longest(rows: TFRagged) -> TFTensor:
    """Measure the longest row of the last ragged dimension, 0 without rows."""
    while isinstance(rows.values, tf.RaggedTensor):
        rows = rows.values
    splits = rows.row_splits
    return tf.reduce_max(tf.concat([splits[1:] - splits[:-1], [0]], 0))


def merge_inner(rows: TFRagged) -> TFRagged:
    """Join the rows of the first two of three dimensions: `merge_dims(1, 2)`."""
    inner = rows.values
    return tf.RaggedTensor.from_row_splits(
        inner.values, tf.gather(inner.row_splits, rows.row_splits), validate=False
    )


def split_at(
    texts: TFTensor, pattern: str, kept: str = ""
) -> tuple[TFRagged, TFRagged, TFRagged]:
    """Split texts as `tensorflow_text.regex_split_with_offsets` does, which checks.

    Args:
        texts: string tensor of shape `(batch,)`.
        pattern: str. What texts are split at, an expression of RE2.
        kept: str. What of that is a piece of its own.

    Returns:
        Three ragged tensors of shape `(batch, None)`: the pieces, and the bytes, int64,
        where they begin and end.
    """
    operation = regex_split_ops.gen_regex_split_ops.regex_split_with_offsets
    pieces, starts, ends, splits = operation(texts, f"({pattern})", f"({kept})")
    rows = tf.RaggedTensor.from_row_splits(pieces, splits, validate=False)
    return rows, rows.with_flat_values(starts), rows.with_flat_values(ends)
