"""Batches of rows that whole examples share, of one shape."""

import tensorflow as tf

from keras_bertfam.layers.data.best_fit import PackSequences, best_fit
from keras_bertfam.layers.data.seeding import shuffle
from keras_bertfam.types import TFDataset, TFTensor

_SHUFFLED_ROWS = 1024


def rows_for(
    count: int, lengths: TFTensor, row_length: int, max_sequences: int | None
) -> int:
    """How many rows hold about so many sequences, at least one.

    Args:
        count: int. Sequences.
        lengths: int tensor of shape `(n,)`, of a sample of them.
        row_length: int.
        max_sequences: int or `None`. The most sequences in a row.

    Returns:
        An int.
    """
    *_, rows = best_fit(
        tf.cast(lengths, tf.int32), row_length, max_sequences=max_sequences
    )
    return max(1, round(count * int(tf.size(rows)) / int(tf.size(lengths))))


def packed_batches(
    sequences: TFDataset, packing: PackSequences, batch_size: int, seed: TFTensor
) -> TFDataset:
    """Packs sequences and batches the rows, in random order.

    Args:
        sequences: `tf.data.Dataset` that `PackSequences` takes.
        packing: `PackSequences`.
        batch_size: int. Rows; empty ones fill up the last batch.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A `tf.data.Dataset` of dicts as `packing` gives, with a batch axis.
    """
    rows = shuffle(sequences.apply(packing), _SHUFFLED_ROWS, seed)
    blanks = {"token_ids": packing.pad_token_id}

    def filled_up(name, x):
        count = tf.shape(x)[0]
        blank = tf.cast(blanks.get(name, 0), x.dtype)
        rest = tf.fill(tf.concat([[batch_size - count], tf.shape(x)[1:]], 0), blank)
        return tf.ensure_shape(tf.concat([x, rest], 0), [batch_size, *x.shape[1:]])

    return rows.batch(batch_size).map(
        lambda batch: {name: filled_up(name, x) for name, x in batch.items()}
    )
