"""A score for each short span of a row, of its first and last token together."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.types import Config, Initializer, Shape, Tensor

# The score of what is no span, which has no part in any sum of probabilities.
NOWHERE = -1e30


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SpanScores(keras.layers.Layer):
    """Scores of all spans of up to `max_length` tokens.

    The states of the first and the last token go through a dense layer each; the sum,
    a ReLU and a norm are followed by a dense layer of one unit: a perceptron of both
    states side by side.

    Args:
        max_length: int. The most tokens of a span. Defaults to `10`.
        hidden_dim: int. Width of the hidden layer. Defaults to `256`.
        norm_epsilon: float. Defaults to `1e-3`.
        initializer: initializer of the kernels.

    Call arguments:
        states: float tensor `(batch, length, width)`.
        allowed: bool tensor `(batch, length)`: the tokens that spans are made of.

    Returns:
        float32 tensor `(batch, length, max_length)`: of the span of `n + 1` tokens that
        begins at token `i` at `[:, i, n]`; -1e30 where there is none.

    Example:

    ```python
    layer = keras_bertfam.layers.SpanScores(max_length=3)
    scores = layer(keras.random.normal((2, 5, 8)), keras.ops.ones((2, 5), "bool"))
    scores.shape  # (2, 5, 3)
    ```

    References: [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 3.2, and
    the released code, for width and norm; [Guu et al.,
    2020](https://arxiv.org/abs/2002.08909), section 3.2.
    """

    def __init__(
        self,
        max_length: int = 10,
        hidden_dim: int = 256,
        norm_epsilon: float = 1e-3,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_length = max_length
        self.hidden_dim = hidden_dim
        self.norm_epsilon = norm_epsilon
        self.initializer = keras.initializers.get(initializer)
        self.start = self._dense(hidden_dim, "start")
        self.end = self._dense(hidden_dim, "end", use_bias=False)  # the sum has one
        self.norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.score = self._dense(1, "score")

    def _dense(self, units, name, **kwargs):
        return keras.layers.Dense(
            units,
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )

    def build(self, input_shape: Shape) -> None:
        for layer in (self.start, self.end):
            layer.build(input_shape)
        for layer in (self.norm, self.score):
            layer.build((*input_shape[:-1], self.max_length, self.hidden_dim))
        self.built = True

    def call(self, states: Tensor, allowed: Tensor) -> Tensor:
        allowed = ops.cast(allowed, "bool")
        length, most = ops.shape(states)[1], self.max_length
        places = ops.expand_dims(ops.arange(length), 1) + ops.arange(most)
        # Spans that would end beyond the row.
        ends = ops.pad(self.end(states), [[0, 0], [0, most], [0, 0]])
        inside = ops.pad(allowed, [[0, 0], [0, most]])
        ends, inside_ends = (ops.take(x, places, axis=1) for x in (ends, inside))
        hidden = ops.relu(ops.expand_dims(self.start(states), 2) + ends)
        scores = ops.cast(self.score(self.norm(hidden))[..., 0], "float32")
        there = ops.expand_dims(allowed, 2) & inside_ends
        return ops.where(there, scores, NOWHERE)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.max_length)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "hidden_dim": self.hidden_dim,
            "norm_epsilon": self.norm_epsilon,
            "initializer": keras.initializers.serialize(self.initializer),
        }
