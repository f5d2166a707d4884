"""Heads that turn a row's summary into classes, or into a vector."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import get_activation
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SummaryHead(keras.layers.Layer):
    """Logits of a sequence: dropout, dense and activation, dropout, dense.

    Args:
        num_classes: int. Width of the output.
        hidden_dim: int or `None`. Width of the first dense layer. `None` for no such
            layer, for example after a `Pooler`.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        dropout: float. Dropout rate before the last dense layer.
        input_dropout: float. Dropout rate before the first dense layer.
        initializer: initializer of the kernels.
        norm_epsilon: float or `None`. A number adds a layer norm after the activation;
            then the norm and the first dense layer have no biases.

    Call arguments:
        x: float tensor of shape `(..., width)`, one state for each sequence.

    Returns:
        float32 tensor of shape `(..., num_classes)`.

    Example:

    ```python
    from keras_bertfam.layers.heads.summary_heads import SummaryHead
    head = SummaryHead(3, hidden_dim=8)
    head(keras.random.normal((2, 8))).shape  # (2, 3)
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.1;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 5.1.
    """

    def __init__(
        self,
        num_classes: int,
        hidden_dim: int | None = None,
        activation: str | None = "tanh",
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        initializer: Initializer = "glorot_uniform",
        norm_epsilon: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.hidden_dim = hidden_dim
        get_activation(activation)  # or an error
        self.activation = activation
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.initializer = keras.initializers.get(initializer)
        self.norm_epsilon = norm_epsilon
        self.dense = self.norm = None
        if hidden_dim is not None:
            self.dense = self._dense(hidden_dim, "dense", norm_epsilon is None)
            if norm_epsilon is not None:
                self.norm = keras.layers.LayerNormalization(
                    epsilon=norm_epsilon,
                    center=False,
                    dtype=self.dtype_policy,
                    name="norm",
                )
        self.logits = self._dense(num_classes, "logits")
        self._first_dropout = Dropout(
            input_dropout, dtype=self.dtype_policy, name="input_dropout"
        )
        self._last_dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def _dense(self, units, name, use_bias=True):
        return keras.layers.Dense(
            units,
            use_bias=use_bias,
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        if self.dense is not None:
            self.dense.build((None, width))
            width = self.hidden_dim
            if self.norm is not None:
                self.norm.build((None, width))
        self.logits.build((None, width))
        self.built = True

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        return self.logits_of(self.transformed(x, training), training)

    def transformed(self, x: Tensor, training: bool | None = None) -> Tensor:
        """Compute what the logits are made of, before their dropout.

        Args:
            x: float tensor of shape `(..., width)`.
            training: bool or `None`.

        Returns:
            Float tensor of shape `(..., hidden_dim)`, or `x` without such a layer.
        """
        if self.dense is None:
            return x
        x = self.dense(self._first_dropout(x, training=training))
        x = get_activation(self.activation)(x)
        return x if self.norm is None else self.norm(x)

    def logits_of(self, x: Tensor, training: bool | None = None) -> Tensor:
        """Compute logits of what `transformed` gives, float32 `(..., num_classes)`."""
        x = self._last_dropout(x, training=training)
        return ops.cast(self.logits(x), "float32")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.num_classes)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "hidden_dim": self.hidden_dim,
            "activation": self.activation,
            "dropout": self.dropout,
            "input_dropout": self.input_dropout,
            "initializer": keras.initializers.serialize(self.initializer),
            "norm_epsilon": self.norm_epsilon,
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class VectorProjection(keras.layers.Layer):
    """A text's vector from the one state that stands for it: dense, norm, dropout.

    Args:
        projection_dim: int. Width of the vector. Defaults to `128`.
        norm: bool. Whether a layer norm follows the dense layer.
        dropout: float. Dropout rate of the vector, in training.
        epsilon: float. Epsilon of the norm.
        initializer: initializer of the kernel.

    Call arguments:
        x: float tensor of shape `(..., hidden_dim)`.

    Returns:
        float32 tensor of shape `(..., projection_dim)`.

    Example:

    ```python
    from keras_bertfam.layers.heads.summary_heads import VectorProjection
    layer = VectorProjection(4)
    layer(keras.random.normal((2, 8))).shape  # (2, 4)
    ```

    Reference: [Lee et al., 2019](https://arxiv.org/abs/1906.00300), and its released
    code.
    """

    def __init__(
        self,
        projection_dim: int = 128,
        norm: bool = True,
        dropout: float = 0.1,
        epsilon: float = 1e-3,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.projection_dim = projection_dim
        self.dropout = dropout
        self.epsilon = epsilon
        self.initializer = keras.initializers.get(initializer)
        self.dense = keras.layers.Dense(
            projection_dim,
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.norm = None
        if norm:
            self.norm = keras.layers.LayerNormalization(
                epsilon=epsilon, dtype=self.dtype_policy, name="norm"
            )
        self._dropout = Dropout(dropout, dtype="float32", name="dropout")

    def build(self, input_shape: Shape) -> None:
        self.dense.build((None, input_shape[-1]))
        if self.norm is not None:
            self.norm.build((None, self.projection_dim))
        self.built = True

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = self.dense(x)
        x = x if self.norm is None else self.norm(x)
        return self._dropout(ops.cast(x, "float32"), training=training)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.projection_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "projection_dim": self.projection_dim,
            "norm": self.norm is not None,
            "dropout": self.dropout,
            "epsilon": self.epsilon,
            "initializer": keras.initializers.serialize(self.initializer),
        }
