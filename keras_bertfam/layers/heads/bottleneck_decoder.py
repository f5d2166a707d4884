"""The decoder of RetroMAE: a row's tokens from one vector and drawn contexts."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.attention.cross_attention import CrossAttention
from keras_bertfam.layers.blocks.sublayers import FeedForward, ResidualSublayer
from keras_bertfam.layers.heads.heads import PositionQueries
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class BottleneckDecoder(keras.layers.Layer):
    """A post-norm Transformer block whose queries know only a row's vector and places.

    A token's query is the sum of the row's vector and the vector of its place. Keys and
    values are the embeddings of the row's tokens, with the row's vector in place of the
    first.

    Args:
        num_heads: int.
        head_dim: int.
        intermediate_dim: int.
        max_positions: int or `None`. Rows of the layer's own table of positions, which
            are also added to the embeddings. `None`: each call is given `positions`.
        activation: str, see `FeedForward`.
        dropout: float. Dropout rate of the two sub-layers' outputs.
        attention_dropout: float. Dropout rate of attention probabilities.
        layer_norm_epsilon: float.
        initializer: initializer of kernels and table.

    Call arguments:
        summary: float tensor `(batch, 1, width)`, each row's vector.
        embeddings: float tensor `(batch, length, width)`.
        contexts: bool tensor `(batch, length, length)`. Element `(b, i, j)` tells
            whether token `i` attends to token `j`.
        positions: float tensor that broadcasts to the shape of `embeddings`, the
            vectors of places; `None` for a layer with its own table.

    Returns:
        Float tensor `(batch, length, width)`.

    Example:

    ```python
    from keras_bertfam.layers.heads.bottleneck_decoder import BottleneckDecoder
    layer = BottleneckDecoder(
        num_heads=2, head_dim=4, intermediate_dim=32, max_positions=64)
    summary, embeddings = keras.random.normal((1, 1, 8)), keras.random.normal((1, 5, 8))
    contexts = keras.ops.ones((1, 5, 5), "bool")
    layer(summary, embeddings, contexts).shape  # (1, 5, 8)
    ```

    Reference: [Xiao et al., 2022](https://arxiv.org/abs/2205.12035), section 3.3.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        intermediate_dim: int,
        max_positions: int | None = None,
        activation: str = "gelu",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        layer_norm_epsilon: float = 1e-12,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._arguments = {
            "num_heads": num_heads,
            "head_dim": head_dim,
            "intermediate_dim": intermediate_dim,
            "max_positions": max_positions,
            "activation": activation,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "layer_norm_epsilon": layer_norm_epsilon,
        }
        self.max_positions = max_positions
        self.initializer = keras.initializers.get(initializer)
        common = {"dtype": self.dtype_policy}
        around: dict[str, Any] = {
            "dropout": dropout,
            "layer_norm_epsilon": layer_norm_epsilon,
        }
        self.attention = ResidualSublayer(
            CrossAttention(
                num_heads,
                head_dim,
                dropout=attention_dropout,
                initializer=self.initializer.clone(),
                name="cross_attention",
                **common,
            ),
            name="attention",
            **around,
            **common,
        )
        self.feedforward = ResidualSublayer(
            FeedForward(
                intermediate_dim,
                activation=activation,
                initializer=self.initializer.clone(),
                name="feed_forward",
                **common,
            ),
            name="ffn",
            **around,
            **common,
        )
        self.places: PositionQueries | None = None

    def build(self, summary_shape: Shape) -> None:
        width = summary_shape[-1]
        if self.max_positions is not None:
            self.places = PositionQueries(
                self.max_positions,
                width,
                self.initializer.clone(),
                name="places",
                dtype=self.dtype_policy,
            )
        for layer in (self.attention, self.feedforward, self.places):
            if layer is not None:
                layer.build((None, None, width))
        self.built = True

    def call(
        self,
        summary: Tensor,
        embeddings: Tensor,
        contexts: Tensor,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        if self.places is not None:
            places = ops.arange(ops.shape(embeddings)[1], dtype="int32")
            positions = self.places(ops.expand_dims(places, 0))
            embeddings = embeddings + positions
        context = ops.concatenate([summary, embeddings[:, 1:]], axis=1)
        x = self.attention(
            summary + ops.cast(positions, summary.dtype),
            context=context,
            cross_mask=contexts,
            training=training,
        )
        return self.feedforward(x, training=training)

    def compute_output_shape(
        self, summary_shape: Shape, embeddings_shape: Shape, *args: Any, **kwargs: Any
    ) -> Shape:
        return embeddings_shape

    def get_config(self) -> Config:
        own = keras.initializers.serialize(self.initializer)
        return {**super().get_config(), **self._arguments, "initializer": own}
