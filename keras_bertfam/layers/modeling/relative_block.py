"""A Transformer block with relative attention."""

from typing import Any

import keras

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.layers.modeling.relative_attention import RelativeAttention
from keras_bertfam.layers.modeling.stack_heads import NoAttention
from keras_bertfam.layers.modeling.sublayers import FeedForward, ResidualSublayer
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RelativeTransformerBlock(keras.layers.Layer):
    """`RelativeAttention` and feed-forward network, each with post-norm.

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
    block = keras_bertfam.layers.RelativeTransformerBlock(
        num_heads=2, head_dim=4, intermediate_dim=32)
    x = keras.random.normal((1, 5, 8))
    relative = keras_bertfam.layers.relative_sinusoids(5, 5, 8)
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
        check_number("num_heads", num_heads, 0)  # where others take 1 or more
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
