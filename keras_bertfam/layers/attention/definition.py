"""The inputs of one attention computation, and its result by definition."""

import dataclasses

import keras
from keras import ops

from keras_bertfam.layers.attention.masks import causal_mask, hiding
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.types import Tensor


@dataclasses.dataclass(frozen=True)
class Asked:
    """The inputs of one attention computation, which kernels take.

    Args:
        query: float tensor `(batch, queries, num_heads, head_dim)`.
        key: float tensor `(batch, keys, num_heads, head_dim)`, or with fewer
            heads. Then neighbouring heads of queries share a head of keys.
        value: float tensor of the key's shape.
        scale: float. The factor of the scores.
        mask: bool tensor of rank 4 that broadcasts to the scores, true where a key is
            seen, or `None`.
        bias: float tensor of rank 4 that broadcasts to the scores, or `None`.
        causal: bool. Whether a query sees the keys up to its own place only.
        numbers: int tensor `(batch, length)`, or `None`. The same mask in another form:
            a query sees the keys that have its own number.
        added: float tensor of the mask's shape, or `None`. The same mask in another
            form: a tensor that is added to the scores, see `added_mask`.
        window: int. Above 0, a query sees the keys up to `window // 2` away. The
            explicit form ignores it: give it only if `kernel_for` finds a kernel.
        dropout: `Dropout` of the probabilities, or `None`.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    mask: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False
    numbers: Tensor | None = None
    added: Tensor | None = None
    window: int = 0
    dropout: Dropout | None = None

    @property
    def dtype(self) -> str:
        return keras.backend.standardize_dtype(self.query.dtype)

    @property
    def is_grouped(self) -> bool:
        """Whether heads of queries share keys and values."""
        return self.key.shape[2] != self.query.shape[2]


def for_each_head(x: Tensor, num_heads: int) -> Tensor:
    """Repeat keys or values for all heads that share them.

    Args:
        x: float tensor `(batch, length, groups, head_dim)`.
        num_heads: int.

    Returns:
        Float tensor `(batch, length, num_heads, head_dim)`.
    """
    count = num_heads // x.shape[2]
    return x if count == 1 else ops.repeat(x, count, axis=2)


def explicit_attention(asked: Asked) -> tuple[Tensor, Tensor]:
    """Compute attention by its definition, with a softmax in float32.

    Returns:
        The means of values `(batch, queries, num_heads, head_dim)`, and the
        probabilities `(batch, num_heads, queries, keys)` before dropout, float32.
    """
    query = ops.transpose(asked.query * asked.scale, (0, 2, 1, 3))
    heads, groups = query.shape[1], asked.key.shape[2]
    query = _in_groups(query, groups)
    scores = ops.matmul(query, ops.transpose(asked.key, (0, 2, 3, 1)))
    scores = _in_groups(scores, heads)
    scores = ops.cast(scores, "float32")
    if asked.bias is not None:
        scores += ops.cast(asked.bias, "float32")
    mask = whole_mask(asked)
    if mask is not None:
        known = asked.added is not None and not asked.causal
        added = asked.added if known else hiding(mask, "float32")
        scores += ops.cast(added, "float32")
    if scores.shape[-1] == 1:  # Keras's softmax would warn; its gradient is 0
        scores = 0.0 * scores + 1.0
    else:
        scores = ops.softmax(scores)
    kept = ops.cast(scores, asked.dtype)
    if asked.dropout is not None:
        kept = asked.dropout(kept, training=True)
    kept = _in_groups(kept, groups)
    context = ops.matmul(kept, ops.transpose(asked.value, (0, 2, 1, 3)))
    context = _in_groups(context, heads)
    return ops.transpose(context, (0, 2, 1, 3)), scores


def _in_groups(x, count):
    """Make the rows of heads that share keys rows of one, or undo that.

    Of `(batch, heads, queries, width)` it is `(batch, count, ..., width)`.
    """
    if x.shape[1] == count:
        return x
    batch, heads, rows, width = ops.shape(x)
    return ops.reshape(x, (batch, count, rows * heads // count, width))


def whole_mask(asked: Asked) -> Tensor | None:
    """Join the mask with the causal mask, if attention is causal."""
    if not asked.causal:
        return asked.mask
    seen = causal_mask(ops.shape(asked.query)[1], ops.shape(asked.key)[1])
    seen = ops.expand_dims(seen, 1)
    return seen if asked.mask is None else ops.logical_and(asked.mask, seen)
