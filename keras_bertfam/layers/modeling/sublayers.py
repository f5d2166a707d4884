"""The two sub-layers of a Transformer block, and what goes around each."""

from typing import Any, Self

import keras

from keras_bertfam.layers.modeling.dense import (
    flat_dense,
    get_activation,
    take_positions,
)
from keras_bertfam.layers.modeling.dropout import Dropout
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class FeedForward(keras.layers.Layer):
    """Position-wise feed-forward network: dense, activation, dense.

    Args:
        intermediate_dim: int. Width between the two dense layers.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        initializer: initializer of the kernels.
        dropout: float. Dropout rate between the two dense layers.

    Example:

    ```python
    layer = keras_bertfam.layers.FeedForward(32)
    layer(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: str = "gelu",
        initializer: Initializer = "glorot_uniform",
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        get_activation(activation)  # or an error
        self.activation = activation
        self.initializer = keras.initializers.get(initializer)
        self.dropout_rate = dropout
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        def dense(units, width, name):
            layer = keras.layers.Dense(
                units,
                kernel_initializer=self.initializer.clone(),
                dtype=self.dtype_policy,
                name=name,
            )
            layer.build((None, width))
            return layer

        width = input_shape[-1]
        self.intermediate = dense(self.intermediate_dim, width, "intermediate")
        self.output_dense = dense(width, self.intermediate_dim, "output")
        self.built = True

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = get_activation(self.activation)(flat_dense(self.intermediate, x))
        x = self.dropout(x, training=training)
        return flat_dense(self.output_dense, x)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": self.activation,
            "initializer": keras.initializers.serialize(self.initializer),
            "dropout": self.dropout_rate,
        }


@keras.saving.register_keras_serializable("keras_bertfam")
class ResidualSublayer(keras.layers.Layer):
    """A sub-layer with its dropout, residual connection and layer norm.

    Post-norm: `norm(x + dropout(sublayer(x)))`. Pre-norm:
    `x + dropout(sublayer(norm(x)))`. The norm belongs to the sub-layer, so it
    is shared where the sub-layer is.

    Args:
        sublayer: `keras.layers.Layer` that keeps the shape of its input.
        norm_first: bool. Pre-norm instead of post-norm.
        dropout: float. Dropout rate on the sub-layer's output.
        layer_norm_epsilon: float.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        positions: int tensor of shape `(batch, count)`, or `None`. If given,
            handed to the sub-layer, which computes its output at these positions
            only.
        return_scores: bool. If true, handed to the sub-layer.
        **kwargs: tensors that the sub-layer takes besides, see `SelfAttention`
            and `RelativeAttention`. Pre-norm leaves them as they are.

    Returns:
        What the sub-layer returns, with the residual added to its (first)
        output.

    Example:

    ```python
    layer = keras_bertfam.layers.ResidualSublayer(
        keras_bertfam.layers.FeedForward(32))
    layer(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        sublayer: keras.layers.Layer,
        norm_first: bool = False,
        dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-12,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sublayer = sublayer
        self.norm_first = norm_first
        self.dropout_rate = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        common = {"dtype": self.dtype_policy}
        self.norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, name="norm", **common
        )
        self.dropout = Dropout(dropout, name="dropout", **common)

    def build(self, input_shape: Shape) -> None:
        for layer in (self.sublayer, self.norm):
            if not layer.built:
                layer.build(input_shape)
        self.built = True

    def call(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        return_scores: bool = False,
        training: bool | None = None,
        **kwargs: Tensor,
    ) -> Any:
        residual = x
        if positions is not None:
            residual = take_positions(x, positions)
            kwargs["positions"] = positions
        if return_scores:
            kwargs["return_scores"] = True
        if self.norm_first:
            x = self.norm(x)
        output = self.sublayer(x, **kwargs)
        output, *rest = output if isinstance(output, tuple) else (output,)
        output = residual + self.dropout(output, training=training)
        if not self.norm_first:
            output = self.norm(output)
        return (output, *rest) if rest else output

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "sublayer": keras.layers.serialize(self.sublayer),
            "norm_first": self.norm_first,
            "dropout": self.dropout_rate,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        sublayer = keras.layers.deserialize(config["sublayer"])
        return cls(**{**config, "sublayer": sublayer})
