"""Multi-head self-attention."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.modeling.dense import flat_dense, take_positions
from keras_bertfam.layers.modeling.dropout import Dropout
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention with one projection for query, key and value.

    Where nobody asks for the probabilities and none are dropped, it runs
    `keras.ops.dot_product_attention` and thereby the backend's fused kernel.

    Args:
        num_heads: int.
        head_dim: int. Width of a head. `num_heads * head_dim` need not be the
            width of the input.
        dropout: float. Dropout rate on the attention probabilities.
        initializer: initializer of the kernels.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        attention_mask: bool tensor, true where a key may be attended to, of shape
            `(batch, length)`, the same for every query (no `length x length`
            tensor is built), or `(batch, length, length)`.
        positions: int tensor of shape `(batch, count)`. Compute the output at
            these positions only.
        head_mask: float tensor of shape `(num_heads,)` that multiplies the
            heads' outputs; 0 switches a head off.
        return_scores: bool. Return the attention probabilities as well.

    Returns:
        Float tensor of shape `(batch, length or count, width)`; with
        `return_scores=True` a pair of it and the probabilities, of shape
        `(batch, num_heads, length or count, length)`, float32.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762),
    section 3.2.

    Example:

    ```python
    attention = keras_bertfam.layers.SelfAttention(num_heads=2, head_dim=4)
    attention(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        dropout: float = 0.0,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dropout_rate = dropout
        self.initializer = keras.initializers.get(initializer)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    @property
    def _inner_dim(self):
        return self.num_heads * self.head_dim

    def build(self, input_shape: Shape) -> None:
        common = {
            "dtype": self.dtype_policy,
            "kernel_initializer": self.initializer.clone(),
        }
        width = input_shape[-1]
        self.qkv = keras.layers.Dense(3 * self._inner_dim, name="qkv", **common)
        self.qkv.build((None, width))
        self.output_dense = keras.layers.Dense(width, name="output", **common)
        self.output_dense.build((None, self._inner_dim))
        self.built = True

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        head_mask: Tensor | None = None,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        query, key, value = self._project(x, positions)
        mask = attention_mask
        if mask is not None:
            if positions is not None and len(mask.shape) == 3:
                mask = take_positions(mask, positions)
            axes = (1, 2) if len(mask.shape) == 2 else 1
            mask = ops.expand_dims(mask, axes)
        drops = training and self.dropout_rate
        scores = None
        if drops or return_scores:
            context, scores = self._attend(query, key, value, mask, training)
        else:
            context = ops.dot_product_attention(query, key, value, mask=mask)
        if head_mask is not None:
            context *= ops.reshape(
                ops.cast(head_mask, context.dtype), (self.num_heads, 1)
            )
        count = ops.shape(context)[1]
        context = ops.reshape(context, (-1, count, self._inner_dim))
        output = flat_dense(self.output_dense, context)
        return (output, scores) if return_scores else output

    def _project(self, x, positions):
        """Query, key and value, each `(batch, length, num_heads, head_dim)`."""
        batch, length = ops.shape(x)[:2]
        heads = (self.num_heads, self.head_dim)
        if positions is None or self.qkv.quantization_mode is not None:
            qkv = ops.reshape(flat_dense(self.qkv, x), (batch, length, 3, *heads))
            query, key, value = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
            if positions is not None:
                query = ops.reshape(query, (batch, length, self._inner_dim))
                query = take_positions(query, positions)
                query = ops.reshape(query, (batch, -1, *heads))
            return query, key, value
        kernel = ops.cast(self.qkv.kernel, self.compute_dtype)
        bias = ops.cast(self.qkv.bias, self.compute_dtype)
        inner, width = self._inner_dim, x.shape[-1]
        flat = ops.reshape(take_positions(x, positions), (-1, width))
        query = ops.matmul(flat, kernel[:, :inner]) + bias[:inner]
        flat = ops.reshape(x, (-1, width))
        pair = ops.matmul(flat, kernel[:, inner:]) + bias[inner:]
        pair = ops.reshape(pair, (batch, length, 2, *heads))
        query = ops.reshape(query, (batch, -1, *heads))
        return query, pair[:, :, 0], pair[:, :, 1]

    def _attend(self, query, key, value, mask, training):
        """Attention by explicit, dropped probabilities, softmax in float32."""
        query = ops.transpose(query * self.head_dim**-0.5, (0, 2, 1, 3))
        scores = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))
        scores = ops.cast(scores, "float32")
        if mask is not None:
            scores += ops.where(mask, 0.0, -1e9)
        scores = ops.softmax(scores)
        dropped = self.dropout(ops.cast(scores, self.compute_dtype), training=training)
        context = ops.matmul(dropped, ops.transpose(value, (0, 2, 1, 3)))
        return ops.transpose(context, (0, 2, 1, 3)), scores

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "dropout": self.dropout_rate,
            "initializer": keras.initializers.serialize(self.initializer),
        }
