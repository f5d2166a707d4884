"""Heads for answers in a text: logits or scores of spans, and the best spans."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import get_activation
from keras_bertfam.types import Config, Initializer, Shape, Tensor

# The score in place of a span that doesn't exist; its probability is 0.
NOWHERE = -1e30


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SpanScores(keras.layers.Layer):
    """Scores of all spans of up to `max_length` tokens.

    The states of a span's first and last token go through one dense layer each. Their
    sum goes through a ReLU, a norm, and a dense layer of one unit. That is a perceptron
    of the two states side by side.

    Args:
        max_length: int. The most tokens of a span. Defaults to `10`.
        hidden_dim: int. Width of the hidden layer. Defaults to `256`.
        norm_epsilon: float. Defaults to `1e-3`.
        initializer: initializer of the kernels.

    Call arguments:
        states: float tensor `(batch, length, width)`.
        allowed: bool tensor `(batch, length)`, true for tokens that can be in spans.

    Returns:
        float32 tensor `(batch, length, max_length)`. Element `[:, i, n]` is the score
        of the span of `n + 1` tokens that begins at token `i`; -1e30 if there is no
        such span.

    Example:

    ```python
    from keras_bertfam.layers.heads.span_heads import SpanScores
    layer = SpanScores(max_length=3)
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
        self.end = self._dense(hidden_dim, "end", use_bias=False)  # `start` has a bias
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
        # Padding for spans that would end beyond the row.
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


@keras.saving.register_keras_serializable("keras_bertfam")
class SpanHead(keras.layers.Layer):
    """Logits of an answer's first and last token, independent of each other.

    Args:
        initializer: initializer of the kernel.

    Call arguments:
        states: float tensor `(batch, length, width)`.

    Returns:
        Two float32 tensors `(batch, length)`.

    Example:

    ```python
    from keras_bertfam.layers.heads.span_heads import SpanHead
    head = SpanHead()
    start_logits, end_logits = head(keras.random.normal((2, 5, 8)))
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    4.2.
    """

    def __init__(
        self, initializer: Initializer = "glorot_uniform", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)
        self.logits = _dense(self, 2, "logits")

    def build(self, input_shape: Shape) -> None:
        self.logits.build(input_shape)
        self.built = True

    def call(self, states: Tensor) -> Any:
        logits = ops.cast(self.logits(states), "float32")
        return logits[..., 0], logits[..., 1]

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape[:-1], input_shape[:-1]

    def get_config(self) -> Config:
        initializer = keras.initializers.serialize(self.initializer)
        return {**super().get_config(), "initializer": initializer}


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class TransformedSpanHead(SpanHead):
    """`SpanHead` after a dense layer, an activation and a norm, as in ModernBERT.

    Dense layer and norm have no biases. Calls are those of `SpanHead`.

    Args:
        hidden_dim: int. Width of the dense layer.
        activation: see `SummaryHead`.
        norm_epsilon: float.
        initializer: initializer of the kernels.

    Example:

    ```python
    from keras_bertfam.layers.heads.span_heads import TransformedSpanHead
    head = TransformedSpanHead(8)
    start_logits, end_logits = head(keras.random.normal((2, 5, 8)))
    ```

    Reference: [Warner et al., 2024](https://arxiv.org/abs/2412.13663), released code.
    """

    def __init__(
        self,
        hidden_dim: int,
        activation: str | None = "gelu",
        norm_epsilon: float | None = 1e-5,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(initializer, **kwargs)
        self.hidden_dim = hidden_dim
        get_activation(activation)  # or an error
        self.activation = activation
        self.norm_epsilon = norm_epsilon
        self.dense = _dense(self, hidden_dim, "dense", use_bias=False)
        self.norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, center=False, dtype=self.dtype_policy, name="norm"
        )

    def build(self, input_shape: Shape) -> None:
        self.dense.build(input_shape)
        shape = (*input_shape[:-1], self.hidden_dim)
        self.norm.build(shape)
        super().build(shape)

    def call(self, states: Tensor) -> Any:
        return super().call(
            self.norm(get_activation(self.activation)(self.dense(states)))
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "activation": self.activation,
            "norm_epsilon": self.norm_epsilon,
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ConditionalSpanHead(SpanHead):
    """Logits of an answer's end given its start, and a logit of having no answer.

    XLNet and ELECTRA answer SQuAD 2.0 with such a head. It has three parts:

    - the call gives the start's logits, float32 `(batch, length)`, for states `(batch,
      length, width)`;
    - `end_logits` joins each state with the state of the start. A dense layer with
      tanh, a norm, and a dense layer follow;
    - `no_answer_logit` joins the state of [CLS] with the mean of the states, weighted
      by the start's probabilities. A dense layer with tanh, and a dense layer follow.

    Args:
        initializer: initializer of the kernels.
        layer_norm_epsilon: float.

    Example:

    ```python
    from keras_bertfam.layers.heads.span_heads import ConditionalSpanHead
    head = ConditionalSpanHead()
    states = keras.random.normal((2, 5, 8))
    start_logits = head(states)
    end_logits = head.end_logits(states, keras.ops.array([[1], [3]]))[:, 0]
    ```

    References: [Yang et al., 2019](https://arxiv.org/abs/1906.08237); [Clark et
    al., 2020](https://arxiv.org/abs/2003.10555), the released code of both.
    """

    def __init__(
        self,
        initializer: Initializer = "glorot_uniform",
        layer_norm_epsilon: float = 1e-12,
        **kwargs: Any,
    ) -> None:
        super().__init__(initializer, **kwargs)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.logits = _dense(self, 1, "logits")
        self.end_dense: Any = None
        self.norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.end = _dense(self, 1, "end")
        self.answer_dense: Any = None
        self.answer = _dense(self, 1, "answer", use_bias=False)

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        self.end_dense = _dense(self, width, "end_dense", activation="tanh")
        self.answer_dense = _dense(self, width, "answer_dense", activation="tanh")
        for layer in (self.end_dense, self.answer_dense):
            layer.build((None, None, 2 * width))
        for layer in (self.logits, self.norm, self.end, self.answer):
            layer.build((None, None, width))
        self.built = True

    def call(self, states: Tensor) -> Tensor:
        return ops.cast(self.logits(states), "float32")[..., 0]

    def end_logits(self, states: Tensor, starts: Tensor) -> Tensor:
        """Compute logits of the last token, given the first.

        Args:
            states: float tensor `(batch, length, width)`.
            starts: int tensor `(batch, count)`.

        Returns:
            float32 tensor `(batch, count, length)`.
        """
        first = _states_at(states, starts)
        length, count = ops.shape(states)[1], ops.shape(starts)[1]
        first = ops.repeat(ops.expand_dims(first, 2), length, axis=2)
        each = ops.repeat(ops.expand_dims(states, 1), count, axis=1)
        x = self.norm(self.end_dense(ops.concatenate([each, first], axis=-1)))
        return ops.cast(self.end(x), "float32")[..., 0]

    def no_answer_logit(
        self, states: Tensor, start_logits: Tensor, cls_positions: Tensor
    ) -> Tensor:
        """Compute the logit of having no answer.

        Args:
            states: float tensor `(batch, length, width)`.
            start_logits: float tensor `(batch, length)`.
            cls_positions: int tensor `(batch, 1)`, the positions of [CLS].

        Returns:
            float32 tensor `(batch,)`.
        """
        weights = ops.cast(ops.softmax(start_logits), states.dtype)
        mean = ops.matmul(ops.expand_dims(weights, 1), states)[:, 0]
        summary = _states_at(states, cls_positions)[:, 0]
        x = self.answer_dense(ops.concatenate([mean, summary], axis=-1))
        return ops.cast(self.answer(x), "float32")[..., 0]

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape[:-1]

    def get_config(self) -> Config:
        config = super().get_config()
        return {**config, "layer_norm_epsilon": self.layer_norm_epsilon}


def _dense(layer, units, name, **kwargs):
    return keras.layers.Dense(
        units,
        kernel_initializer=layer.initializer.clone(),
        dtype=layer.dtype_policy,
        name=name,
        **kwargs,
    )


def _states_at(states, positions):
    index = ops.expand_dims(ops.cast(positions, "int32"), -1)
    return ops.take_along_axis(states, index, axis=1)


def best_spans(
    start_logits: Tensor,
    end_logits: Tensor,
    start_mask: Tensor,
    end_mask: Tensor,
    count: int,
    max_length: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the allowed spans with the greatest sums of start and end logit.

    Args:
        start_logits: float tensor `(batch, length)`.
        end_logits: float tensor of that shape.
        start_mask: bool tensor of that shape: where spans may start.
        end_mask: bool tensor of that shape: where spans may end.
        count: int. How many spans to return.
        max_length: int. The most tokens in a span.

    Returns:
        Tuple of the first and last positions, int32 `(batch, count)`, and the scores,
        float32 of that shape, the greatest first. Missing spans have scores of -1e30 or
        less.
    """
    # Example: start logits 1 5 2, end logits 4 0 3, all allowed, and up to 2 tokens.
    # The spans 0-0, 0-1, 1-1, 1-2, 2-2 have the sums 5, 1, 5, 8, 5; the best is 1-2.
    length = ops.shape(start_logits)[1]
    starts = ops.where(start_mask, start_logits, NOWHERE)
    ends = ops.where(end_mask, end_logits, NOWHERE)
    ends = ops.pad(ends, [[0, 0], [0, max_length]], constant_values=NOWHERE)
    offsets = ops.expand_dims(ops.arange(length), 1) + ops.arange(max_length)
    scores = ops.expand_dims(starts, 2) + ops.take(ends, offsets, axis=1)
    # A row may have fewer than `count` spans.
    flat = ops.reshape(scores, (-1, length * max_length))
    flat = ops.pad(flat, [[0, 0], [0, count]], constant_values=2 * NOWHERE)
    scores, index = ops.top_k(flat, count)
    index = ops.cast(index, "int32")
    first = ops.minimum(index // max_length, length - 1)
    return first, first + index % max_length, scores


def best_conditional_spans(
    head: ConditionalSpanHead,
    states: Tensor,
    start_logits: Tensor,
    masks: Sequence[Tensor],
    count: int,
    max_length: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the best spans with the `count` most probable starts.

    A span's score is the log-probability of its start, plus the log-probability of its
    end given the start.

    Args:
        head: a `ConditionalSpanHead`.
        states: float tensor `(batch, length, width)`.
        start_logits: float tensor `(batch, length)`.
        masks: the two bool tensors `(batch, length)` of `best_spans`.
        count: int. How many spans to return, and how many starts to consider.
        max_length: int. The most tokens in a span.

    Returns:
        What `best_spans` returns.
    """
    start_mask, end_mask = masks
    length = ops.shape(states)[1]
    starts = ops.where(start_mask, ops.log_softmax(start_logits), NOWHERE)
    # A row may have fewer than `count` tokens.
    starts = ops.pad(starts, [[0, 0], [0, count]], constant_values=2 * NOWHERE)
    start_scores, firsts = ops.top_k(starts, count)
    firsts = ops.minimum(ops.cast(firsts, "int32"), length - 1)
    end_mask = ops.expand_dims(end_mask, 1)
    logits = ops.where(end_mask, head.end_logits(states, firsts), NOWHERE)
    distance = ops.arange(length, dtype="int32") - ops.expand_dims(firsts, -1)
    allowed = end_mask & (distance >= 0) & (distance < max_length)
    ends = ops.where(allowed, ops.log_softmax(logits), NOWHERE)
    flat = ops.reshape(ops.expand_dims(start_scores, -1) + ends, (-1, count * length))
    flat = ops.pad(flat, [[0, 0], [0, count]], constant_values=2 * NOWHERE)
    scores, index = ops.top_k(flat, count)
    index = ops.minimum(ops.cast(index, "int32"), count * length - 1)
    return ops.take_along_axis(firsts, index // length, axis=1), index % length, scores
