"""The head that predicts a token of a span from the span's borders."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import flat_dense, get_activation
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.heads import MaskedLMHead
from keras_bertfam.types import Config, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SpanBoundaryHead(MaskedLMHead):
    """Vocabulary logits of a span's token, from the states beside the span.

    A dense layer with activation and norm joins three inputs: the states of the tokens
    before and after the span, and a vector of the place within it. A `MaskedLMHead`
    follows.

    Args:
        token_embedding: see `MaskedLMHead`.
        max_span_length: int. Rows of the table of places. Defaults to `15`.
        position_dim: int. Width of that table. Defaults to `200`.
        **kwargs: other arguments of `MaskedLMHead`.

    Call arguments:
        left: float tensor of shape `(batch, count, hidden_dim)`: the states of
            the tokens before the spans.
        right: float tensor of that shape: the states of the tokens after the spans.
        places: int tensor of shape `(batch, count)`: how far a token is from the first
            token of its span. Places beyond the table have its last row.
        targets: int tensor of shape `(batch, count)`, or `None`, see `TiedLogits`.
        statistics: bool, see `TiedLogits`.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`, or with `targets`
        `(batch, count, 2 or 4)`, see `TiedLogits`.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.span_boundary import SpanBoundaryHead
    embedding = TokenEmbedding(100, 8)
    embedding.build()
    head = SpanBoundaryHead(embedding)
    states = keras.random.normal((2, 5, 8))
    head(states, states, keras.ops.zeros((2, 5), "int32")).shape  # (2, 5, 100)
    ```

    Reference: [Joshi et al., 2019](https://arxiv.org/abs/1907.10529),
    section 3.2.
    """

    def __init__(
        self,
        token_embedding: TokenEmbedding,
        max_span_length: int = 15,
        position_dim: int = 200,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_embedding, **kwargs)
        self.max_span_length = max_span_length
        self.position_dim = position_dim

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        common = {"dtype": self.dtype_policy}
        self.joining_dense = keras.layers.Dense(
            width,
            kernel_initializer=self.initializer.clone(),
            name="joining_dense",
            **common,
        )
        self.joining_norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, name="joining_norm", **common
        )
        self.joining_dense.build((None, 2 * width + self.position_dim))
        self.joining_norm.build((None, None, width))
        self.position_table = self.add_weight(
            name="position_table",
            shape=(self.max_span_length, self.position_dim),
            initializer=self.initializer.clone(),
        )
        super().build(input_shape)

    def call(  # type: ignore[override]
        self,
        left: Tensor,
        right: Tensor,
        places: Tensor,
        targets: Tensor | None = None,
        statistics: bool = False,
    ) -> Tensor:
        table = ops.cast(self.position_table, self.compute_dtype)
        places = ops.clip(ops.cast(places, "int32"), 0, self.max_span_length - 1)
        # A product has a dense gradient; a lookup's gradient isn't dense.
        places = ops.one_hot(places, self.max_span_length, dtype=table.dtype)
        x = ops.concatenate([left, right, ops.matmul(places, table)], axis=-1)
        x = get_activation(self.activation)(flat_dense(self.joining_dense, x))
        return super().call(self.joining_norm(x), targets, statistics)

    def compute_output_shape(
        self, left: Shape, right: Shape | None = None, places: Shape | None = None
    ) -> Shape:
        return super().compute_output_shape(left)

    def compute_output_spec(  # type: ignore[override]
        self,
        left: Any,
        right: Any,
        places: Any,
        targets: Any = None,
        statistics: bool = False,
    ) -> keras.KerasTensor:
        return super().compute_output_spec(left, targets, statistics)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_span_length": self.max_span_length,
            "position_dim": self.position_dim,
        }
