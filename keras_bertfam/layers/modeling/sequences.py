"""Rows that hold several sequences."""

from keras import ops

from keras_bertfam.types import Tensor


def same_sequence(sequence_ids: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Make the attention mask of rows that hold several sequences.

    Returns:
        A bool tensor `(batch, length, length)`, true within a sequence.
    """
    rows, keys = (ops.expand_dims(sequence_ids, axis) for axis in (2, 1))
    same = ops.equal(rows, keys)
    if padding_mask is not None:
        same = ops.logical_and(same, ops.expand_dims(padding_mask, 1))
    return same


def positions_without_padding(
    padding_mask: Tensor, restarted: Tensor | None = None
) -> Tensor:
    """Count each token's position among those that are no padding, as fairseq does.

    Args:
        padding_mask: bool tensor `(batch, length)`, 1 = keep.
        restarted: int tensor `(batch, length)`, `restarted_positions` of rows that
            hold several sequences, or `None`.

    Returns:
        An int tensor `(batch, length)` that counts from 0 in each sequence; -1 for
        padding.
    """
    kept = ops.cast(padding_mask, "int32")
    number = ops.cumsum(kept, axis=1)
    if restarted is not None:
        index = ops.arange(ops.shape(kept)[1], dtype="int32")
        number -= ops.take_along_axis(number - kept, index - restarted, axis=1)
    return number * kept - 1


def numbers_of(sequence_ids: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Number what tokens see, in rows that hold several sequences.

    Args:
        sequence_ids: int tensor `(batch, length)`.
        padding_mask: bool tensor `(batch, length)`, or `None`.

    Returns:
        int32 tensor `(batch, length)`; tokens see those of the same number. Padding
        sees padding, which nothing reads.
    """
    numbers = ops.cast(sequence_ids, "int32")
    if padding_mask is None:
        return numbers
    return ops.where(padding_mask, numbers, ops.full_like(numbers, -1))


def restarted_positions(sequence_ids: Tensor) -> Tensor:
    """Count each token's position in its sequence, from the sequence's first token.

    Sorting brings the first tokens together, which costs less than to count
    equal ids of pairs.

    Returns:
        An int tensor `(batch, length)` that counts from 0 in each sequence.
    """
    index = ops.arange(ops.shape(sequence_ids)[1], dtype="int32")
    begins = ops.not_equal(sequence_ids[:, 1:], sequence_ids[:, :-1])
    begins = ops.pad(begins, [[0, 0], [1, 0]], constant_values=True)
    starts = ops.sort(ops.where(begins, index, ops.shape(sequence_ids)[1]), axis=1)
    number = ops.cumsum(ops.cast(begins, "int32"), axis=1) - 1
    return index - ops.take_along_axis(starts, number, axis=1)
