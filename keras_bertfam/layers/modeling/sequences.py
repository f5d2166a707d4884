"""Rows that hold several sequences."""

from keras import ops

from keras_bertfam.types import Tensor


def separate_sequences(
    sequence_ids: Tensor, padding_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention mask and positions of rows that hold several sequences.

    Returns:
        A bool tensor `(batch, length, length)`, true within a sequence, and an
        int tensor `(batch, length)` that counts from 0 in each sequence.
    """
    rows, keys = (ops.expand_dims(sequence_ids, axis) for axis in (2, 1))
    same = ops.equal(rows, keys)
    earlier = ops.cumsum(ops.cast(same, "int32"), axis=-1)
    positions = ops.diagonal(earlier, axis1=1, axis2=2) - 1
    if padding_mask is not None:
        same = ops.logical_and(same, ops.expand_dims(padding_mask, 1))
    return same, positions
