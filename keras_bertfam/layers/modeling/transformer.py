"""The stack of Transformer blocks, which shares weights between them."""

from typing import Any

import keras

from keras_bertfam.layers.modeling.attention import SelfAttention
from keras_bertfam.layers.modeling.sublayers import FeedForward, ResidualSublayer
from keras_bertfam.types import Config, Initializer, Shape, Tensor

SHARE_MODES = ("none", "attention", "ffn", "all")


@keras.saving.register_keras_serializable("keras_bertfam")
class TransformerStack(keras.layers.Layer):
    """A stack of Transformer blocks, with weights shared as asked.

    Args:
        num_layers: int.
        num_heads: int.
        head_dim: int. Width of a head.
        intermediate_dim: int. Inner width of the feed-forward sub-layer.
        share: `"none"`, `"attention"`, `"ffn"` or `"all"`. Which sub-layers
            (each with its norm) the layers of a group share (ALBERT, section
            3.1 and table 4).
        num_groups: int. Groups of consecutive layers that share; layer `l`
            belongs to group `l * num_groups // num_layers`.
        norm_first: bool. Pre-norm blocks and a final norm after the stack.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        dropout: float. Dropout rate on each sub-layer's output.
        attention_dropout: float. Dropout rate on attention probabilities.
        layer_norm_epsilon: float.
        initializer: initializer of the kernels.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        attention_mask: bool tensor `(batch, length)` or `(batch, length, length)`, true
            where a key may be attended to.
        positions: int tensor `(batch, count)`. The last block computes queries,
            output projection and feed-forward at these positions only, which
            gives the same states there for less work.
        head_mask: float tensor `(num_layers, num_heads)`; 0 switches a head
            off.
        return_hidden_states: bool.
        return_scores: bool.

    Returns:
        Float tensor of shape `(batch, length or count, width)`; with
        `return_hidden_states` or `return_scores` a triple of it, the list of
        `num_layers + 1` states (the input first; `None` if not asked for) and
        the list of `num_layers` attention probabilities.

    Example:

    ```python
    stack = keras_bertfam.layers.TransformerStack(
        num_layers=2, num_heads=2, head_dim=4, intermediate_dim=32, share="all")
    stack(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        head_dim: int,
        intermediate_dim: int,
        share: str = "none",
        num_groups: int = 1,
        norm_first: bool = False,
        activation: str = "gelu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-12,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if share not in SHARE_MODES:
            raise ValueError(
                f"`share` must be one of {SHARE_MODES}. Received: share={share!r}."
            )
        if not 1 <= num_groups <= num_layers:
            raise ValueError(
                "`num_groups` must be between 1 and "
                f"num_layers={num_layers}. Received: num_groups={num_groups}."
            )
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.intermediate_dim = intermediate_dim
        self.share = share
        self.num_groups = num_groups
        self.norm_first = norm_first
        self.activation = activation
        self.dropout_rate = dropout
        self.attention_dropout = attention_dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer = keras.initializers.get(initializer)
        common = {"dtype": self.dtype_policy}
        self.attention_layers = self._sublayers(
            "attention",
            lambda: SelfAttention(
                num_heads,
                head_dim,
                dropout=attention_dropout,
                initializer=self.initializer.clone(),
                name="self_attention",  # policies of int8 models go by the path
                **common,
            ),
        )
        self.feedforward_layers = self._sublayers(
            "ffn",
            lambda: FeedForward(
                intermediate_dim,
                activation=activation,
                initializer=self.initializer.clone(),
                name="feed_forward",
                **common,
            ),
        )
        self.final_norm = None
        if norm_first:
            self.final_norm = keras.layers.LayerNormalization(
                epsilon=layer_norm_epsilon, name="final_norm", **common
            )

    def _sublayers(self, kind, make):
        shared = self.share in (kind, "all")
        return [
            ResidualSublayer(
                make(),
                norm_first=self.norm_first,
                dropout=self.dropout_rate,
                layer_norm_epsilon=self.layer_norm_epsilon,
                name=f"{kind}_{index}",
                dtype=self.dtype_policy,
            )
            for index in range(self.num_groups if shared else self.num_layers)
        ]

    def block(self, layer: int) -> tuple[ResidualSublayer, ResidualSublayer]:
        """The attention and feed-forward sub-layers that a layer uses.

        Args:
            layer: int from 0 to `num_layers - 1`.

        Returns:
            A pair of `ResidualSublayer`.
        """
        return tuple(
            sublayers[layer * len(sublayers) // self.num_layers]
            for sublayers in (self.attention_layers, self.feedforward_layers)
        )

    def build(self, input_shape: Shape) -> None:
        for layer in [*self.attention_layers, *self.feedforward_layers]:
            layer.build(input_shape)
        if self.final_norm is not None:
            self.final_norm.build(input_shape)
        self.built = True

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        head_mask: Tensor | None = None,
        return_hidden_states: bool = False,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        states, scores = [x], []
        for index in range(self.num_layers):
            attention, feedforward = self.block(index)
            last = index == self.num_layers - 1
            x = attention(
                x,
                attention_mask=attention_mask,
                positions=positions if last else None,
                head_mask=None if head_mask is None else head_mask[index],
                return_scores=return_scores,
                training=training,
            )
            if return_scores:
                x, layer_scores = x
                scores.append(layer_scores)
            x = feedforward(x, training=training)
            states.append(x)
        if self.final_norm is not None:
            x = states[-1] = self.final_norm(x)
        if not (return_hidden_states or return_scores):
            return x
        return (
            x,
            states if return_hidden_states else None,
            scores if return_scores else None,
        )

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "intermediate_dim": self.intermediate_dim,
            "share": self.share,
            "num_groups": self.num_groups,
            "norm_first": self.norm_first,
            "activation": self.activation,
            "dropout": self.dropout_rate,
            "attention_dropout": self.attention_dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "initializer": keras.initializers.serialize(self.initializer),
        }
