"""Attention from one text to another."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.attention.self_attention import MultiHeadAttention
from keras_bertfam.layers.blocks.dense import flat_dense, mark_matrices
from keras_bertfam.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class CrossAttention(MultiHeadAttention):
    """Multi-head attention of a decoder to the states of an encoder.

    Args:
        num_heads: int.
        head_dim: int. Width of a head.
        dropout: float. Dropout rate on the attention probabilities.
        initializer: initializer of the kernels.
        use_bias: bool. Whether the projections have biases.
        scale: float or `None`, see `SelfAttention`.

    Call arguments:
        x: float tensor of shape `(batch, queries, width)`.
        context: float tensor of shape `(batch, keys, width)`, the encoder's states;
            or the keys and values that `project` computed from them.
        cross_mask: bool tensor, true where a key may be attended to, of shape
            `(batch, keys)` or `(batch, queries, keys)`.
        return_scores: bool. Return the attention probabilities as well.

    Returns:
        Float tensor of shape `(batch, queries, width)`. With `return_scores=True` a
        pair: this tensor, and the probabilities `(batch, num_heads, queries, keys)`.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762),
    section 3.2.3.

    Example:

    ```python
    from keras_bertfam.layers.attention.cross_attention import CrossAttention
    attention = CrossAttention(num_heads=2, head_dim=4)
    x, context = keras.random.normal((1, 5, 8)), keras.random.normal((1, 7, 8))
    attention(x, context).shape  # (1, 5, 8)
    ```
    """

    def build(self, input_shape: Shape) -> None:
        inner, width = self._inner_dim, input_shape[-1]
        self.query = self._dense(inner, width, "query", queries=inner)
        self.key_value = self._dense(2 * inner, width, "key_value")
        mark_matrices(self.key_value, inner, inner)
        self.output_dense = self._dense(width, inner, "output")
        self.built = True

    def project(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the keys and values of an encoder's states once, for many calls.

        Args:
            context: float tensor `(batch, keys, width)`.

        Returns:
            Pair of float tensors `(batch, keys, num_heads, head_dim)`.
        """
        batch, keys = ops.shape(context)[:2]
        pair = flat_dense(self.key_value, context)
        pair = ops.reshape(pair, (batch, keys, 2, self.num_heads, self.head_dim))
        key, value = ops.unstack(pair, axis=2)
        return key, value

    def call(
        self,
        x: Tensor,
        context: Any,
        cross_mask: Tensor | None = None,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        if not isinstance(context, tuple | list):
            context = self.project(context)
        key, value = context
        batch, queries = ops.shape(x)[:2]
        query = flat_dense(self.query, x)
        query = ops.reshape(query, (batch, queries, self.num_heads, self.head_dim))
        mask = cross_mask
        if mask is not None:
            mask = ops.expand_dims(mask, (1, 2) if len(mask.shape) == 2 else 1)
        output, scores = self._attend(
            (query, key, value), mask, None, None, return_scores, training
        )
        return output if scores is None else (output, scores)
