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
    same = ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :])
    earlier = ops.cumsum(ops.cast(same, "int32"), axis=-1)
    positions = ops.diagonal(earlier, axis1=1, axis2=2) - 1
    if padding_mask is not None:
        same = ops.logical_and(same, padding_mask[:, None, :])
    return same, positions
