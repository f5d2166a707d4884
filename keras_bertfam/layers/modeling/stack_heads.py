"""Which heads of a stack there are, and what multiplies their outputs."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.modeling.attention import SelfAttention
from keras_bertfam.layers.modeling.dense import take_positions
from keras_bertfam.layers.modeling.head_gates import HeadGates
from keras_bertfam.layers.modeling.local_attention import LocalSelfAttention
from keras_bertfam.types import Config, Mixin, Shape, Tensor

PrunedHeads = tuple[tuple[int, ...], ...]


def checked_pruned_heads(
    pruned_heads: Any,
    num_layers: int,
    num_heads: int,
    num_groups: int | None = None,
) -> PrunedHeads | None:
    """Pruned heads as tuples, each in order.

    Args:
        pruned_heads: for each layer a list of ints, or `None`.
        num_layers: int.
        num_heads: int.
        num_groups: int. Groups of layers that share their attention; `None` means
            `num_layers`.

    Returns:
        A tuple of a tuple for each layer, or `None` if no head is pruned.

    Raises:
        ValueError: for another number of layers, heads that there aren't, and layers
            that share their attention and not the heads.
    """
    if pruned_heads is None:
        return None
    lists = isinstance(pruned_heads, (list, tuple))
    if (
        not lists
        or len(pruned_heads) != num_layers
        or not all(_are_heads(heads, num_heads) for heads in pruned_heads)
    ):
        raise ValueError(
            f"`pruned_heads` must have for each of {num_layers} layers a list of heads "
            f"from 0 to {num_heads - 1}. Received: {pruned_heads!r}."
        )
    found = tuple(tuple(sorted({*heads})) for heads in pruned_heads)
    groups = num_groups or num_layers
    for layer in range(1, num_layers):
        shared = layer * groups // num_layers == (layer - 1) * groups // num_layers
        if shared and found[layer] != found[layer - 1]:
            raise ValueError(
                "`pruned_heads` must be the same for layers that share their "
                f"attention, as {layer - 1} and {layer}. Received: "
                f"{list(found[layer - 1])} and {list(found[layer])}."
            )
    return found if any(found) else None


def _are_heads(heads, num_heads):
    return isinstance(heads, (list, tuple)) and all(
        type(head) is int and 0 <= head < num_heads for head in heads
    )


@keras.saving.register_keras_serializable("keras_bertfam")
class NoAttention(keras.layers.Layer):
    """What is left of self-attention whose heads are all pruned: the output's bias.

    Args:
        use_bias: bool. Whether there is one; without it the output is zeros.

    Takes the call arguments of `SelfAttention`, `LocalSelfAttention` and
    `RelativeAttention`, most of which it doesn't read, and gives probabilities and a
    cache of no heads.

    Example:

    ```python
    keras_bertfam.layers.NoAttention()(keras.random.normal((1, 5, 8)))  # zeros
    ```
    """

    def __init__(self, use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.use_bias = use_bias

    def build(self, input_shape: Shape) -> None:
        self.bias = None
        if self.use_bias:
            shape = (input_shape[-1],)
            self.bias = self.add_weight(name="bias", shape=shape, initializer="zeros")
        self.built = True

    def call(
        self,
        x: Tensor,
        context: Tensor | None = None,
        relative: Tensor | None = None,
        query_positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
        other_segment: Tensor | None = None,
        reversed_rows: Tensor | None = None,
        biases: Tensor | None = None,
        positions: Tensor | None = None,
        head_mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        causal: bool | None = None,
        cache: tuple[Tensor, Tensor] | None = None,
        cache_index: Tensor = 0,
        sequence_ids: Tensor | None = None,
        global_tokens: dict[str, Tensor] | None = None,
        window: int | None = None,
        dilation: Sequence[int] | None = None,
        neighbours: tuple[Tensor, ...] | None = None,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        keys = ops.shape(x if context is None else context)[1]
        if cache is not None:
            keys = ops.shape(cache[0])[1]
        if positions is not None:
            x = take_positions(x, positions)
        output = ops.zeros_like(x)
        if self.bias is not None:
            output += ops.cast(self.bias, output.dtype)
        more = []
        if return_scores:
            more.append(ops.zeros((ops.shape(x)[0], 0, ops.shape(x)[1], keys)))
        if cache is not None:
            more.append(cache)
        return (output, *more) if more else output

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "use_bias": self.use_bias}


class StackHeads(Mixin):
    """Mixin of a stack of layers whose heads are masked, gated and pruned.

    Attributes:
        pruned_heads: see `checked_pruned_heads`. Heads keep the numbers they had.
        gates: `HeadGates` or `None`.
    """

    pruned_heads: PrunedHeads | None
    gates: HeadGates | None
    _head_mask: Any = None

    def _settle_heads(self, pruned_heads):
        """Sets `pruned_heads` and `gates`; the arguments of the stack are set."""
        groups = self._count("attention")
        self.pruned_heads = checked_pruned_heads(
            pruned_heads, self.num_layers, self.num_heads, groups
        )
        buckets = getattr(self, "relative_buckets", 0)
        if self.pruned_heads and buckets:
            raise ValueError(
                "`pruned_heads` must be `None` with a bias by relative position, which "
                f"all layers share. Received: relative_buckets={buckets}."
            )
        self.gates = None
        if self.head_gates is not None:
            sizes = (self.num_layers, self.num_heads, groups)
            self.gates = HeadGates(*sizes, **self.head_gates, name="head_gates")

    def _count(self, kind):
        """How many sub-layers of a kind there are."""
        return self.num_groups if self.share in (kind, "all") else self.num_layers

    def _self_attention(self, index, use_bias, dtype, **kwargs):
        """The self-attention of the layers of a group, with the heads it has left."""
        layer = -(-index * self.num_layers // self._count("attention"))
        arguments = {**kwargs, "num_heads": len(self.heads_of(layer))}
        common = {"use_bias": use_bias, "dtype": dtype, "name": "self_attention"}
        if not arguments["num_heads"]:
            return NoAttention(**common)
        if self.is_local:
            return LocalSelfAttention(
                causal=self.causal,
                global_projections=bool(self.max_global_tokens),
                **common,
                **arguments,
            )
        return SelfAttention(causal=self.causal, **common, **arguments)

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """The heads that a layer has left, by the numbers they had before pruning."""
        gone: Sequence[int] = self.pruned_heads[layer] if self.pruned_heads else ()
        return tuple(head for head in range(self.num_heads) if head not in gone)

    @contextlib.contextmanager
    def masked_heads(self, head_mask: Tensor) -> Iterator[None]:
        """Calls in this context have a `head_mask`, those that a task makes as well.

        Functions that were compiled before don't see it.

        Args:
            head_mask: float tensor `(num_layers, num_heads)` or `(num_layers, batch,
                num_heads)`.
        """
        before, self._head_mask = self._head_mask, head_mask
        try:
            yield
        finally:
            self._head_mask = before

    def _mask_of_each(self, head_mask, training):
        """For each layer what multiplies the heads it has left, or `None`."""
        masks = [mask for mask in (head_mask, self._head_mask) if mask is not None]
        if not masks and self.gates is None:
            return [None] * self.num_layers
        mask = ops.ones((self.num_layers, 1, self.num_heads), "float32")
        for given in masks:
            given = ops.cast(given, "float32")
            # Not in place, where PyTorch broadcasts no further.
            mask = mask * (
                given if len(given.shape) == 3 else ops.expand_dims(given, 1)
            )
        if self.gates is not None:
            mask = self.gates(mask, training=training)
        layers = range(self.num_layers)
        return [self._of_kept(mask[layer], self.heads_of(layer)) for layer in layers]

    def _of_kept(self, mask, heads):
        if len(heads) == self.num_heads:
            return mask
        return ops.take(mask, np.array(heads, "int32"), axis=-1) if heads else None
