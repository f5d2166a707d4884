"""Multi-head self-attention."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.attention.definition import (
    Asked,
    explicit_attention,
    for_each_head,
)
from keras_bertfam.layers.attention.kernels import attend, knows_patterns
from keras_bertfam.layers.attention.masks import causal_mask
from keras_bertfam.layers.attention.pattern import VisibleKeys
from keras_bertfam.layers.attention.positions import rotary_at, rotate
from keras_bertfam.layers.blocks.dense import (
    flat_dense,
    mark_matrices,
    take_positions,
)
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.transformer_config import check_key_value_heads
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
class MultiHeadAttention(keras.layers.Layer):
    """Base of attention layers: heads, scores and output projection.

    Args:
        num_heads: int.
        head_dim: int. Width of a head. `num_heads * head_dim` need not be the
            width of the input.
        dropout: float. Dropout rate on the attention probabilities.
        initializer: initializer of the kernels.
        use_bias: bool. Whether the projections have biases.
        scale: float. The factor of the scores; `None` means `head_dim ** -0.5`. For
            another factor the initial query kernel is scaled, so that the first scores
            have the usual size, as in T5.

    Attributes:
        watcher: `None`, or a function that each call hands its results to: the scaled
            queries and the keys, `(batch, length, num_heads, head_dim)`, and the
            probabilities, `(batch, num_heads, queries, keys)`.
    """

    watcher: Callable[[Tensor, Tensor, Tensor], Any] | None

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        dropout: float = 0.0,
        initializer: Initializer = "glorot_uniform",
        use_bias: bool = True,
        scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.watcher = None
        self.recomputes = "none"
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dropout_rate = dropout
        self.initializer = keras.initializers.get(initializer)
        self.use_bias = use_bias
        self.scale = head_dim**-0.5 if scale is None else scale
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    @property
    def _inner_dim(self):
        return self.num_heads * self.head_dim

    def _dense(self, units, width, name, queries=0, bias=True):
        """Build a dense layer; its first `queries` outputs are queries."""
        initial = self.initializer.clone()
        factor = self.head_dim**-0.5 / self.scale

        def initializer(shape, dtype=None):
            columns = ops.arange(shape[-1]) < queries
            return initial(shape, dtype) * ops.where(
                columns, ops.cast(factor, dtype), ops.ones((), dtype)
            )

        layer = keras.layers.Dense(
            units,
            use_bias=self.use_bias and bias,
            kernel_initializer=initializer if queries and factor != 1 else initial,
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build((None, width))
        mark_matrices(layer)
        return layer

    def _attend(self, parts, mask, bias, head_mask, keep_scores, training, **more):
        """Compute the output `(batch, queries, width)`, and probabilities if wanted.

        Args:
            parts: queries, keys and values, `(batch, length, num_heads, head_dim)`.
            mask: bool tensor of rank 4 that broadcasts to the scores, or `None`.
            bias: float tensor that broadcasts to the scores, or `None`.
            more: other arguments of `Asked`.
        """
        kept = keep_scores or self.watcher is not None
        context, scores = self._mix(parts, mask, bias, kept, training, **more)
        if self.watcher is not None:
            self.watcher(parts[0] * self.scale, self._of_each_head(parts[1]), scores)
        return self._combine(context, head_mask), scores if keep_scores else None

    def _combine(self, context, head_mask):
        """Project the heads' `(batch, queries, num_heads, head_dim)` to the output."""
        if head_mask is not None:
            factors = ops.reshape(head_mask, (-1, 1, self.num_heads, 1))
            # Not in place: PyTorch would have no gradient.
            context = context * ops.cast(factors, context.dtype)
        count = ops.shape(context)[1]
        context = ops.reshape(context, (-1, count, self._inner_dim))
        return flat_dense(self.output_dense, context)

    def _of_each_head(self, key):
        return for_each_head(key, self.num_heads)

    def _mix(self, parts, mask, bias, keep_scores, training, **more):
        """Compute weighted means of the values, and the probabilities or `None`."""
        asked = self._asked(parts, training, mask, bias, **more)
        if keep_scores:
            return explicit_attention(asked)
        return attend(asked, training and self.recomputes == "attention"), None

    def _asked(self, parts, training, mask=None, bias=None, **more):
        if len({part.dtype for part in parts}) > 1:  # by a `DTypePolicyMap`
            parts = [ops.cast(part, self.compute_dtype) for part in parts]
        if bias is not None and len(bias.shape) < 4:
            bias = ops.expand_dims(bias, tuple(range(4 - len(bias.shape))))
        if mask is not None:
            mask = ops.cast(mask, "bool")
        drops = training and self.dropout.kept_rate < 1
        dropout = self.dropout if drops else None
        return Asked(*parts, self.scale, mask, bias, dropout=dropout, **more)

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # Not by the shape: positions, states and scores change what a call returns.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "dropout": self.dropout_rate,
            "initializer": keras.initializers.serialize(self.initializer),
            "use_bias": self.use_bias,
            "scale": self.scale,
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SelfAttention(MultiHeadAttention):
    """Multi-head self-attention with one projection for query, key and value.

    It runs a fused kernel of the backend and device if there is one for the call's
    arguments, and computes the probabilities only with `return_scores=True`.

    Args:
        num_heads: int.
        head_dim: int. Width of a head. `num_heads * head_dim` need not be the
            width of the input.
        dropout: float. Dropout rate on the attention probabilities.
        initializer: initializer of the kernels.
        use_bias: bool. Whether the projections have biases.
        scale: float. The factor of the scores; `None` means `head_dim ** -0.5`. For
            another factor the initial query kernel is scaled, so that the first scores
            have the usual size, as in T5.
        causal: bool. Whether a token attends only to itself and the tokens before it.
        num_key_value_heads: int or `None`. Heads of keys and values, see
            `TransformerConfig`; `None` for one for each head.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        attention_mask: bool tensor, true where a key may be attended to. The shape is
            `(batch, length)` for a mask that all queries share, or `(batch, length,
            length)`. The first shape is cheaper: it needs no tensor of all pairs of
            tokens unless `causal`. A `VisibleKeys` replaces both this mask and the
            layer's `causal`.
        positions: int tensor of shape `(batch, count)`. Compute the output at
            these positions only.
        head_mask: float tensor of shape `(num_heads,)` or `(batch, num_heads)` that
            multiplies the heads' outputs; 0 switches a head off.
        bias: float tensor that is added to the scores, of a shape that broadcasts to
            `(batch, num_heads, length or count, length)`; see
            `RelativePositionBias`.
        rotary: pair of float tensors, what `positions.rotary_positions` gives for the
            tokens of `x`. Queries and keys are rotated by it.
        cache: pair of float tensors `(batch, keys, num_heads, head_dim)`, or of
            `num_key_value_heads`: the keys and values of earlier tokens; `x` holds the
            tokens that follow them.
        cache_index: int scalar, the position of the first token of `x`. The new keys
            and values are written into the cache from there on. A `causal` layer
            doesn't attend to what lies behind them.
        return_scores: bool. Return the attention probabilities as well.

    Returns:
        Float tensor of shape `(batch, length or count, width)`. With
        `return_scores=True` or a `cache` a tuple: this tensor; the float32
        probabilities `(batch, num_heads, length or count, length)`, if wanted; and
        the new cache, if there is one.

    Raises:
        ValueError: for a `num_key_value_heads` that doesn't divide `num_heads`.

    References: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762),
    section 3.2; [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245), section 2.2.

    Example:

    ```python
    attention = keras_bertfam.layers.SelfAttention(num_heads=2, head_dim=4)
    attention(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        *args: Any,
        causal: bool = False,
        num_key_value_heads: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.causal = causal
        self.num_key_value_heads = check_key_value_heads(
            self.num_heads, num_key_value_heads
        )

    def build(self, input_shape: Shape) -> None:
        inner, width = self._inner_dim, input_shape[-1]
        self.qkv = self._joint_dense(width, "qkv")
        self.output_dense = self._dense(width, inner, "output")
        self.built = True

    def _joint_dense(self, width, name):
        """Build the projection to queries, keys and values, in this order."""
        inner, each = self._inner_dim, self.num_key_value_heads * self.head_dim
        layer = self._dense(inner + 2 * each, width, name, queries=inner)
        mark_matrices(layer, inner, each, each)
        return layer

    def call(
        self,
        x: Tensor,
        attention_mask: Any = None,
        positions: Tensor | None = None,
        head_mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: tuple[Tensor, Tensor] | None = None,
        cache_index: Tensor = 0,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        keys = attention_mask
        if not isinstance(keys, VisibleKeys):
            keys = VisibleKeys(attention_mask, self.causal)
        query, key, value = self._project(x, positions, rotary=rotary)
        if cache is not None:
            key, value = cache = tuple(
                with_rows(old, cache_index, new)
                for old, new in zip(cache, (key, value), strict=True)
            )
        return self._attend_visible(
            (query, key, value),
            keys,
            positions,
            bias,
            head_mask,
            cache,
            cache_index,
            return_scores,
            training,
        )

    def _attend_visible(
        self,
        parts,
        keys,
        positions,
        bias,
        head_mask,
        cache=None,
        cache_index=0,
        return_scores=False,
        training=None,
    ):
        """Compute a call's outputs from `parts`: queries, keys and values.

        Args:
            keys: `VisibleKeys`.
            positions: int tensor `(batch, count)`, the queries' positions, or `None`.
        """
        query, key, _ = parts
        mask, added, numbers = keys.mask, keys.added, keys.numbers
        if mask is not None:
            if positions is not None and len(mask.shape) == 3:
                mask = take_positions(mask, positions)
            axes = (1, 2) if len(mask.shape) == 2 else 1
            mask = ops.expand_dims(mask, axes)
        if added is not None:
            if positions is not None:
                added = take_positions(added, positions)
            added = ops.expand_dims(added, 1)
        whole = positions is None and cache is None
        if not whole:
            numbers = None  # queries and keys have different lengths
        causal = keys.causal and whole and (mask is None or knows_patterns())
        if keys.causal and not causal:
            seen = causal_mask(
                ops.shape(query)[1], ops.shape(key)[1], cache_index, positions
            )
            seen = ops.expand_dims(seen, 1)
            mask = seen if mask is None else ops.logical_and(mask, seen)
            added = None
        output, scores = self._attend(
            parts,
            mask,
            bias,
            head_mask,
            return_scores,
            training,
            causal=causal,
            numbers=numbers,
            added=added,
        )
        more = [part for part in (scores, cache) if part is not None]
        return (output, *more) if more else output

    def _project(self, x, positions, layer=None, rotary=None):
        """Give query, key and value, each `(batch, length, num_heads, head_dim)`.

        Keys and values are of `num_key_value_heads`.

        Args:
            layer: the dense layer; `None` for `qkv`.
        """
        query, key, value = self._projected(x, positions, layer or self.qkv)
        if rotary is not None:
            query = rotate(query, rotary_at(rotary, positions))
            key = rotate(key, rotary)
        return query, key, value

    def _projected(self, x, positions, layer):
        batch, length = ops.shape(x)[:2]
        heads = (self.num_heads, self.head_dim)
        groups = (self.num_key_value_heads, self.head_dim)
        if positions is None or layer.quantization_mode is not None:
            qkv = flat_dense(layer, x)
            if groups == heads:
                qkv = ops.reshape(qkv, (batch, length, 3, *heads))
                # Not slices: the gradient of each would be padded to all three.
                query, key, value = ops.unstack(qkv, axis=2)
            else:
                first, last = self._inner_dim, self._inner_dim + math.prod(groups)
                qkv = ops.reshape(qkv, (batch, length, layer.units))
                query = ops.reshape(qkv[..., :first], (batch, length, *heads))
                key = ops.reshape(qkv[..., first:last], (batch, length, *groups))
                value = ops.reshape(qkv[..., last:], (batch, length, *groups))
            if positions is not None:
                query = ops.reshape(query, (batch, length, self._inner_dim))
                query = take_positions(query, positions)
                count = ops.shape(positions)[1]
                query = ops.reshape(query, (batch, count, *heads))
            return query, key, value
        kernel = ops.cast(layer.kernel, self.compute_dtype)
        inner, width = self._inner_dim, x.shape[-1]
        flat = ops.reshape(take_positions(x, positions), (-1, width))
        query = ops.matmul(flat, kernel[:, :inner])
        pair = ops.matmul(ops.reshape(x, (-1, width)), kernel[:, inner:])
        if layer.use_bias:
            bias = ops.cast(layer.bias, self.compute_dtype)
            query, pair = query + bias[:inner], pair + bias[inner:]
        pair = ops.reshape(pair, (batch, length, 2, *groups))
        # The count is given, as ONNX can't infer it for an empty batch.
        query = ops.reshape(query, (batch, ops.shape(positions)[1], *heads))
        return query, *ops.unstack(pair, axis=2)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "causal": self.causal,
            "num_key_value_heads": self.num_key_value_heads,
        }


def with_rows(cache: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Write new keys or values into a cache.

    Args:
        cache: float tensor `(batch, keys, ...)`.
        index: int scalar, the place of the first new one.
        rows: float tensor `(batch, count, ...)`.

    Returns:
        A tensor like `cache`.
    """
    rows = ops.cast(rows, cache.dtype)
    if keras.backend.backend() == "torch":
        # If `index` is a tensor, Keras's function makes four indices for each number,
        # which takes as long as the attention itself.
        places = ops.arange(rows.shape[1], dtype="int64") + ops.cast(index, "int64")
        return cache.index_copy(1, places, rows)
    others = (0,) * (len(cache.shape) - 2)
    return ops.slice_update(cache, (0, index, *others), rows)
