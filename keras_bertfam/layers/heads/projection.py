"""From a state to the vector that a text is found by."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class VectorProjection(keras.layers.Layer):
    """A text's vector from the one state that stands for it: dense, norm, dropout.

    Args:
        projection_dim: int. Width of the vector. Defaults to `128`.
        norm: bool. Whether a layer norm follows the dense layer.
        dropout: float. Dropout rate of the vector, in training.
        epsilon: float, of the norm.
        initializer: initializer of the kernel.

    Call arguments:
        x: float tensor of shape `(..., hidden_dim)`.

    Returns:
        float32 tensor of shape `(..., projection_dim)`.

    Example:

    ```python
    from keras_bertfam.layers.heads.projection import VectorProjection
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
