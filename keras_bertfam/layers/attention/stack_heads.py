"""The attention heads of a stack: pruned, masked and gated."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.attention.head_gates import HeadGates
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.transformer_config import (
    PrunedHeads,
    checked_pruned_heads,
    heads_left,
)
from keras_bertfam.types import Config, Mixin, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class NoAttention(keras.layers.Layer):
    """Self-attention whose heads are all pruned: only the output's bias is left.

    The layer takes the call arguments of other attention layers. Its probabilities and
    cache have zero heads.

    Args:
        use_bias: bool. Whether there is a bias; without it the output is zeros.

    Example:

    ```python
    from keras_bertfam.layers.attention.stack_heads import NoAttention
    NoAttention()(keras.random.normal((1, 5, 8)))  # zeros
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
        attention_mask: Any = None,
        positions: Tensor | None = None,
        cache: tuple[Tensor, Tensor] | None = None,
        return_scores: bool = False,
        training: bool | None = None,
        **of_other_layers: Any,
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

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # Not by the shape: positions, states and scores change what a call returns.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self) -> Config:
        return {**super().get_config(), "use_bias": self.use_bias}


class StackHeads(Mixin):
    """Mixin of a stack whose attention heads can be masked, gated and pruned.

    Attributes:
        pruned_heads: see `checked_pruned_heads`. The other heads keep their numbers.
        gates: `HeadGates` or `None`.
    """

    pruned_heads: PrunedHeads | None
    gates: HeadGates | None
    _head_mask: Any = None
    _shared: Callable[[], Any] | None = None  # gives the stack that owns the heads

    def _set_heads(self, pruned_heads, num_groups):
        """Set `pruned_heads` and `gates`; the stack's other arguments are set before.

        Args:
            pruned_heads: a list of heads for each layer, or `None`.
            num_groups: int. Number of groups of layers that share their attention.
        """
        sizes = (self.num_layers, self.num_heads, num_groups)
        self.pruned_heads = checked_pruned_heads(pruned_heads, *sizes)
        self.gates = None
        if self.head_gates is not None:
            self.gates = HeadGates(*sizes, **self.head_gates, name="head_gates")

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """List the heads that a layer has left, by their numbers before pruning."""
        return heads_left(self.pruned_heads, layer, self.num_heads)

    @contextlib.contextmanager
    def masked_heads(self, head_mask: Tensor) -> Iterator[None]:
        """Give all calls in this context a `head_mask`, also calls of a task.

        Functions that were compiled before ignore it.

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
        """Make for each layer the factors of the heads it has left, or `None`."""
        holder = self if self._shared is None else self._shared()
        masks = [mask for mask in (head_mask, holder._head_mask) if mask is not None]
        if not masks and self.gates is None:
            return [None] * self.num_layers
        mask = ops.ones((self.num_layers, 1, self.num_heads), "float32")
        for given in masks:
            given = ops.cast(given, "float32")
            # Not in place: there PyTorch can't broadcast to a larger shape.
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
