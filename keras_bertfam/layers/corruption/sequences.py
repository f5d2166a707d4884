"""Rows of several sequences, with room between them."""

import tensorflow as tf

from keras_bertfam.types import TFTensor


def count_borders(sequence_ids: TFTensor) -> TFTensor:
    """How many times another sequence has begun up to each token, the first left out.

    Args:
        sequence_ids: int32 tensor of shape `(batch, length)`.

    Returns:
        An int32 tensor of that shape.
    """
    changes = sequence_ids[:, 1:] != sequence_ids[:, :-1]
    return tf.cumsum(tf.pad(tf.cast(changes, tf.int32), [[0, 0], [1, 0]]), axis=1)


def set_apart(values: TFTensor, borders: TFTensor, fill: int) -> TFTensor:
    """Puts `fill` between the sequences of rows, and at their ends.

    Args:
        values: int32 tensor of shape `(batch, length)`.
        borders: what `count_borders` gives: how far each token moves.
        fill: int.

    Returns:
        An int32 tensor of shape `(batch, length + most borders of a row)`.
    """
    rows, length = tf.unstack(tf.shape(values))
    width = length + tf.maximum(tf.reduce_max(borders), 0)
    place = tf.range(rows)[:, None] * width + tf.range(length) + borders
    # Faster than a scatter.
    apart = tf.math.unsorted_segment_sum(
        tf.reshape(values - fill, [-1]), tf.reshape(place, [-1]), rows * width
    )
    return tf.reshape(apart, [rows, width]) + fill
