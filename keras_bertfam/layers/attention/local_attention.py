"""Self-attention within a window, with global tokens."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.attention.definition import for_each_head
from keras_bertfam.layers.attention.kernels import kernel_for, knows_patterns
from keras_bertfam.layers.attention.masks import numbers_of
from keras_bertfam.layers.attention.pattern import NearbyKeys, VisibleKeys
from keras_bertfam.layers.attention.self_attention import SelfAttention
from keras_bertfam.layers.attention.windows import (
    around_blocks,
    blocks_of,
    fold,
    for_each_block,
    join_rows,
    keys_seen_by,
    unfold,
)
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.transformer_config import as_dilations, check_window
from keras_bertfam.types import Config, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LocalSelfAttention(SelfAttention):
    """Multi-head self-attention of each token to its neighbours.

    Time and memory grow with length times window, not with the square of the length:
    rows are cut into blocks of half a window, and each block attends to itself and the
    two blocks beside it.

    Two cases compute all scores of a row and mask them instead, with the same result:
    rows of up to two windows, and calls with `return_scores=True`. A kernel for windows
    is used on devices that have one.

    Global tokens attend to all tokens, by their own projections. All tokens attend to
    them.

    Args:
        *args: those of `SelfAttention`.
        window: int. Even number of neighbours that a token attends to, half of them on
            each side; 0 for all tokens.
        dilation: int, or a sequence of ints, one for each head. With a dilation of `d`
            a head attends to every `d`-th token, up to `window // 2 * d` away.
        global_projections: bool. Whether the layer has projections for global tokens.
        **kwargs: those of `SelfAttention`. `causal` can't be combined with global
            tokens.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        attention_mask: bool tensor `(batch, length)`, false for padding. A `NearbyKeys`
            or `VisibleKeys` replaces window, dilation, masks and `causal` of this call;
            with `VisibleKeys` all scores of a row are computed.
        positions: int tensor of shape `(batch, count)`. Give the output at these
            positions only.
        head_mask, bias, rotary, cache, cache_index: see `SelfAttention`. `bias` and
            `cache` work only in calls that have no window.
        sequence_ids: int tensor `(batch, length)`. Tokens attend to tokens of the same
            sequence only.
        global_tokens: dict of tensors that `windows.tokens_at` makes.
        return_scores: bool. Return the attention probabilities as well.

    Returns:
        What `SelfAttention` returns.

    Raises:
        ValueError: for a window that is odd or negative, a dilation that isn't
            positive, global tokens without `global_projections`, or both `causal` and
            global tokens.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 3.

    Example:

    ```python
    from keras_bertfam.layers.attention.local_attention import LocalSelfAttention
    attention = LocalSelfAttention(
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
        self.global_qkv = None
        if self.global_projections:
            self.global_qkv = self._joint_dense(input_shape[-1], "global_qkv")
        super().build(input_shape)

    def call(  # type: ignore[override]
        self,
        x: Tensor,
        attention_mask: Any = None,
        positions: Tensor | None = None,
        head_mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: tuple[Tensor, Tensor] | None = None,
        cache_index: Tensor = 0,
        sequence_ids: Tensor | None = None,
        global_tokens: dict[str, Tensor] | None = None,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        keys = attention_mask
        if not isinstance(keys, NearbyKeys | VisibleKeys):
            if self.window or sequence_ids is not None or global_tokens is not None:
                pattern = (self.window, self.dilation, self.causal)
                masks = (attention_mask, sequence_ids, global_tokens)
                keys = NearbyKeys(*pattern, *masks)
        if not isinstance(keys, NearbyKeys):
            return super().call(
                x,
                keys,
                positions,
                head_mask,
                bias=bias,
                rotary=rotary,
                cache=cache,
                cache_index=cache_index,
                return_scores=return_scores,
                training=training,
            )
        if keys.causal and keys.global_tokens is not None:
            raise ValueError(
                "`global_tokens` must be `None` with causal=True, as they see all "
                f"tokens. Received: {type(keys.global_tokens).__name__}."
            )
        kept = return_scores or self.watcher is not None
        heads = self._project(x, None, rotary=rotary)
        context = scores = None
        plain = keys.global_tokens is None and {*keys.dilations} == {1}
        if keys.window and plain and not (kept or keys.causal):
            context = self._by_kernel(heads, keys, training)
        if context is None:
            context, scores = self._masked(heads, keys, kept, training)
        if keys.global_tokens is not None:
            context, scores = self._with_global(
                x, context, scores, keys, rotary, training
            )
        if self.watcher is not None:
            self.watcher(heads[0] * self.scale, self._of_each_head(heads[1]), scores)
        if positions is not None:
            context, scores = (
                part if part is None else self._at(part, positions, axis)
                for part, axis in ((context, 1), (scores, 2))
            )
        output = self._combine(context, head_mask)
        return (output, scores) if return_scores else output

    def _masked(self, heads, keys, kept, training):
        """Compute the heads' outputs, and probabilities if they are kept."""
        batch, length = ops.shape(heads[0])[:2]
        whole = kept or not keys.uses_blocks(length)
        hidden = keys.hidden
        if hidden is None or kept:
            hidden = keys.hiding(batch, length, self.compute_dtype, whole)
        if whole:
            return self._mix(heads, None, hidden[0], kept, training)
        return self._by_blocks(heads, keys, hidden, training), None

    def _by_kernel(self, heads, keys, training):
        """Compute the heads' outputs by a kernel for windows; `None` without one."""
        if not knows_patterns():
            return None
        mask = numbers = None
        if keys.mask is not None:
            mask = ops.expand_dims(keys.mask, (1, 2))
        if keys.sequence_ids is not None:
            numbers = numbers_of(keys.sequence_ids, keys.mask)
        arguments = {"numbers": numbers, "window": keys.window}
        asked = self._asked(heads, training, mask, **arguments)
        kernel = kernel_for(asked)
        return None if kernel is None else kernel.compute(asked)

    def _by_blocks(self, heads, keys, hidden, training):
        """Compute the heads' outputs `(batch, length, num_heads, head_dim)`."""
        dilations, size = keys.dilations, keys.window // 2
        steps, found = sorted({*dilations}), {}
        if len(steps) > 1:
            heads = [for_each_head(part, len(dilations)) for part in heads]
        for step, bias in zip(steps, hidden, strict=True):
            own = [head for head, each in enumerate(dilations) if each == step]
            parts = heads
            if len(own) < len(dilations):
                numbers = np.array(own, "int32")
                parts = [ops.take(part, numbers, axis=2) for part in heads]
            more = (keys.global_tokens, training)
            mixed = self._in_blocks(parts, size, step, bias, *more)
            found |= {head: mixed[:, :, k] for k, head in enumerate(own)}
            if len(own) == len(dilations):
                return mixed
        return ops.stack([found[head] for head in range(len(dilations))], axis=2)

    def _in_blocks(self, heads, size, step, bias, global_tokens, training):
        length = ops.shape(heads[0])[1]
        query, key, value = (fold(part, step) for part in heads)
        rows = ops.shape(query)[0]
        query = blocks_of(query, size)
        count = ops.shape(query)[1]
        sides = [join_rows(around_blocks(part, size)) for part in (key, value)]
        if global_tokens is not None:
            # Each block gets the keys and values of the global tokens beside its own.
            for k, part in enumerate(heads[1:]):
                extra = take_heads(part, global_tokens["positions"])
                extra = for_each_block(extra, step * count)
                sides[k] = ops.concatenate([sides[k], extra], axis=1)
        parts = (join_rows(query), *sides)
        mixed, _ = self._mix(parts, None, bias, False, training)
        mixed = ops.reshape(mixed, (rows, count * size, *mixed.shape[2:]))
        folded = (length + step - 1) // step  # as in `windows`, nothing negative
        return unfold(mixed[:, :folded], step, length)

    def _with_global(self, x, context, scores, keys, rotary, training):
        """Replace the outputs and probabilities at global tokens by their own."""
        tokens = keys.global_tokens
        if self.global_qkv is None:
            raise ValueError(
                "`global_tokens` need an attention with global_projections=True. "
                "Received: global_projections=False."
            )
        heads = self._project(x, tokens["positions"], self.global_qkv, rotary)
        bias = keys_seen_by(tokens, self.compute_dtype, keys.mask, keys.sequence_ids)
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
        """Take the entries at given positions along the tokens' axis, 1 or 2."""
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
    """Take the heads' vectors at given positions of each row.

    Args:
        x: tensor `(batch, length, num_heads, width)`.
        positions: int tensor `(batch, count)`.

    Returns:
        Tensor `(batch, count, num_heads, width)`.
    """
    batch, length, heads, width = ops.shape(x)
    flat = take_positions(ops.reshape(x, (batch, length, heads * width)), positions)
    return ops.reshape(flat, (batch, ops.shape(positions)[1], heads, width))
