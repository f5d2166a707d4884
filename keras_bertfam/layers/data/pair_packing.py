"""Packing of inputs together with their targets, each into rows of its own length."""

import tensorflow as tf

from keras_bertfam.layers.data.best_fit import best_fit
from keras_bertfam.types import TFRagged, TFTensor

# What a row holds, in shares of the inputs' or targets' length, whichever is greater.
_WHOLE = 1 << 16


def pack_together(
    sequences: dict[str, dict[str, TFRagged]],
    row_lengths: dict[str, int],
    pad_token_id: int = 0,
    row: TFTensor | None = None,
) -> dict[str, TFTensor]:
    """Pack the sequences of a batch with two sides into rows, best fit.

    Both sides of a sequence are in the same row, each with others' of its side; see
    `PackSequences`. Works in a graph.

    Args:
        sequences: dict from the names of sides, such as `"encoder"`, to dicts of
            ragged tensors `(batch, None)` of equal row lengths.
        row_lengths: dict from the names of sides to ints, the tokens of a row.
        pad_token_id: int. What fills parts whose names end with `"_ids"`; all else is
            filled with 0. Defaults to `0`.
        row: int32 tensor `(batch,)`: the row of each, from 0 on, all of which there
            are, where that is known. Defaults to `None`.

    Returns:
        A dict of tensors `(rows, row length)`: the parts of both sides, and of each
        `..._sequence_ids`, int32: 1, 2, ... and 0 at padding.

    Raises:
        tf.errors.InvalidArgumentError: for what is longer than a row.
    """
    # Example: inputs [11 12] [13] [14 15], targets [21] [22 23] [24], rows of 4 and 3:
    # encoder ids       11 12 14 15 | 13  0  0  0
    # its sequence ids   1  1  2  2 |  1  0  0  0
    # decoder ids       21 24  0    | 22 23  0
    # its sequence ids   1  2  0    |  1  1  0
    lengths = {
        side: tf.cast(next(iter(parts.values())).row_lengths(), tf.int32)
        for side, parts in sequences.items()
    }
    if row is None:
        row = _best_rows(lengths, row_lengths)
    count = tf.reduce_max(tf.concat([row + 1, [0]], 0))
    order = tf.argsort(row, stable=True)
    row = tf.gather(row, order)
    begins = tf.searchsorted(row, tf.range(count))
    number = tf.range(1, tf.size(row) + 1) - tf.gather(begins, row)
    rows = {}
    for side, parts in sequences.items():
        sizes = tf.gather(lengths[side], order)
        totals = tf.math.unsorted_segment_sum(sizes, row, count)
        length = row_lengths[side]
        longest = tf.reduce_max(tf.concat([totals, [0]], 0))
        message = f"The {side}'s part of a row must have {length} tokens at most."
        tf.debugging.Assert(longest <= length, [message, "Received:", longest])
        numbers = tf.repeat(number, sizes)
        rows[f"{side}_sequence_ids"] = _laid_out(numbers, totals, length, 0)
        for name, x in parts.items():
            fill = pad_token_id if name.endswith("_ids") else 0
            values = tf.gather(x, order).flat_values
            rows[name] = _laid_out(values, totals, length, fill)
    return rows


def _best_rows(lengths, row_lengths):
    """Choose a row for each sequence, so that all of them fit."""
    shares = [
        -(-tf.cast(lengths[side], tf.int64) * _WHOLE // row_length)
        for side, row_length in row_lengths.items()
    ]
    cost = tf.cast(tf.maximum(tf.reduce_max(tf.stack(shares), 0), 1), tf.int32)
    tf.debugging.Assert(
        tf.reduce_all(cost <= _WHOLE),
        [
            f"Sequences must fit into rows of {row_lengths} tokens. Received one of:",
            tf.stack([tf.reduce_max(x) for x in lengths.values()]),
        ],
    )
    return best_fit(cost, _WHOLE)[0]


def _laid_out(values, totals, length, fill):
    """Lay the tokens of rows out as a tensor `(rows, length)`."""
    ragged = tf.RaggedTensor.from_row_lengths(values, totals, validate=False)
    dense = ragged.to_tensor(tf.cast(fill, values.dtype), shape=[None, length])
    return tf.ensure_shape(dense, [None, length])
