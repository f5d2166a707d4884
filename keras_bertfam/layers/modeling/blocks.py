"""Rows as blocks, each beside the blocks around it, for attention within a window."""

from collections.abc import Sequence

from keras import ops

from keras_bertfam.types import Tensor


def fold(x: Tensor, dilation: int) -> Tensor:
    """Make every `dilation`-th token of a row a row of its own.

    Args:
        x: tensor `(rows, length, ...)`, padded with zeros as needed.
        dilation: int.

    Returns:
        Tensor `(rows * dilation, ceil(length / dilation), ...)`.
    """
    if dilation == 1:
        return x
    x = _padded(x, 0, -ops.shape(x)[1] % dilation)
    rows, length, *rest = ops.shape(x)
    x = ops.reshape(x, (rows, length // dilation, dilation, *rest))
    return ops.reshape(ops.swapaxes(x, 1, 2), (-1, length // dilation, *rest))


def unfold(x: Tensor, dilation: int, length: int | Tensor) -> Tensor:
    """Undo `fold`, for rows of `length` tokens."""
    if dilation == 1:
        return x
    folded, size, *rest = ops.shape(x)
    x = ops.reshape(x, (folded // dilation, dilation, size, *rest))
    x = ops.reshape(ops.swapaxes(x, 1, 2), (-1, size * dilation, *rest))
    return x[:, :length]


def blocks_of(x: Tensor, size: int) -> Tensor:
    """Cut rows into blocks of `size` tokens, the last one padded with zeros.

    Args:
        x: tensor `(rows, length, ...)`.
        size: int.

    Returns:
        Tensor `(rows, ceil(length / size), size, ...)`.
    """
    x = _padded(x, 0, -ops.shape(x)[1] % size)
    rows, length, *rest = ops.shape(x)
    return ops.reshape(x, (rows, length // size, size, *rest))


def around_blocks(x: Tensor, size: int) -> Tensor:
    """Cut rows into blocks, each with the blocks before and after it.

    Args:
        x: tensor `(rows, length, ...)`.
        size: int.

    Returns:
        Tensor `(rows, ceil(length / size), 3 * size, ...)`; zeros beyond both ends.
    """
    blocks = blocks_of(_padded(x, size, size), size)
    count = -(-ops.shape(x)[1] // size)
    parts = [blocks[:, k : count + k] for k in range(3)]
    return ops.concatenate(parts, axis=2)


def join_rows(x: Tensor) -> Tensor:
    """Put the blocks of all rows along one axis: `(rows * blocks, ...)`."""
    rows, count, *rest = ops.shape(x)
    return ops.reshape(x, (rows * count, *rest))


def for_each_block(x: Tensor, count: int | Tensor) -> Tensor:
    """Repeat what all blocks of a row have, once for each.

    Args:
        x: tensor `(rows, ...)`.
        count: int, the blocks of a row.

    Returns:
        Tensor `(rows * count, ...)`.
    """
    rows, *rest = ops.shape(x)
    x = ops.broadcast_to(ops.expand_dims(x, 1), (rows, count, *rest))
    return ops.reshape(x, (rows * count, *rest))


def _padded(x, before, after):
    if isinstance(after, int) and not before and not after:
        return x
    pads: Sequence = [[0, 0], [before, after], *([0, 0] for _ in x.shape[2:])]
    return ops.pad(x, pads)
