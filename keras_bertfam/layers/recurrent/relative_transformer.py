"""XLNet's Transformer stack: two streams, relative positions and memory."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.layers.attention.stack_heads import NoAttention, StackHeads
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.recomputation import recomputed
from keras_bertfam.layers.blocks.sublayers import FeedForward, ResidualSublayer
from keras_bertfam.layers.recurrent.relative_attention import (
    RelativeAttention,
    relative_sinusoids,
)
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RelativeTransformerBlock(keras.layers.Layer):
    """`RelativeAttention` and a feed-forward network, each with post-norm.

    Args:
        num_heads: int; 0 for a block whose heads are all pruned.
        head_dim: int.
        intermediate_dim: int. Inner width of the feed-forward sub-layer.
        tied_biases: bool. See `RelativeAttention`.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        dropout: float. Dropout rate on each sub-layer's output and within the
            feed-forward network.
        attention_dropout: float. Dropout rate on attention probabilities.
        layer_norm_epsilon: float.
        initializer: initializer of the kernels.
        use_segments: bool. See `RelativeAttention`.

    Takes the call arguments of `RelativeAttention` and returns what it returns.

    Example:

    ```python
    from keras_bertfam.layers.recurrent.relative_transformer import (
        RelativeTransformerBlock,
    )
    from keras_bertfam.layers.recurrent.relative_attention import relative_sinusoids
    block = RelativeTransformerBlock(
        num_heads=2, head_dim=4, intermediate_dim=32)
    x = keras.random.normal((1, 5, 8))
    relative = relative_sinusoids(5, 5, 8)
    block(x, x, relative).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        num_heads: Any,
        head_dim: int,
        intermediate_dim: int,
        tied_biases: bool = False,
        activation: str = "gelu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-12,
        initializer: Initializer = "glorot_uniform",
        use_segments: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_number("num_heads", num_heads, 0)  # 0 is allowed here only
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.intermediate_dim = intermediate_dim
        self.tied_biases = tied_biases
        self.activation = activation
        self.dropout_rate = dropout
        self.attention_dropout = attention_dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer = keras.initializers.get(initializer)
        self.use_segments = use_segments
        common = {"dtype": self.dtype_policy}
        attention: keras.layers.Layer = NoAttention(
            use_bias=False, name="relative_attention", **common
        )
        if num_heads:
            attention = RelativeAttention(
                num_heads,
                head_dim,
                tied_biases=tied_biases,
                dropout=attention_dropout,
                initializer=self.initializer.clone(),
                use_segments=use_segments,
                name="relative_attention",
                **common,
            )
        self.attention = ResidualSublayer(
            attention,
            dropout=dropout,
            layer_norm_epsilon=layer_norm_epsilon,
            name="attention",
            **common,
        )
        self.feedforward = ResidualSublayer(
            FeedForward(
                intermediate_dim,
                activation=activation,
                dropout=dropout,
                initializer=self.initializer.clone(),
                name="feed_forward",
                **common,
            ),
            dropout=dropout,
            layer_norm_epsilon=layer_norm_epsilon,
            name="ffn",
            **common,
        )

    def build(self, input_shape: Shape) -> None:
        for layer in (self.attention, self.feedforward):
            layer.build(input_shape)
        self.built = True

    def call(
        self,
        x: Tensor,
        context: Tensor,
        relative: Tensor,
        return_scores: bool = False,
        training: bool | None = None,
        **kwargs: Tensor,
    ) -> Any:
        x = self.attention(
            x,
            context=context,
            relative=relative,
            return_scores=return_scores,
            training=training,
            **kwargs,
        )
        x, *scores = x if isinstance(x, tuple) else (x,)
        x = self.feedforward(x, training=training)
        return (x, *scores) if scores else x

    def compute_output_shape(
        self, input_shape: Shape, *args: Any, **kwargs: Any
    ) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "intermediate_dim": self.intermediate_dim,
            "tied_biases": self.tied_biases,
            "activation": self.activation,
            "dropout": self.dropout_rate,
            "attention_dropout": self.attention_dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "initializer": keras.initializers.serialize(self.initializer),
            "use_segments": self.use_segments,
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RelativeTransformerStack(StackHeads, keras.layers.Layer):
    """A stack of `RelativeTransformerBlock`s with a content and maybe a query stream.

    Args:
        num_layers: int.
        num_heads: int.
        head_dim: int.
        intermediate_dim: int.
        causal: bool. Whether tokens attend to earlier ones only.
        untie_biases: bool. Whether each layer has its own position biases.
        clamp_length: int or `None`. See `relative_sinusoids`.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        dropout: float.
        attention_dropout: float.
        layer_norm_epsilon: float.
        initializer: initializer of the kernels.
        pruned_heads: list with a list of pruned heads for each layer, or `None`.
        head_gates: dict of arguments of `HeadGates`, or `None` for no gates.
        use_segments: bool. See `RelativeAttention`.

    Call arguments:
        content: float tensor `(batch, length, width)`, the content stream.
        queries: float tensor `(batch, count, width)`, the query stream, or
            `None`.
        positions: int tensor `(batch, count)`. The positions of the `queries`. Without
            `queries`, the positions at which the last block is computed.
        attention_mask: bool tensor `(batch, length + count or 1, keys)`, or
            `(batch, length or 1, keys)` without `queries`, true where a key may
            be attended to.
        other_segment: bool tensor `(batch, length + count, keys)`, or without
            `count`; see `RelativeAttention`.
        memory: list of `num_layers` float tensors `(batch, memory_length,
            width)`, or `None`: the layers' inputs for earlier tokens.
        reversed_rows: bool tensor `(batch,)`, true for rows whose tokens run backwards.
            Their distances have the opposite sign.
        head_mask: float tensor `(num_layers, num_heads)`, or `(num_layers, batch,
            num_heads)`; 0 switches a head off.
        clamp_length: int or `None`. Replaces the constructor's `clamp_length`.
        return_hidden_states: bool. Whether the last block computes all states.
        return_scores: bool. Whether to return the attention probabilities.

    Returns:
        A tuple of three:

        - the query stream; without queries the content stream, at `positions` if given;
        - the list of `num_layers + 1` states, the input first, of shape `(batch,
          length, width)`, or `(batch, length + count, width)` with queries. Without
          `return_hidden_states` the last one holds only what is returned;
        - the list of attention probabilities, empty unless `return_scores`.

    Example:

    ```python
    from keras_bertfam.layers.recurrent.relative_transformer import (
        RelativeTransformerStack,
    )
    stack = RelativeTransformerStack(
        num_layers=2, num_heads=2, head_dim=4, intermediate_dim=32)
    stack(keras.random.normal((1, 5, 8)))[0].shape  # (1, 5, 8)
    ```

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237), sections
    2.3 and 2.4.
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        head_dim: int,
        intermediate_dim: int,
        causal: bool = False,
        untie_biases: bool = True,
        clamp_length: int | None = None,
        activation: str = "gelu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-12,
        initializer: Initializer = "glorot_uniform",
        pruned_heads: Any = None,
        head_gates: Config | None = None,
        use_segments: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if clamp_length is not None and clamp_length < 1:
            raise ValueError(
                "`clamp_length` must be positive or `None`. "
                f"Received: clamp_length={clamp_length}."
            )
        self.num_layers = num_layers
        self.recomputes = "none"
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.intermediate_dim = intermediate_dim
        self.causal = causal
        self.untie_biases = untie_biases
        self.clamp_length = clamp_length
        self.activation = activation
        self.dropout_rate = dropout
        self.attention_dropout = attention_dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer = keras.initializers.get(initializer)
        self.use_segments = use_segments
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.head_gates = head_gates
        self._set_heads(pruned_heads, num_layers)  # layers share no attention
        self.blocks = [
            RelativeTransformerBlock(
                len(self.heads_of(index)),
                head_dim,
                intermediate_dim,
                tied_biases=not untie_biases,
                activation=activation,
                dropout=dropout,
                attention_dropout=attention_dropout,
                layer_norm_epsilon=layer_norm_epsilon,
                initializer=self.initializer.clone(),
                use_segments=use_segments,
                name=f"block_{index}",
                dtype=self.dtype_policy,
            )
            for index in range(num_layers)
        ]

    @property
    def attention_layers(self) -> list[ResidualSublayer]:
        """The attention sub-layer of each block, with residual and norm."""
        return [block.attention for block in self.blocks]

    def build(self, input_shape: Shape) -> None:
        if input_shape[-1] % 2:
            raise ValueError(
                "`hidden_dim` must be even, for equally many sines and cosines. "
                f"Received: hidden_dim={input_shape[-1]}."
            )
        for block in self.blocks:
            block.build(input_shape)
        if self.gates is not None:
            self.gates.build()
        self.biases = None
        if not self.untie_biases:
            self.biases = self.add_weight(
                name="r_w_r_s",
                shape=(3 if self.use_segments else 2, self.num_heads, self.head_dim),
                initializer=self.initializer.clone(),
            )
        self.built = True

    def call(
        self,
        content: Tensor,
        queries: Tensor | None = None,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
        other_segment: Tensor | None = None,
        memory: Sequence[Tensor] | None = None,
        reversed_rows: Tensor | None = None,
        head_mask: Tensor | None = None,
        clamp_length: int | None = None,
        return_hidden_states: bool = False,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        length = ops.shape(content)[1]
        remembered = 0 if memory is None else ops.shape(memory[0])[1]
        relative = self._relative(
            length, remembered, content, reversed_rows, clamp_length
        )
        relative = self.dropout(relative, training=training)
        # Both streams are one tensor: the rows from `length` on are the query stream.
        two = queries is not None
        x = ops.concatenate([content, queries], axis=1) if two else content
        masks = {"attention_mask": attention_mask, "other_segment": other_segment}
        standing = None if positions is None else positions + remembered
        states, scores = [x], []
        head_masks = self._mask_of_each(head_mask, training)
        for index, block in enumerate(self.blocks):
            content = x[:, :length] if two else x
            last = index == self.num_layers - 1
            only = last and positions is not None and not return_hidden_states
            if only:
                x, masks = _only(x, masks, length, two, positions)
            if memory is not None:
                past = ops.cast(memory[index], content.dtype)
                content = ops.concatenate([past, content], axis=1)
            compute: Callable[..., Any] = block
            if training and self.recomputes == "block":
                compute = recomputed(block, [block])
            x = compute(
                x,
                content,
                relative,
                query_positions=standing if two or only else None,
                reversed_rows=reversed_rows,
                biases=self._biases_of(index),
                head_mask=head_masks[index],
                return_scores=return_scores,
                training=training,
                **masks,
            )
            if return_scores:
                x, probabilities = x
                scores.append(probabilities)
            states.append(x)
        if positions is not None and return_hidden_states:
            x = x[:, length:] if two else take_positions(x, positions)
        return x, states, scores

    def _biases_of(self, index):
        """Take the shared biases of the heads that a layer has left."""
        heads = self.heads_of(index)
        if self.biases is None or len(heads) == self.num_heads:
            return self.biases
        return ops.take(self.biases, np.array(heads, "int32"), axis=1)

    def _relative(self, length, remembered, content, reversed_rows, clamp_length):
        """Compute the sinusoids; with reversed rows for both directions."""
        x = relative_sinusoids(
            length,
            remembered + length,
            content.shape[-1],
            causal=self.causal,
            clamp_length=clamp_length or self.clamp_length,
        )
        if reversed_rows is not None:
            # For the opposite distance the sine has the opposite sign, and the cosine
            # is equal.
            half = content.shape[-1] // 2
            x = ops.stack([x, ops.concatenate([-x[:, :half], x[:, half:]], axis=1)])
        return ops.cast(x, content.dtype)

    def compute_output_spec(self, content: Any, *args: Any, **kwargs: Any) -> Any:
        # A call casts its input, so the outputs have the compute dtype.
        content = keras.KerasTensor(content.shape, self.compute_dtype)
        return super().compute_output_spec(content, *args, **kwargs)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "intermediate_dim": self.intermediate_dim,
            "causal": self.causal,
            "untie_biases": self.untie_biases,
            "clamp_length": self.clamp_length,
            "activation": self.activation,
            "dropout": self.dropout_rate,
            "attention_dropout": self.attention_dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "initializer": keras.initializers.serialize(self.initializer),
            "pruned_heads": self.pruned_heads,
            "head_gates": self.head_gates,
            "use_segments": self.use_segments,
        }


def _only(x, masks, length, two_streams, positions):
    """Keep only the part of the last block's inputs that `positions` need."""

    def pick(rows):
        if rows is None or (not two_streams and rows.shape[1] == 1):
            return rows  # one mask for all queries
        return rows[:, length:] if two_streams else take_positions(rows, positions)

    return pick(x), {name: pick(mask) for name, mask in masks.items()}
