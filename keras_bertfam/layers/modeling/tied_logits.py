"""Logits tied to the table of an embedding."""

from typing import Any, Self

import keras
from keras import ops

from keras_bertfam.layers.modeling.embedding import TokenEmbedding
from keras_bertfam.types import Config, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TiedLogits(keras.layers.Layer):
    """Vocabulary logits: states times the table of the token embedding, and bias.

    Args:
        token_embedding: the `TokenEmbedding` whose table the logits are tied to.

    Call arguments:
        x: float tensor of shape `(batch, count, width)`.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`.

    Example:

    ```python
    embedding = keras_bertfam.layers.TokenEmbedding(100, 8)
    embedding.build()
    layer = keras_bertfam.layers.TiedLogits(embedding)
    layer(keras.random.normal((2, 5, 8))).shape  # (2, 5, 100)
    ```

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237), section 2.3.
    """

    def __init__(self, token_embedding: TokenEmbedding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.token_embedding = token_embedding

    def build(self, input_shape: Shape) -> None:
        self.bias = self.add_weight(
            name="output_bias",
            shape=(self.token_embedding.input_dim,),
            initializer="zeros",
        )
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        shape = ops.shape(x)
        x = ops.reshape(x, (-1, shape[-1]))
        logits = ops.cast(self.token_embedding(x, reverse=True), "float32")
        logits += ops.cast(self.bias, "float32")
        return ops.reshape(logits, (*shape[:-1], self.token_embedding.input_dim))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.token_embedding.input_dim)

    def get_config(self) -> Config:
        embedding = keras.layers.serialize(self.token_embedding)
        return {**super().get_config(), "token_embedding": embedding}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        embedding = keras.layers.deserialize(config["token_embedding"])
        return cls(**{**config, "token_embedding": embedding})
