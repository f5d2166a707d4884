"""Tokens that see all tokens, and that all tokens see."""

from keras import ops

from keras_bertfam.layers.attention.masks import hiding
from keras_bertfam.types import Tensor


def tokens_at(positions: Tensor, length: int | Tensor) -> dict[str, Tensor]:
    """Describe global tokens that are given by their positions.

    Args:
        positions: int tensor `(batch, count)`; -1 for none.
        length: int, the tokens of a row.

    Returns:
        Dict of `positions` int and `valid` bool, `(batch, count)`, the slots of global
        tokens, and of `here` bool and `slots` int, `(batch, length)`: which tokens are
        global, and the slot of each.
    """
    positions = ops.cast(positions, "int32")
    valid = positions >= 0
    places = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    equal = ops.equal(ops.expand_dims(positions, 1), ops.expand_dims(places, -1))
    return {
        "positions": ops.maximum(positions, 0),
        "valid": valid,
        "here": ops.any(equal, axis=-1),
        "slots": ops.cast(ops.argmax(ops.cast(equal, "int32"), axis=-1), "int32"),
    }


def tokens_of_mask(mask: Tensor, most: int) -> dict[str, Tensor]:
    """Describe global tokens that are given by a mask.

    Args:
        mask: bool tensor `(batch, length)`.
        most: int. The first so many of a row have slots.

    Returns:
        What `tokens_at` gives.
    """
    length = ops.shape(mask)[1]
    places = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    order = ops.sort(ops.where(mask, places, length), axis=1)[:, :most]
    valid = order < length
    number = ops.cumsum(ops.cast(mask, "int32"), axis=1) - 1
    return {
        "positions": ops.where(valid, order, 0),
        "valid": valid,
        "here": mask,
        "slots": ops.clip(number, 0, ops.shape(order)[1] - 1),
    }


def with_nan_for_too_many(x: Tensor, mask: Tensor, most: int) -> Tensor:
    """Make the states of rows with more than `most` global tokens NaN.

    What is compiled can't raise an error.
    """
    count = ops.sum(ops.cast(mask, "int32"), axis=1)
    added = ops.where(count > most, float("nan"), 0.0)
    return x + ops.cast(ops.expand_dims(added, (1, 2)), x.dtype)


def keys_seen_by(
    tokens: dict[str, Tensor],
    dtype: str,
    padding_mask: Tensor | None = None,
    sequence_ids: Tensor | None = None,
) -> Tensor:
    """Make what is added to the scores of global tokens.

    Returns:
        Float tensor `(batch, 1, count, length)`: 0 at tokens that aren't padding, of
        the same sequence.
    """
    here = ops.expand_dims(tokens["here"], 1)
    seen = ops.ones_like(here)
    if padding_mask is not None:
        seen = ops.expand_dims(padding_mask, 1)
    if sequence_ids is not None:
        own = ops.take_along_axis(sequence_ids, tokens["positions"], axis=1)
        same = ops.equal(ops.expand_dims(own, 2), ops.expand_dims(sequence_ids, 1))
        seen = ops.logical_and(seen, same)
    return hiding(seen, dtype)
