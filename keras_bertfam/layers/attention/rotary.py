"""Positions as rotations of queries and keys."""

import numpy as np
from keras import ops

from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.types import Tensor


def rotary_positions(
    position_ids: Tensor, head_dim: int, base: float
) -> tuple[Tensor, Tensor]:
    """Compute cosines and sines of the angles by which heads are rotated.

    The pair of dimensions `k` and `k + head_dim / 2` is rotated by
    `position * base ** (-2 k / head_dim)`.

    Args:
        position_ids: int tensor `(rows, length)`.
        head_dim: int. Even width of a head.
        base: float.

    Returns:
        A tuple of two float32 tensors `(rows, length, head_dim // 2)`.

    Reference: [Su et al., 2021](https://arxiv.org/abs/2104.09864), section 3.2.
    """
    speeds = base ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = ops.expand_dims(ops.cast(position_ids, "float32"), -1)
    angles = angles * ops.convert_to_tensor(speeds.astype("float32"))
    return ops.cos(angles), ops.sin(angles)


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate queries or keys by their positions, in float32.

    Args:
        x: float tensor `(batch, length, num_heads, head_dim)`.
        rotary: what `rotary_positions` gives for the same tokens.

    Returns:
        Float tensor of the shape and dtype of `x`.
    """
    cos, sin = (ops.expand_dims(ops.cast(part, "float32"), 2) for part in rotary)
    half = x.shape[-1] // 2
    first, second = (
        ops.cast(part, "float32") for part in (x[..., :half], x[..., half:])
    )
    rotated = (first * cos - second * sin, second * cos + first * sin)
    return ops.cast(ops.concatenate(rotated, axis=-1), x.dtype)


def rotary_at(
    rotary: tuple[Tensor, Tensor], positions: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Take the cosines and sines at some tokens of each row.

    Args:
        rotary: what `rotary_positions` gives.
        positions: int tensor `(batch, count)`, or `None` for all.
    """
    if positions is None:
        return rotary
    cos, sin = (
        ops.take(part[0], ops.cast(positions, "int32"), axis=0)
        if part.shape[0] == 1
        else take_positions(part, positions)
        for part in rotary
    )
    return cos, sin
