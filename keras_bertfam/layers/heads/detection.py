"""Heads that judge or rewrite the tokens of a corrupted sequence."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.blocks.dense import flat_dense, get_activation
from keras_bertfam.layers.heads.heads import MaskedLMHead
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class ReplacedTokenHead(keras.layers.Layer):
    """Says of each token whether it was replaced: dense, activation, dense.

    Args:
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        initializer: initializer of the kernels.

    Call arguments:
        x: float tensor of shape `(batch, length, hidden_dim)`.

    Returns:
        float32 tensor of shape `(batch, length)`: logits, positive for replaced.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 2.

    Example:

    ```python
    from keras_bertfam.layers.heads.detection import ReplacedTokenHead
    head = ReplacedTokenHead()
    head(keras.random.normal((2, 5, 8))).shape  # (2, 5)
    ```
    """

    def __init__(
        self,
        activation: str = "gelu",
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        get_activation(activation)  # or an error
        self.activation = activation
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        common = {"dtype": self.dtype_policy}
        for name, units in (("dense", width), ("output_dense", 1)):
            kernel_initializer = self.initializer.clone()
            layer = keras.layers.Dense(
                units, kernel_initializer=kernel_initializer, name=name, **common
            )
            layer.build((None, width))
            setattr(self, name, layer)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        x = get_activation(self.activation)(flat_dense(self.dense, x))
        logits = flat_dense(self.output_dense, x)
        return ops.cast(ops.squeeze(logits, -1), "float32")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape[:-1]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "activation": self.activation,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@keras.saving.register_keras_serializable("keras_bertfam")
class CopyingMaskedLMHead(MaskedLMHead):
    """Masked LM head that may also copy its input token.

    With the copy probability `D = sigmoid(w·x + b)`, the probability of a token is
    `D` if it is the input token, plus `1 - D` times that of the softmax.

    Takes the arguments of `MaskedLMHead`.

    Call arguments:
        x: float tensor of shape `(batch, count, hidden_dim)`.
        token_ids: int tensor of shape `(batch, count)`, the input tokens.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`: the logarithms
        of the probabilities.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555),
    "Efficiency Analysis", All-Tokens MLM.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.detection import CopyingMaskedLMHead
    embedding = TokenEmbedding(100, 8)
    embedding.build()
    head = CopyingMaskedLMHead(embedding)
    head(keras.random.normal((1, 2, 8)), keras.ops.array([[7, 9]])).shape
    # (1, 2, 100)
    ```
    """

    def build(self, input_shape: Shape) -> None:
        self.copy_gate = keras.layers.Dense(
            1,
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name="copy_gate",
        )
        self.copy_gate.build((None, input_shape[-1]))
        super().build(input_shape)

    def call(  # type: ignore[override]
        self, x: Tensor, token_ids: Tensor
    ) -> Tensor:
        gate = ops.cast(flat_dense(self.copy_gate, x), "float32")
        spread = ops.log_sigmoid(-gate) + ops.log_softmax(super().call(x))
        vocabulary = ops.arange(self.token_embedding.input_dim, dtype="int32")
        ids = ops.expand_dims(ops.cast(token_ids, "int32"), -1)
        copied = ops.logaddexp(ops.log_sigmoid(gate), spread)
        return ops.where(ops.equal(vocabulary, ids), copied, spread)

    def compute_output_shape(self, input_shape: Shape, *args: Any) -> Shape:
        return super().compute_output_shape(input_shape)

    def compute_output_spec(  # type: ignore[override]
        self, x: Any, token_ids: Any
    ) -> keras.KerasTensor:
        return super().compute_output_spec(x)
