"""Logits of the next token."""

from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import flat_dense
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.tied_logits import TiedLogits
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LanguageModelHead(TiedLogits):
    """Vocabulary logits: states times the output table of the token embedding.

    That table is the token table, or one of its own if the embedding has
    `tie_weights=False`. There is no bias, and so no weight of the head's own, but for
    the projection of states to the width of a factorised embedding.

    Args:
        token_embedding: `TokenEmbedding`.
        scale: float. What states are multiplied by before.
        initializer: initializer of that projection.

    Call arguments:
        x: float tensor of shape `(batch, count, width)`.
        targets: int tensor of shape `(batch, count)`, or `None`, see `TiedLogits`.
        statistics: bool, see `TiedLogits`.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`, or with `targets`
        `(batch, count, 2 or 4)`, see `TiedLogits`.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.lm_head import LanguageModelHead
    embedding = TokenEmbedding(100, 8)
    embedding.build()
    head = LanguageModelHead(embedding, scale=8**-0.5)
    head(keras.random.normal((2, 5, 8))).shape  # (2, 5, 100)
    ```

    References: Radford et al., 2018, section 3.1; scale:
    [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), its released code.
    """

    def __init__(
        self,
        token_embedding: TokenEmbedding,
        scale: float = 1.0,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(token_embedding, **kwargs)
        self.scale = scale
        self.initializer = keras.initializers.get(initializer)
        self.projection: Any = None

    def build(self, input_shape: Shape) -> None:
        width = self.token_embedding.output_dim
        if input_shape[-1] != width:
            self.projection = keras.layers.Dense(
                width,
                use_bias=False,
                kernel_initializer=self.initializer.clone(),
                dtype=self.dtype_policy,
                name="projection",
            )
            self.projection.build((None, input_shape[-1]))
        self.built = True

    def call(
        self, x: Tensor, targets: Tensor | None = None, statistics: bool = False
    ) -> Tensor:
        if self.projection is not None:
            x = flat_dense(self.projection, x)
        return super().call(x * self.scale, targets, statistics)

    def get_config(self) -> Config:
        initializer = keras.initializers.serialize(self.initializer)
        own = {"scale": self.scale, "initializer": initializer}
        return {**super().get_config(), **own}
