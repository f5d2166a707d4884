"""Masks between XLNet's content stream, query stream and memory."""

from collections.abc import Sequence

from keras import ops

from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.types import Tensor


def arrange_two_streams(
    inputs: dict[str, Tensor], causal: bool = False
) -> dict[str, Tensor]:
    """Turn inputs of `XLNetBackbone` into arguments of `RelativeTransformerStack`.

    Args:
        inputs: dict of tensors, see `XLNetBackbone`.
        causal: bool. Whether tokens see earlier ones only.

    Returns:
        Dict of call arguments: `positions`, `attention_mask`, `other_segment`,
        `memory` and `reversed_rows`, each a tensor or `None`.
    """
    positions = inputs.get("mask_positions")
    if inputs.get("target_mapping") is not None:
        positions = ops.argmax(inputs["target_mapping"], axis=-1)
    if positions is not None:
        positions = ops.cast(positions, "int32")
    memory, memory_mask = inputs.get("memory"), inputs.get("memory_mask")
    if memory is not None and memory_mask is None:
        memory_mask = ops.ones_like(memory[0][:, :, 0], dtype="bool")
    other_segment = None
    if inputs.get("segment_ids") is not None:
        length = 0 if memory is None else ops.shape(memory[0])[1]
        other_segment = other_segments(inputs["segment_ids"], positions, length)
    return {
        "positions": positions,
        "attention_mask": visible_keys(
            inputs["token_ids"],
            positions=positions,
            perm_ranks=inputs.get("perm_ranks"),
            perm_mask=inputs.get("perm_mask"),
            padding_mask=inputs.get("padding_mask"),
            causal=causal,
            memory_mask=memory_mask,
        ),
        "other_segment": other_segment,
        "memory": memory,
        "reversed_rows": inputs.get("reversed_rows"),
    }


def _at(values, positions):
    """Take values of shape `(batch, length)` at positions `(batch, count)`."""
    return take_positions(ops.expand_dims(values, -1), positions)[..., 0]


def visible_keys(
    token_ids: Tensor,
    positions: Tensor | None = None,
    perm_ranks: Tensor | None = None,
    perm_mask: Tensor | None = None,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    memory_mask: Tensor | None = None,
) -> Tensor:
    """Make the attention mask of content and query stream over memory and tokens.

    Args:
        token_ids: int tensor `(batch, length)`.
        positions: int tensor `(batch, count)`, the positions of the query stream's
            states, or `None`.
        perm_ranks, perm_mask, padding_mask: see the inputs of `XLNetBackbone`.
        causal: bool. Whether tokens see earlier ones only.
        memory_mask: bool tensor `(batch, memory_length)`, or `None` without
            memory.

    Returns:
        Bool tensor `(batch, length + count or 1, memory_length + length)`, true
        where a key may be attended to; `None` if all may.
    """
    # Example: three tokens with the ranks 1 0 -1, and a query at position 0. The rows
    # are the three tokens, which see themselves, and then the query, which doesn't see
    # its own token:
    #   1 1 1
    #   0 1 1
    #   0 0 1
    #   0 1 1
    index = ops.arange(ops.shape(token_ids)[1], dtype="int32")
    masks = []
    if perm_ranks is not None:
        ranks = ops.cast(perm_ranks, "int32")
        keys = ops.expand_dims(ranks, 1)
        content = ops.expand_dims(ranks, 2) >= keys
        if positions is not None:
            query = ops.expand_dims(_at(ranks, positions), 2) > keys
        masks.append(content)
    elif perm_mask is not None:
        allowed = ops.equal(ops.cast(perm_mask, "int32"), 0)
        itself = index[:, None] == index
        masks.append(ops.logical_or(allowed, itself))
        if positions is not None:
            query = take_positions(allowed, positions)
    if positions is not None:
        masks = [ops.concatenate([masks[0], query], axis=1)]
    if causal:
        rows = ops.broadcast_to(index, ops.shape(token_ids))
        if positions is not None:
            rows = ops.concatenate([rows, ops.cast(positions, "int32")], axis=1)
        masks.append(ops.expand_dims(rows, 2) >= index)
    if padding_mask is not None:
        masks.append(ops.expand_dims(ops.cast(padding_mask, "bool"), 1))
    if memory_mask is not None:
        if not masks:
            masks.append(ops.ones_like(ops.expand_dims(token_ids, 1), dtype="bool"))
        remembered = ops.expand_dims(ops.cast(memory_mask, "bool"), 1)
        # Broadcast the memory's mask to the rows of the tokens' mask.
        rows = ops.ones_like(_all(masks)[:, :, :1])
        remembered = ops.logical_and(remembered, rows)
        return ops.concatenate([remembered, _all(masks)], axis=-1)
    return _all(masks) if masks else None


def _all(masks):
    first, *rest = masks
    for mask in rest:
        first = ops.logical_and(first, mask)
    return first


def other_segments(
    segment_ids: Tensor,
    positions: Tensor | None = None,
    memory_length: int | Tensor = 0,
) -> Tensor:
    """Tell where queries and keys are of different segments; memory is of segment 0.

    Returns:
        Bool tensor `(batch, length + count, memory_length + length)`.
    """
    keys = rows = ops.cast(segment_ids, "int32")
    if positions is not None:
        rows = ops.concatenate([rows, _at(rows, positions)], axis=1)
    if not (isinstance(memory_length, int) and memory_length == 0):
        keys = ops.pad(keys, [[0, 0], [memory_length, 0]])
    return ops.not_equal(ops.expand_dims(rows, 2), ops.expand_dims(keys, 1))


def check_memory(memory: Sequence[Tensor], num_layers: int, token_ids: Tensor) -> None:
    """Raise a `ValueError` if a memory's number of layers or rows is wrong.

    Args:
        memory: a float tensor `(batch, length_before, width)` for each layer.
        num_layers: int.
        token_ids: int tensor `(batch, length)`.
    """
    if len(memory) not in (0, num_layers):
        raise ValueError(
            f"`memory` must be a list of num_layers={num_layers} tensors. "
            f"Received: {len(memory)}."
        )
    rows = token_ids.shape[0]
    for state in memory[:1]:
        if None not in (rows, state.shape[0]) and state.shape[0] != rows:
            raise ValueError(
                f"`memory` must have a row for each of the {rows} of `token_ids`. "
                f"Received: shape={tuple(state.shape)}."
            )


def extend_memory(
    memory: Sequence[Tensor] | None,
    states: Sequence[Tensor],
    memory_length: int | Tensor,
    reuse_length: int | Tensor | None = None,
) -> list[Tensor]:
    """Append the states of new tokens to each layer's memory, and keep the last ones.

    Args:
        memory: a float tensor `(batch, length_before, width)` for each layer, or
            `None`.
        states: a float tensor `(batch, length, width)` for each layer: its inputs.
        memory_length: int. The most states to keep.
        reuse_length: int or `None`. How many tokens, from the first, go into the
            memory; `None` for all.

    Returns:
        List of float tensors, without gradient.
    """
    # Example: a memory of the tokens 1 2 3, states of 4 5 6, a reuse length of 2 and a
    # memory length of 4 give the states of 2 3 4 5.
    if reuse_length is not None:
        states = [state[:, :reuse_length] for state in states]
    if memory:
        states = [
            ops.concatenate([ops.cast(before, state.dtype), state], axis=1)
            for before, state in zip(memory, states, strict=True)
        ]
    return [ops.stop_gradient(state[:, -memory_length:]) for state in states]
