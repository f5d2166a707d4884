"""Batches of rows that whole examples share, of one shape."""

import tensorflow as tf

from keras_bertfam.layers.data.best_fit import PackSequences, best_fit
from keras_bertfam.layers.data.seeding import shuffle
from keras_bertfam.types import TFDataset, TFTensor

_SHUFFLED_ROWS = 1024


def rows_for(
    count: int, lengths: TFTensor, row_length: int, max_sequences: int | None
) -> int:
    """Estimate how many rows hold so many sequences, at least one.

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
    """Pack sequences and batch the rows, in random order.

    Args:
        sequences: `tf.data.Dataset` that `PackSequences` takes.
        packing: `PackSequences`.
        batch_size: int. Rows; empty ones fill up the last batch.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A `tf.data.Dataset` of dicts as `packing` gives, with a batch axis.
    """
    rows = shuffle(sequences.apply(packing), _SHUFFLED_ROWS, seed)
    return rows.batch(batch_size).map(
        lambda batch: fill_up(batch, batch_size, packing.pad_token_id)
    )


def fill_up(
    batch: dict[str, TFTensor], batch_size: int, pad_token_id: int
) -> dict[str, TFTensor]:
    """Fill a batch up with empty rows: ids of padding, and all else 0.

    Args:
        batch: dict of tensors `(up to batch_size, ...)`.
        batch_size: int.
        pad_token_id: int. What parts are filled with whose names end with
            `"token_ids"` or `"target_ids"`.

    Returns:
        A dict of tensors `(batch_size, ...)`.
    """

    def filled_up(name, x):
        ids = name.endswith(("token_ids", "target_ids"))
        blank = tf.cast(pad_token_id if ids else 0, x.dtype)
        missing = batch_size - tf.shape(x)[0]
        rest = tf.fill(tf.concat([[missing], tf.shape(x)[1:]], 0), blank)
        return tf.ensure_shape(tf.concat([x, rest], 0), [batch_size, *x.shape[1:]])

    return {name: filled_up(name, x) for name, x in batch.items()}
