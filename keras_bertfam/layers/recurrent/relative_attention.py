"""Attention with relative positions and relative segments."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.attention.positions import shift_rows
from keras_bertfam.layers.blocks.dense import flat_dense, mark_matrices
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.recomputation import recomputed
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
def relative_sinusoids(
    num_queries: int | Tensor,
    num_keys: int | Tensor,
    width: int,
    causal: bool = False,
    clamp_length: int | None = None,
) -> Tensor:
    """Compute sinusoids of the distances between queries and keys.

    The queries are the last `num_queries` of the keys. The distances run from
    `num_keys` down to `1 - num_queries`; or down to 0 for `causal` attention.

    Args:
        num_queries: int or int scalar.
        num_keys: int or int scalar.
        width: int, even.
        causal: bool. Whether to leave out the distances to later keys.
        clamp_length: int or `None`. Larger distances count as this one.

    Returns:
        float32 tensor `(distances, width)`: the sines, then the cosines.
    """
    count = num_keys + 1 if causal else num_keys + num_queries
    distances = num_keys - ops.arange(count, dtype="int32")
    distances = ops.cast(distances, "float32")
    if clamp_length is not None:
        distances = ops.clip(distances, -clamp_length, clamp_length)
    exponents = np.arange(0, width, 2, dtype="float32") / np.float32(width)
    frequencies = (1 / 10000**exponents).astype("float32")
    angles = distances[:, None] * ops.convert_to_tensor(frequencies)
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def gather_rows(scores: Tensor, positions: Tensor, num_keys: int | Tensor) -> Tensor:
    """Turn scores by distance into scores by key, for queries at given positions.

    Args:
        scores: tensor `(batch, heads, queries, distances)`. The distances descend from
            `num_keys`.
        positions: int tensor `(batch, queries)`, each query's position among the keys.
        num_keys: int or int scalar.

    Returns:
        Tensor `(batch, heads, queries, num_keys)`, see `shift_rows`.
    """
    # Example: three keys and a query at position 1. If the scores are the distances
    # themselves, 3 2 1 0 -1 -2, the result is 1 0 -1.
    shape = ops.shape(scores)
    index = ops.expand_dims(num_keys - ops.cast(positions, "int32"), -1)
    index = index + ops.arange(num_keys, dtype="int32")
    index = ops.minimum(index, shape[-1] - 1)[:, None]
    index = ops.broadcast_to(index, (*shape[:-1], num_keys))
    return ops.take_along_axis(scores, index, axis=-1)


def _by_key(scores, num_keys, query_positions):
    """Turn scores by distance into scores by key.

    Queries in order come first, then the queries at `query_positions`.
    """
    if query_positions is None:
        return shift_rows(scores, num_keys)
    in_order = ops.shape(scores)[2] - ops.shape(query_positions)[1]
    gathered = gather_rows(scores[:, :, in_order:], query_positions, num_keys)
    if isinstance(in_order, int) and in_order == 0:
        return gathered
    shifted = shift_rows(scores[:, :, :in_order], num_keys)
    return ops.concatenate([shifted, gathered], axis=2)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RelativeAttention(keras.layers.Layer):
    """Multi-head attention by content, distance and equality of segments.

    The score of query `i` and key `j` is the sum of three terms, divided by the root of
    `head_dim`:

    - `(q_i + r_w) k_j`, by content;
    - `(q_i + r_r) W R_(i-j)`, by distance;
    - `(q_i + r_s) (s_1 - s_0)`, only if their segments differ.

    The published form adds `(q_i + r_s) s_0` to the scores of all keys, which doesn't
    change the softmax. No projection has a bias. A query that may attend to no key gets
    zeros, not the mean of all values.

    XLNet's content stream and query stream are two groups of queries in one
    call: first the content states in order, then the query states at
    `query_positions`. They share the weights. Keys and values are computed once, from
    the content states.

    Args:
        num_heads: int.
        head_dim: int. Width of a head.
        tied_biases: bool. If true, all layers share `r_w`, `r_r` and `r_s`, and the
            call gives them. If false, they are this layer's own weights.
        dropout: float. Dropout rate on the attention probabilities.
        initializer: initializer of all weights.
        use_segments: bool. Whether there are weights for segments, `r_s` and `s`.

    Call arguments:
        x: float tensor `(batch, queries, width)`.
        context: float tensor `(batch, keys, width)`: the memory, then the
            states of the tokens.
        relative: float tensor `(distances, width)`, see `relative_sinusoids`;
            with `reversed_rows` `(2, distances, width)`, forwards and backwards.
        query_positions: int tensor `(batch, count)`, or `None`. The positions of the
            last `count` queries among the keys. The other queries have the positions of
            the last keys, in order.
        attention_mask: bool tensor `(batch, queries or 1, keys)`, true where a
            key may be attended to.
        other_segment: bool tensor `(batch, queries, keys)`, true where query and
            key are of different segments.
        reversed_rows: bool tensor `(batch,)`, true for rows whose tokens run backwards.
        biases: float tensor `(3, num_heads, head_dim)`: `r_w`, `r_r` and `r_s`, for
            `tied_biases`. Without `use_segments` there are only the first two.
        head_mask: float tensor `(num_heads,)` or `(batch, num_heads)` that multiplies
            the heads' outputs.
        return_scores: bool. Return the attention probabilities as well.

    Returns:
        Float tensor `(batch, queries, width)`. With `return_scores=True` a pair: this
        tensor, and the probabilities, float32 `(batch, num_heads, queries, keys)`.

    References:
        [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.3;
        [Yang et al., 2019](https://arxiv.org/abs/1906.08237), sections 2.3-2.5.

    Example:

    ```python
    from keras_bertfam.layers.recurrent.relative_attention import (
        RelativeAttention,
        relative_sinusoids,
    )
    layer = RelativeAttention(num_heads=2, head_dim=4)
    x = keras.random.normal((1, 5, 8))
    relative = relative_sinusoids(5, 5, 8)
    layer(x, x, relative).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        tied_biases: bool = False,
        dropout: float = 0.0,
        initializer: Initializer = "glorot_uniform",
        use_segments: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.watcher = None  # see `MultiHeadAttention`
        self.recomputes = "none"
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.tied_biases = tied_biases
        self.dropout_rate = dropout
        self.initializer = keras.initializers.get(initializer)
        self.use_segments = use_segments
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        width, inner = input_shape[-1], self.num_heads * self.head_dim

        def dense(units, inputs, name):
            layer = keras.layers.Dense(
                units,
                use_bias=False,
                kernel_initializer=self.initializer.clone(),
                dtype=self.dtype_policy,
                name=name,
            )
            layer.build((None, inputs))
            mark_matrices(layer)
            return layer

        def vectors(count, name):
            return self.add_weight(
                name=name,
                shape=(count, self.num_heads, self.head_dim),
                initializer=self.initializer.clone(),
            )

        self.query = dense(inner, width, "query")
        self.key_value = dense(2 * inner, width, "key_value")
        mark_matrices(self.key_value, inner, inner)
        self.relative = dense(inner, width, "relative")
        self.output_dense = dense(width, inner, "output")
        # Their names don't say "bias", since weight decay applies to them.
        self.biases = self.segments = None
        if not self.tied_biases:
            self.biases = vectors(3 if self.use_segments else 2, "r_w_r_s")
        if self.use_segments:
            self.segments = vectors(2, "segments")
        self.built = True

    def call(
        self,
        x: Tensor,
        context: Tensor,
        relative: Tensor,
        query_positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
        other_segment: Tensor | None = None,
        reversed_rows: Tensor | None = None,
        biases: Tensor | None = None,
        head_mask: Tensor | None = None,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        scale = self.head_dim**-0.5
        query = self._heads(self.query, x, 1)[0] * scale
        key, value = self._heads(self.key_value, context, 2)
        biases = biases if self.tied_biases else self.biases
        biases = ops.cast(biases, self.compute_dtype)[:, :, None] * scale
        between = None
        if other_segment is not None:
            segments = ops.cast(self.segments, self.compute_dtype)
            between = (segments[1] - segments[0])[:, :, None]
        mix, scores = self._mix, None
        kept = return_scores or self.watcher is not None
        if training and self.recomputes == "attention" and not kept:
            mix = recomputed(mix, [self.dropout])
        output, *more = mix(
            (query, key, value),
            self._relative_keys(relative, reversed_rows),
            biases,
            between,
            query_positions,
            attention_mask,
            other_segment,
            kept,
            training,
        )
        if kept:
            (scores,) = more
        if head_mask is not None:
            factors = ops.reshape(head_mask, (-1, 1, self.num_heads, 1))
            output = output * ops.cast(factors, output.dtype)
        batch, count = ops.shape(output)[:2]
        output = ops.reshape(output, (batch, count, self.num_heads * self.head_dim))
        if attention_mask is not None:
            sees = ops.any(attention_mask, axis=-1, keepdims=True)
            output *= ops.cast(sees, output.dtype)
            if kept:
                scores = scores * ops.expand_dims(ops.cast(sees, "float32"), 1)
        if self.watcher is not None:
            parts = (query + biases[0], key)
            self.watcher(*(ops.transpose(x, (0, 2, 1, 3)) for x in parts), scores)
        output = flat_dense(self.output_dense, output)
        return (output, scores) if return_scores else output

    def _mix(
        self,
        heads,
        relative_keys,
        biases,
        between,
        query_positions,
        attention_mask,
        other_segment,
        keep_scores,
        training,
    ):
        """Compute each head's weighted means of values, and its probabilities.

        Args:
            between: float tensor `(num_heads, head_dim, 1)`: what is added to keys of
                another segment.
        """
        query, key, value = heads
        scores = ops.matmul(query + biases[0], ops.transpose(key, (0, 1, 3, 2)))
        by_distance = ops.matmul(query + biases[1], relative_keys)
        scores += _by_key(by_distance, ops.shape(key)[2], query_positions)
        if other_segment is not None:
            other = ops.expand_dims(ops.cast(other_segment, self.compute_dtype), 1)
            scores += ops.matmul(query + biases[2], between) * other
        scores = ops.cast(scores, "float32")
        if attention_mask is not None:
            scores += ops.where(ops.expand_dims(attention_mask, 1), 0.0, -1e9)
        scores = ops.softmax(scores)
        dropped = self.dropout(ops.cast(scores, self.compute_dtype), training=training)
        output = ops.transpose(ops.matmul(dropped, value), (0, 2, 1, 3))
        return (output, scores) if keep_scores else (output,)

    def _heads(self, dense, x, count):
        """Split x into `count` projections, each `(batch, heads, length, head_dim)`."""
        batch, length = ops.shape(x)[:2]
        x = flat_dense(dense, x)
        x = ops.reshape(x, (batch, length, count, self.num_heads, self.head_dim))
        x = ops.transpose(x, (2, 0, 3, 1, 4))
        return [x[i] for i in range(count)]

    def _relative_keys(self, relative, reversed_rows):
        """Project distances to keys, `(batch or 1, heads, head_dim, distances)`."""
        if reversed_rows is None:
            relative = ops.expand_dims(relative, 0)
        keys = self._heads(self.relative, relative, 1)[0]
        if reversed_rows is not None:
            keys = ops.take(keys, ops.cast(reversed_rows, "int32"), axis=0)
        return ops.transpose(keys, (0, 1, 3, 2))

    def compute_output_shape(
        self, input_shape: Shape, *args: Any, **kwargs: Any
    ) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "tied_biases": self.tied_biases,
            "dropout": self.dropout_rate,
            "initializer": keras.initializers.serialize(self.initializer),
            "use_segments": self.use_segments,
        }
