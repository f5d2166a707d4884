"""Logits tied to the table of an embedding."""

from typing import Any, Self

import keras
from keras import ops

from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.token_scores import scores_of_logits, token_scores
from keras_bertfam.types import Config, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TiedLogits(keras.layers.Layer):
    """Vocabulary logits: states times the table of the token embedding, and bias.

    Args:
        token_embedding: the `TokenEmbedding` whose table the logits are tied to.

    Call arguments:
        x: float tensor of shape `(batch, count, width)`.
        targets: int tensor of shape `(batch, count)`, the right tokens, or `None`.
        statistics: bool, of what is given for `targets`.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`. With `targets` one of
        shape `(batch, count, 2)`: the cross-entropy in nats, and 1 where the likeliest
        token is the right one, else 0; and with `statistics` two numbers more, the
        logits' log-sum-exp and mean. Logits are then computed in chunks, and again for
        the gradient, if they would be too many.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.tied_logits import TiedLogits
    embedding = TokenEmbedding(100, 8)
    embedding.build()
    layer = TiedLogits(embedding)
    layer(keras.random.normal((2, 5, 8))).shape  # (2, 5, 100)
    ```

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237), section 2.3.
    """

    def __init__(self, token_embedding: TokenEmbedding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.bias = None

    def build(self, input_shape: Shape) -> None:
        self.bias = self.add_weight(
            name="output_bias",
            shape=(self.token_embedding.input_dim,),
            initializer="zeros",
        )
        self.built = True

    def call(
        self, x: Tensor, targets: Tensor | None = None, statistics: bool = False
    ) -> Tensor:
        shape, x_shape = ops.shape(x), tuple(x.shape)
        x = ops.reshape(x, (-1, shape[-1]))
        if targets is None:
            logits = self._logits(x)
            return ops.reshape(logits, (*shape[:-1], self.token_embedding.input_dim))
        pairs = zip(targets.shape, x_shape[:-1], strict=False)
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            raise ValueError(
                "`targets` must be a token for each state of `x`. Received: "
                f"targets.shape={tuple(targets.shape)}, x.shape={x_shape}."
            )
        scores = self._scores(x, ops.reshape(targets, (-1,)), statistics)
        return ops.reshape(scores, (*shape[:-1], scores.shape[-1]))

    def _logits(self, x):
        logits = ops.cast(self.token_embedding(x, reverse=True), "float32")
        return logits if self.bias is None else logits + ops.cast(self.bias, "float32")

    def _scores(self, x, targets, statistics):
        embedding = self.token_embedding
        if embedding.quantization_mode is not None:  # has products of its own
            return scores_of_logits(targets, self._logits(x), statistics)
        tied = embedding.tie_weights
        table = embedding.embeddings if tied else embedding.reverse_embeddings
        table = ops.cast(table, self.compute_dtype)
        bias = None if self.bias is None else ops.convert_to_tensor(self.bias)
        return token_scores(
            x, table if tied else ops.transpose(table), bias, targets, statistics
        )

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.token_embedding.input_dim)

    def compute_output_spec(
        self, x: Any, targets: Any = None, statistics: bool = False
    ) -> keras.KerasTensor:
        shape = self.compute_output_shape(x.shape)
        if targets is not None:
            shape = (*shape[:-1], 4 if statistics else 2)
        return keras.KerasTensor(shape, "float32")

    def get_config(self) -> Config:
        embedding = keras.layers.serialize(self.token_embedding)
        return {**super().get_config(), "token_embedding": embedding}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        embedding = keras.layers.deserialize(config["token_embedding"])
        return cls(**{**config, "token_embedding": embedding})
