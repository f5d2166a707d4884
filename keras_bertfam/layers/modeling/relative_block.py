"""A Transformer block with relative attention."""

import keras

from keras_bertfam.layers.modeling.relative_attention import RelativeAttention
from keras_bertfam.layers.modeling.sublayers import FeedForward, ResidualSublayer


@keras.saving.register_keras_serializable("keras_bertfam")
class RelativeTransformerBlock(keras.layers.Layer):
    """`RelativeAttention` and feed-forward network, each with post-norm.

    Args:
        num_heads: int.
        head_dim: int.
        intermediate_dim: int. Inner width of the feed-forward sub-layer.
        tied_biases: bool. See `RelativeAttention`.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        dropout: float. Dropout rate on each sub-layer's output and within the
            feed-forward network.
        attention_dropout: float. Dropout rate on attention probabilities.
        layer_norm_epsilon: float.
        initializer: initializer of the kernels.

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
        num_heads,
        head_dim,
        intermediate_dim,
        tied_biases=False,
        activation="gelu",
        dropout=0.0,
        attention_dropout=0.0,
        layer_norm_epsilon=1e-12,
        initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.intermediate_dim = intermediate_dim
        self.tied_biases = tied_biases
        self.activation = activation
        self.dropout_rate = dropout
        self.attention_dropout = attention_dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer = keras.initializers.get(initializer)
        common = {"dtype": self.dtype_policy}
        self.attention = ResidualSublayer(
            RelativeAttention(
                num_heads,
                head_dim,
                tied_biases=tied_biases,
                dropout=attention_dropout,
                initializer=self.initializer.clone(),
                name="relative_attention",
                **common,
            ),
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

    def build(self, input_shape):
        for layer in (self.attention, self.feedforward):
            layer.build(input_shape)
        self.built = True

    def call(
        self,
        x,
        context,
        relative,
        return_scores=False,
        training=None,
        **kwargs,
    ):
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

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape

    def get_config(self):
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
        }
