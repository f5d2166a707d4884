"""Windows of attention that are computed in blocks, and global tokens."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_bertfam.layers.attention.masks import causal_mask, hiding
from keras_bertfam.types import Tensor


def fold(x: Tensor, dilation: int) -> Tensor:
    """Split each row into `dilation` rows, of every `dilation`-th token each.

    Args:
        x: tensor `(rows, length, ...)`. Zeros are added if `dilation` doesn't divide
            the length.
        dilation: int.

    Returns:
        Tensor `(rows * dilation, ceil(length / dilation), ...)`.
    """
    # Example: the row 1 2 3 4 5 and a dilation of 2 give the rows 1 3 5 and 2 4 0.
    if dilation == 1:
        return x
    x = _padded(x, 0, _missing(ops.shape(x)[1], dilation))
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
    x = _padded(x, 0, _missing(ops.shape(x)[1], size))
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
    # Example: the row 1 2 3 4 5 and blocks of 2 give
    #   0 0 1 2 3 4
    #   1 2 3 4 5 0
    #   3 4 5 0 0 0
    blocks = blocks_of(_padded(x, size, size), size)
    count = (ops.shape(x)[1] + size - 1) // size
    parts = [blocks[:, k : count + k] for k in range(3)]
    return ops.concatenate(parts, axis=2)


def join_rows(x: Tensor) -> Tensor:
    """Join the first two axes: `(rows, blocks, ...)` becomes `(rows * blocks, ...)`."""
    rows, count, *rest = ops.shape(x)
    return ops.reshape(x, (rows * count, *rest))


def for_each_block(x: Tensor, count: int | Tensor) -> Tensor:
    """Repeat each row's entry once for each of its blocks.

    Args:
        x: tensor `(rows, ...)`.
        count: int, the number of blocks of a row.

    Returns:
        Tensor `(rows * count, ...)`.
    """
    rows, *rest = ops.shape(x)
    x = ops.broadcast_to(ops.expand_dims(x, 1), (rows, count, *rest))
    return ops.reshape(x, (rows * count, *rest))


def _missing(length, size):
    """Count the tokens that are missing to the next multiple of `size`."""
    # Not `-length % size`: in ONNX files quotients of negative numbers are rounded up.
    return (size - length % size) % size


def _padded(x, before, after):
    if isinstance(after, int) and not before and not after:
        return x
    pads: Sequence = [[0, 0], [before, after], *([0, 0] for _ in x.shape[2:])]
    return ops.pad(x, pads)


# Rows longer than this many windows are cut into blocks; of others all scores are
# computed.
_WINDOWS = 2


def uses_blocks(length: Any, window: int, dilations: Sequence[int]) -> bool:
    """Tell whether rows are so long that blocks of them cost less than all scores."""
    if not window:
        return False
    return not isinstance(length, int) or length > _WINDOWS * window * max(dilations)


def neighbours_in_rows(
    length: int | Tensor,
    window: int,
    dilation: Sequence[int],
    dtype: str,
    padding_mask: Tensor | None = None,
    sequence_ids: Tensor | None = None,
    global_tokens: dict[str, Tensor] | None = None,
    causal: bool = False,
) -> Tensor:
    """Make a float mask that is added to all scores of rows: 0 where a key is seen.

    Args:
        length: int, the number of tokens of a row.
        window: int; 0 for all tokens.
        dilation: sequence of ints, one for each head.
        dtype: dtype of the result.
        padding_mask: bool tensor `(batch, length)`, or `None`.
        sequence_ids: int tensor `(batch, length)`, or `None`.
        global_tokens: dict of tensors, see `tokens_at`, or `None`.
        causal: bool. Whether a token sees only itself and the tokens before it.

    Returns:
        Float tensor `(batch or 1, num_heads or 1, length, length)`.
    """
    # Example: five tokens, a window of 2 and a dilation of 2. Seen are (1 is 0, and 0 a
    # large negative number in the result)
    #   1 0 1 0 0
    #   0 1 0 1 0
    #   1 0 1 0 1
    #   0 1 0 1 0
    #   0 0 1 0 1
    places = ops.arange(length, dtype="int32")
    apart = ops.abs(ops.expand_dims(places, 1) - ops.expand_dims(places, 0))
    # Without a window no token is left out.
    steps = dilation if window else (1,)
    steps = steps if len({*steps}) > 1 else steps[:1]
    near = [_near(apart, window // 2 if window else length, step) for step in steps]
    seen = ops.stack(near)
    if causal:
        seen = ops.logical_and(seen, causal_mask(length, length))
    seen = ops.expand_dims(seen, 0)
    if global_tokens is not None:
        here = ops.expand_dims(global_tokens["here"], (1, 2))
        seen = ops.logical_or(seen, here)
    if padding_mask is not None:
        seen = ops.logical_and(seen, ops.expand_dims(padding_mask, (1, 2)))
    if sequence_ids is not None:
        pair = [ops.expand_dims(sequence_ids, axis) for axis in ((1, 3), (1, 2))]
        seen = ops.logical_and(seen, ops.equal(*pair))
    return hiding(seen, dtype)


def _near(apart, size, step):
    near = apart <= size * step
    if step == 1:
        return near
    return ops.logical_and(near, ops.equal(apart % step, 0))


def neighbours_in_blocks(
    rows: int | Tensor,
    length: int | Tensor,
    size: int,
    step: int,
    dtype: str,
    padding_mask: Tensor | None = None,
    sequence_ids: Tensor | None = None,
    global_tokens: dict[str, Tensor] | None = None,
    causal: bool = False,
) -> Tensor:
    """Make a float mask for blocks that attend to themselves and the blocks beside.

    Args:
        rows: int, the number of rows of the batch.
        length: int, the number of tokens of a row.
        size: int. Tokens of a block; a token sees as many on each side.
        step: int, the dilation.
        dtype: dtype of the result.
        padding_mask: bool tensor `(batch, length)`, or `None`.
        sequence_ids: int tensor `(batch, length)`, or `None`.
        global_tokens: dict of tensors, see `tokens_at`, or `None`. Each block gets them
            as `count` more keys, and hides them among its own.
        causal: bool. Whether a token sees only itself and the tokens before it.

    Returns:
        Float tensor `(batch * step * blocks, 1, size, 3 * size)`; with global tokens
        the last axis has `3 * size + count`.
    """
    # Example: rows of five tokens and blocks of 2. The keys of the first block are
    # 0 0 1 2 3 4 (0 is none), and its two queries, 1 and 2, see
    #   0 0 1 1 1 0
    #   0 0 1 1 1 1
    there = ops.ones((rows, length), "bool")
    if padding_mask is not None:
        there = ops.logical_and(there, padding_mask)
    if global_tokens is not None:
        there = ops.logical_and(there, ops.logical_not(global_tokens["here"]))
    # int32, not bool: not every backend can pad bools.
    keys = around_blocks(fold(ops.cast(there, "int32"), step), size)
    near = ops.arange(3 * size, dtype="int32") - ops.expand_dims(
        ops.arange(size, dtype="int32"), 1
    )
    near = ops.logical_and(near >= 0, near <= (1 if causal else 2) * size)
    seen = ops.logical_and(ops.expand_dims(keys > 0, 2), near)
    own = None
    if sequence_ids is not None:
        folded = fold(ops.cast(sequence_ids, "int32"), step)
        own = blocks_of(folded, size)
        theirs = around_blocks(folded, size)
        same = ops.equal(ops.expand_dims(own, 3), ops.expand_dims(theirs, 2))
        seen = ops.logical_and(seen, same)
    if global_tokens is not None:
        beside = _beside(global_tokens, sequence_ids, own, step, ops.shape(seen))
        seen = ops.concatenate([seen, beside], axis=-1)
    return hiding(ops.expand_dims(join_rows(seen), 1), dtype)


def _beside(tokens, sequence_ids, own, step, shape):
    """Tell which global tokens queries see: `(batch * step, blocks, size, count)`."""
    rows, count, size = shape[:3]
    seen = ops.expand_dims(for_each_block(tokens["valid"], step), (1, 2))
    slots = ops.shape(tokens["valid"])[1]
    seen = ops.broadcast_to(seen, (rows, count, size, slots))
    if own is None:
        return seen
    ids = ops.cast(sequence_ids, "int32")
    ids = ops.take_along_axis(ids, tokens["positions"], axis=1)
    ids = ops.expand_dims(for_each_block(ids, step), (1, 2))
    return ops.logical_and(seen, ops.equal(ops.expand_dims(own, 3), ids))


def tokens_at(
    positions: Tensor, length: int | Tensor, padding_mask: Tensor | None = None
) -> dict[str, Tensor]:
    """Describe global tokens that are given by their positions.

    Args:
        positions: int tensor `(batch, count)`; -1 for an empty slot. A position of
            padding, or one that the row has already, leaves its slot empty.
        length: int, the number of tokens of a row.
        padding_mask: bool tensor `(batch, length)`, or `None`.

    Returns:
        Dict of four tensors. Of shape `(batch, count)`: `positions`, int, and `valid`,
        bool and false for an empty slot. Of shape `(batch, length)`: `here`, bool,
        which tokens are global; and `slots`, int, the slot of each of these.
    """
    # Example: positions 0, 3, 3 in rows of five tokens: `positions` 0 3 0, `valid`
    # 1 1 0, `here` 1 0 0 1 0 and `slots` 0 0 0 1 0.
    positions = ops.cast(positions, "int32")
    count = ops.shape(positions)[1]
    twice = ops.equal(ops.expand_dims(positions, 2), ops.expand_dims(positions, 1))
    twice = ops.any(ops.logical_and(twice, ops.tri(count, k=-1) > 0), axis=2)
    valid = ops.logical_and(positions >= 0, ops.logical_not(twice))
    if padding_mask is not None:
        there = ops.take_along_axis(padding_mask, ops.maximum(positions, 0), axis=1)
        valid = ops.logical_and(valid, there)
    positions = ops.where(valid, positions, -1)
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
        most: int. Number of slots; a row's further global tokens have none.

    Returns:
        What `tokens_at` gives.
    """
    # Example: a mask 1 0 0 1 0 and 3 slots: `positions` 0 3 0, `valid` 1 1 0, `here`
    # 1 0 0 1 0 and `slots` 0 0 0 1 1. Slots of other tokens mean nothing.
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
    """Turn the states of rows with more than `most` global tokens into NaN.

    NaN shows the error, because compiled code can't raise one.
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
    """Make a float mask for the queries of global tokens.

    Returns:
        Float tensor `(batch, 1, count, length)`: 0 for keys that aren't padding and
        are of the global token's sequence.
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
