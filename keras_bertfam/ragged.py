"""Ragged tensors of parts that are known to fit, made of few operations.

TensorFlow checks what a ragged tensor is made of, which takes some sixty operations in
a graph, and finds the row of each value by seventy. Most of a byte-pair tokenizer's
graph was of these, and building it took seconds in each dataset. What users give is
checked where they give it, so these functions check nothing.
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
    """Keep some elements of the first axis; `chosen`, bool, says which."""
    return tf.gather(values, tf.where(chosen)[:, 0])


def keep_in_rows(rows: TFRagged, chosen: TFTensor) -> TFRagged:
    """Keep some values of the rows of a matrix; `chosen` is of its flat values."""
    before = tf.cumsum(tf.cast(tf.concat([[False], chosen], 0), rows.row_splits.dtype))
    return tf.RaggedTensor.from_row_splits(
        keep(rows.flat_values, chosen),
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
