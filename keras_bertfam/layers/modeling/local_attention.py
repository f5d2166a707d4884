"""Self-attention within a window, and to and from global tokens."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.modeling import blocks
from keras_bertfam.layers.modeling.attention import SelfAttention
from keras_bertfam.layers.modeling.attention_kernels import kernel_for, knows_patterns
from keras_bertfam.layers.modeling.dense import take_positions
from keras_bertfam.layers.modeling.global_tokens import keys_seen_by
from keras_bertfam.layers.modeling.neighbours import (
    as_dilations,
    check_window,
    neighbours_in_blocks,
    neighbours_in_rows,
    pays,
)
from keras_bertfam.layers.modeling.sequences import numbers_of
from keras_bertfam.types import Config, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LocalSelfAttention(SelfAttention):
    """Multi-head self-attention of each token to those near it.

    Time and memory grow with length times window: rows are cut into blocks of half a
    window, which attend to themselves and the blocks beside them. Rows of up to two
    windows, and calls that ask for the probabilities, compute all scores of a row and
    mask them, which gives the same. So does a kernel that knows windows, where the
    device has one.

    Global tokens attend to all tokens, by projections of their own, and all tokens
    attend to them.

    Args:
        *args: those of `SelfAttention`.
        window: int. Even: as many tokens on both sides together are attended to. 0 for
            all tokens.
        dilation: int, or one for each head. A head attends to every so many-th token,
            as far as `window // 2 * dilation`.
        global_projections: bool. Whether there can be global tokens.
        **kwargs: those of `SelfAttention`; `causal` goes without global tokens.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        attention_mask: bool tensor `(batch, length)`, true where there is no padding.
        positions: int tensor of shape `(batch, count)`. Give the output at these
            positions only.
        head_mask: see `SelfAttention`, and so `rotary`.
        sequence_ids: int tensor `(batch, length)`: tokens attend to those of the same
            sequence only.
        global_tokens: dict of tensors, see `keras_bertfam.layers.TransformerStack`.
        window: int; and `dilation`: in place of those of the constructor.
        numbers: see `SelfAttention`, and so `added_mask`, `bias`, `causal`, `cache` and
            `cache_index`; without a window.
        neighbours: what `neighbours()` gave for the same masks and window, or `None`.
        return_scores: bool. Return the attention probabilities as well.

    Returns:
        As `SelfAttention`.

    Raises:
        ValueError: for a window that is odd or negative, a dilation that isn't
            positive, or global tokens without `global_projections`.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 3.

    Example:

    ```python
    attention = keras_bertfam.layers.LocalSelfAttention(
        num_heads=2, head_dim=4, window=4)
    attention(keras.random.normal((1, 50, 8))).shape  # (1, 50, 8)
    ```
    """

    def __init__(
        self,
        *args: Any,
        window: int = 0,
        dilation: int | Sequence[int] = 1,
        global_projections: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.window = check_window(window)
        self.dilation = as_dilations(dilation, self.num_heads)
        self.global_projections = global_projections

    def build(self, input_shape: Shape) -> None:
        inner, width = self._inner_dim, input_shape[-1]
        self.global_qkv = None
        if self.global_projections:
            self.global_qkv = self._dense(3 * inner, width, "global_qkv", queries=inner)
        super().build(input_shape)

    def neighbours(
        self,
        rows: int | Tensor,
        length: int | Tensor,
        attention_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        global_tokens: dict[str, Tensor] | None = None,
        window: int | None = None,
        dilation: Sequence[int] | None = None,
        whole: bool = False,
    ) -> tuple[Tensor, ...]:
        """What is added to scores: 0 where a key is seen.

        Args:
            rows: int, the batch.
            length: int, the tokens of a row.
            attention_mask: see the call, as the others.
            sequence_ids: int tensor.
            global_tokens: dict of tensors.
            window: int.
            dilation: sequence of ints.
            whole: bool. Whether all scores of a row are computed in any case.

        Returns:
            A tuple of a float tensor for each dilation that there is, or of one for
            whole rows.
        """
        window, dilation = self._pattern(window, dilation)
        dtype = self.compute_dtype
        masks = (attention_mask, sequence_ids, global_tokens, self.causal)
        if whole or not pays(length, window, dilation):
            return (neighbours_in_rows(length, window, dilation, dtype, *masks),)
        return tuple(
            neighbours_in_blocks(rows, length, window // 2, step, dtype, *masks)
            for step in sorted({*dilation})
        )

    def _pattern(self, window, dilation):
        window = self.window if window is None else window
        return window, self.dilation if dilation is None else tuple(dilation)

    def call(  # type: ignore[override]
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        head_mask: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        sequence_ids: Tensor | None = None,
        global_tokens: dict[str, Tensor] | None = None,
        window: int | None = None,
        dilation: Sequence[int] | None = None,
        numbers: Tensor | None = None,
        added_mask: Tensor | None = None,
        neighbours: tuple[Tensor, ...] | None = None,
        bias: Tensor | None = None,
        causal: bool | None = None,
        cache: tuple[Tensor, Tensor] | None = None,
        cache_index: Tensor = 0,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        if not (self.window if window is None else window):
            if sequence_ids is None and global_tokens is None:
                return super().call(
                    x,
                    attention_mask,
                    positions,
                    head_mask,
                    rotary=rotary,
                    numbers=numbers,
                    added_mask=added_mask,
                    bias=bias,
                    causal=causal,
                    cache=cache,
                    cache_index=cache_index,
                    return_scores=return_scores,
                    training=training,
                )
        rows, length = ops.shape(x)[:2]
        kept = return_scores or self.watcher is not None
        window, dilation = self._pattern(window, dilation)
        whole = kept or not pays(length, window, dilation)
        masks = (attention_mask, sequence_ids, global_tokens)
        heads = self._project(x, None, rotary=rotary)
        context = scores = None
        plain = not kept and global_tokens is None and {*dilation} == {1}
        if window and plain and not self.causal:
            context = self._by_kernel(
                heads, window, attention_mask, sequence_ids, training
            )
        if context is None:
            if neighbours is None or kept:
                pattern = (window, dilation, whole)
                neighbours = self.neighbours(rows, length, *masks, *pattern)
            context, scores = self._masked(
                heads,
                window,
                dilation,
                whole,
                neighbours,
                global_tokens,
                kept,
                training,
            )
        if global_tokens is not None:
            context, scores = self._with_global(
                x, context, scores, masks, rotary, training
            )
        if self.watcher is not None:
            self.watcher(heads[0] * self.scale, heads[1], scores)
        if positions is not None:
            context, scores = (
                part if part is None else self._at(part, positions, axis)
                for part, axis in ((context, 1), (scores, 2))
            )
        output = self._combine(context, head_mask)
        return (output, scores) if return_scores else output

    def _masked(
        self, heads, window, dilation, whole, neighbours, global_tokens, kept, training
    ):
        """The heads' outputs, and probabilities if they are kept."""
        if whole:
            (bias,) = neighbours
            return self._mix(heads, None, bias, kept, training)
        pattern = (window // 2, dilation)
        tokens = (neighbours, global_tokens)
        return self._by_blocks(heads, *pattern, *tokens, training), None

    def _by_kernel(self, heads, window, attention_mask, sequence_ids, training):
        """The heads' outputs by a kernel that knows windows; `None` without one."""
        if not knows_patterns():
            return None
        mask = numbers = None
        if attention_mask is not None:
            mask = ops.expand_dims(attention_mask, (1, 2))
        if sequence_ids is not None:
            numbers = numbers_of(sequence_ids, attention_mask)
        arguments = {"numbers": numbers, "window": window}
        asked = self._asked(heads, training, mask, **arguments)
        kernel = kernel_for(asked)
        return None if kernel is None else kernel.compute(asked)

    def _by_blocks(self, heads, size, dilation, neighbours, global_tokens, training):
        """The heads' outputs `(batch, length, num_heads, head_dim)`."""
        steps, found = sorted({*dilation}), {}
        for step, bias in zip(steps, neighbours, strict=True):
            own = [head for head, each in enumerate(dilation) if each == step]
            parts = heads
            if len(own) < len(dilation):
                numbers = np.array(own, "int32")
                parts = [ops.take(part, numbers, axis=2) for part in heads]
            mixed = self._in_blocks(parts, size, step, bias, global_tokens, training)
            found |= {head: mixed[:, :, k] for k, head in enumerate(own)}
            if len(own) == len(dilation):
                return mixed
        return ops.stack([found[head] for head in range(len(dilation))], axis=2)

    def _in_blocks(self, heads, size, step, bias, global_tokens, training):
        length = ops.shape(heads[0])[1]
        query, key, value = (blocks.fold(part, step) for part in heads)
        rows = ops.shape(query)[0]
        query = blocks.blocks_of(query, size)
        count = ops.shape(query)[1]
        sides = [
            blocks.join_rows(blocks.around_blocks(part, size)) for part in (key, value)
        ]
        if global_tokens is not None:
            # They are rows of their own for each block, beside its own keys.
            for k, part in enumerate(heads[1:]):
                extra = take_heads(part, global_tokens["positions"])
                extra = blocks.for_each_block(extra, step * count)
                sides[k] = ops.concatenate([sides[k], extra], axis=1)
        parts = (blocks.join_rows(query), *sides)
        mixed, _ = self._mix(parts, None, bias, False, training)
        mixed = ops.reshape(mixed, (rows, count * size, *mixed.shape[2:]))
        folded = -(-length // step)
        return blocks.unfold(mixed[:, :folded], step, length)

    def _with_global(self, x, context, scores, masks, rotary, training):
        """Outputs and probabilities with those of global tokens in their places."""
        attention_mask, sequence_ids, tokens = masks
        if self.global_qkv is None:
            raise ValueError(
                "`global_tokens` need an attention with projections for them. "
                "Received: global_projections=False."
            )
        heads = self._project(x, tokens["positions"], self.global_qkv, rotary)
        bias = keys_seen_by(tokens, self.compute_dtype, attention_mask, sequence_ids)
        kept = scores is not None
        theirs, their_scores = self._mix(heads, None, bias, kept, training)
        here = ops.expand_dims(tokens["here"], (2, 3))
        context = ops.where(here, self._at(theirs, tokens["slots"], 1), context)
        if scores is not None:
            here = ops.expand_dims(tokens["here"], (1, 3))
            found = self._at(their_scores, tokens["slots"], 2)
            scores = ops.where(here, found, scores)
        return context, scores

    def _at(self, x, positions, axis):
        """What belongs to given tokens, which are along an axis, 1 or 2."""
        x = x if axis == 1 else ops.swapaxes(x, 1, 2)
        x = take_heads(x, positions)
        return x if axis == 1 else ops.swapaxes(x, 1, 2)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "window": self.window,
            "dilation": list(self.dilation),
            "global_projections": self.global_projections,
        }


def take_heads(x: Tensor, positions: Tensor) -> Tensor:
    """What heads have at given positions of each row.

    Args:
        x: tensor `(batch, length, num_heads, width)`.
        positions: int tensor `(batch, count)`.

    Returns:
        Tensor `(batch, count, num_heads, width)`.
    """
    batch, length, heads, width = ops.shape(x)
    flat = take_positions(ops.reshape(x, (batch, length, heads * width)), positions)
    return ops.reshape(flat, (batch, ops.shape(positions)[1], heads, width))
