"""Word vectors from characters: convolutions and highways."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.types import Config, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class Highway(keras.layers.Layer):
    """Highway layer: `g * relu(W x + b) + (1 - g) * x`, with `g = sigmoid(W' x + b')`.

    The gate's bias `b'` begins at -2, so that at first most of `x` goes through.

    Returns:
        Float tensor of the shape of its input.

    Example:

    ```python
    from keras_bertfam.layers.blocks.character_encoder import Highway
    Highway()(keras.random.normal((2, 8))).shape  # (2, 8)
    ```

    Reference: [Srivastava et al., 2015](https://arxiv.org/abs/1505.00387).
    """

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        common = {
            "kernel_initializer": keras.initializers.RandomNormal(stddev=width**-0.5),
            "dtype": self.dtype_policy,
        }
        self.transform = keras.layers.Dense(
            width, activation="relu", name="transform", **common
        )
        self.gate = keras.layers.Dense(
            width,
            activation="sigmoid",
            bias_initializer=keras.initializers.Constant(-2.0),
            name="gate",
            **common,
        )
        self.transform.build(input_shape)
        self.gate.build(input_shape)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        return gate * self.transform(x) + (1 - gate) * x

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class CharacterEncoder(keras.layers.Layer):
    """ELMo's character encoder: from the characters of words to a vector for each word.

    Its parts are an embedding of characters, convolutions of several widths, the
    maximum over the characters of a word, highway layers and a projection.

    Args:
        num_characters: int. Ids are 1 to `num_characters`, and 0 is padding.
        embedding_dim: int. Width of a character's vector.
        filters: sequence of pairs `(width, count)`: `count` filters that span `width`
            characters.
        num_highways: int. Number of highway layers.
        output_dim: int. Width of a word's vector.

    Call arguments:
        character_ids: int tensor `(batch, words, characters)`.

    Returns:
        Float tensor `(batch, words, output_dim)`.

    Example:

    ```python
    from keras_bertfam.layers.blocks.character_encoder import CharacterEncoder
    layer = CharacterEncoder(
        261, embedding_dim=4, filters=[(1, 8), (3, 8)], num_highways=1, output_dim=16)
    layer(keras.ops.ones((2, 5, 50), "int32")).shape  # (2, 5, 16)
    ```

    References: [Kim et al., 2015](https://arxiv.org/abs/1508.06615);
    [Peters et al., 2018](https://arxiv.org/abs/1802.05365), section 3.4.
    """

    def __init__(
        self,
        num_characters: int,
        embedding_dim: int,
        filters: Sequence[Sequence[int]],
        num_highways: int,
        output_dim: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_characters = num_characters
        self.embedding_dim = embedding_dim
        self.filters = [[int(width), int(count)] for width, count in filters]
        self.num_highways = num_highways
        self.output_dim = output_dim
        common = {"dtype": self.dtype_policy}
        uniform = keras.initializers.RandomUniform(-0.05, 0.05)
        self.convolutions = [
            keras.layers.Conv1D(
                count,
                width,
                kernel_initializer=uniform.clone(),
                name=f"convolution_{number}",
                **common,
            )
            for number, (width, count) in enumerate(self.filters)
        ]
        self.highways = [
            Highway(name=f"highway_{number}", **common)
            for number in range(num_highways)
        ]
        total = sum(count for _, count in self.filters)
        self.projection = keras.layers.Dense(
            output_dim,
            kernel_initializer=keras.initializers.RandomNormal(stddev=total**-0.5),
            name="projection",
            **common,
        )

    def build(self, input_shape: Shape | None = None) -> None:
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_characters, self.embedding_dim),
            initializer=keras.initializers.RandomUniform(-1.0, 1.0),
        )
        for layer in self.convolutions:
            layer.build((None, None, self.embedding_dim))
        width = sum(count for _, count in self.filters)
        for layer in (*self.highways, self.projection):
            layer.build((None, width))
        self.built = True

    def call(self, character_ids: Tensor) -> Tensor:
        ids = ops.cast(character_ids, "int32")
        batch, words, _ = ops.shape(ids)
        ids = ops.reshape(ids, (-1, ids.shape[2]))
        table = ops.cast(ops.convert_to_tensor(self.embeddings), self.compute_dtype)
        # Padding gets a row of zeros. The gradient of a concatenation is dense.
        table = ops.concatenate([ops.zeros_like(table[:1]), table], axis=0)
        x = ops.take(table, ids, axis=0)
        found = [ops.max(layer(x), axis=1) for layer in self.convolutions]
        x = ops.relu(ops.concatenate(found, axis=-1))
        for layer in self.highways:
            x = layer(x)
        return ops.reshape(self.projection(x), (batch, words, self.output_dim))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:2], self.output_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_characters": self.num_characters,
            "embedding_dim": self.embedding_dim,
            "filters": self.filters,
            "num_highways": self.num_highways,
            "output_dim": self.output_dim,
        }
