"""Which keys a query sees."""

from keras import ops

from keras_bertfam.types import Tensor


def causal_mask(
    queries: int | Tensor,
    keys: int | Tensor,
    first_query: int | Tensor = 0,
    positions: Tensor | None = None,
) -> Tensor:
    """Tell which keys aren't after a query.

    Args:
        queries: int, the number of queries.
        keys: int, the number of keys.
        first_query: int, or int scalar. The key that the first query stands at.
        positions: int tensor `(batch, queries)` of the keys that the queries stand
            at, or `None`: they follow on each other.

    Returns:
        bool tensor `(1, queries, keys)`, with `positions` `(batch, queries, keys)`.
    """
    if positions is None:
        positions = ops.arange(queries, dtype="int32") + first_query
        positions = ops.expand_dims(positions, 0)
    places = ops.arange(keys, dtype="int32")
    return places <= ops.expand_dims(ops.cast(positions, "int32"), -1)


def seen_keys(
    queries: int | Tensor,
    keys: int | Tensor,
    first_query: int | Tensor = 0,
    prefix_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
) -> Tensor:
    """Tell which keys a query of a causal text sees, with a prefix and other masks.

    Args:
        queries: int, the number of queries.
        keys: int, the number of keys.
        first_query: int, or int scalar. The key that the first query stands at.
        prefix_mask: bool tensor `(batch, keys)` of the keys that all queries see, or
            `None`.
        attention_mask: bool tensor `(batch, keys)` or `(batch, queries, keys)`, false
            for keys that aren't seen in any case, or `None`.

    Returns:
        bool tensor `(batch, queries, keys)`, where `batch` is 1 without masks.
    """
    seen = causal_mask(queries, keys, first_query)
    if prefix_mask is not None:
        seen = ops.logical_or(seen, ops.expand_dims(prefix_mask, 1))
    if attention_mask is not None:
        if len(attention_mask.shape) == 2:
            attention_mask = ops.expand_dims(attention_mask, 1)
        seen = ops.logical_and(seen, attention_mask)
    return seen


def hiding(mask: Tensor, dtype: str) -> Tensor:
    """Make what hides keys when it is added to scores.

    Args:
        mask: bool tensor `(batch, keys)` or `(batch, queries, keys)`, or one of rank 4
            that broadcasts to the scores.
        dtype: name of the scores' dtype.

    Returns:
        Float tensor of rank 4, 0 where the mask is true.
    """
    if len(mask.shape) < 4:
        mask = ops.expand_dims(mask, (1, 2) if len(mask.shape) == 2 else 1)
    least = -3e4 if dtype == "float16" else -1e9  # the one has no such number
    return ops.where(mask, ops.zeros((), dtype), ops.cast(least, dtype))
