"""Which keys a query sees, as masks: in causal rows, in rows of several sequences."""

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


def two_stream_mask(positions: Tensor, filled: Tensor, length: int | Tensor) -> Tensor:
    """Tell which keys MPNet's two streams see, so that all see as many positions.

    Tokens are those of a row, in their order; then, for each token to predict, what
    stands for it in the row; and then once more, as queries. Of a token to predict a
    query sees either the token itself, if it is predicted before, or what stands for
    it. So does what knows the token: it also sees itself.

    Args:
        positions: int tensor `(batch, count)`: where the tokens to predict are, in the
            order in which they are predicted.
        filled: bool tensor `(batch, count)`: false for slots without a token.
        length: int, the tokens of a row.

    Returns:
        bool tensor `(batch, length + 2 * count, length + 2 * count)`.

    Reference: [Song et al., 2020](https://arxiv.org/abs/2004.09297), section 3.
    """
    # Example: a row of three tokens, of which the third is predicted, then the second.
    #   tokens   stand-ins  queries
    #   1 0 0    1 1        0 0      is not predicted
    #   1 1 1    0 0        0 0      the second: sees both tokens
    #   1 0 1    0 1        0 0      the third: sees itself, and not the second
    #   1 0 0    1 1        0 0      the stand-ins
    #   1 0 0    1 1        0 0
    #   1 0 0    1 1        0 0      predicts the third
    #   1 0 1    0 1        0 0      predicts the second
    count = ops.shape(positions)[1]
    order = ops.arange(count, dtype="int32")
    places = ops.arange(length, dtype="int32")
    here = ops.expand_dims(ops.cast(positions, "int32"), 2) == places
    here = ops.logical_and(here, ops.expand_dims(filled, 2))
    # The number of each token in the order, from 1; 0 for those that aren't predicted.
    rank = ops.sum(ops.cast(here, "int32") * ops.expand_dims(order + 1, 1), axis=1)
    none = ops.zeros_like(positions, dtype="int32")
    known = ops.concatenate([rank, none, none + order], axis=1)
    known = ops.expand_dims(known, 2)  # how many predicted tokens are known by then
    seen = ops.expand_dims(rank, 1) <= known
    stand_ins = ops.logical_and(order >= known, ops.expand_dims(filled, 1))
    return ops.concatenate([seen, stand_ins, ops.zeros_like(stand_ins)], axis=2)


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


def same_sequence(sequence_ids: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Make the attention mask of rows that hold several sequences.

    Returns:
        A bool tensor `(batch, length, length)`, true within a sequence.
    """
    rows, keys = (ops.expand_dims(sequence_ids, axis) for axis in (2, 1))
    same = ops.equal(rows, keys)
    if padding_mask is not None:
        same = ops.logical_and(same, ops.expand_dims(padding_mask, 1))
    return same


def positions_without_padding(
    padding_mask: Tensor, restarted: Tensor | None = None
) -> Tensor:
    """Count each token's position among those that are no padding, as fairseq does.

    Args:
        padding_mask: bool tensor `(batch, length)`, 1 = keep.
        restarted: int tensor `(batch, length)`, `restarted_positions` of rows that
            hold several sequences, or `None`.

    Returns:
        An int tensor `(batch, length)` that counts from 0 in each sequence; -1 for
        padding.
    """
    kept = ops.cast(padding_mask, "int32")
    number = ops.cumsum(kept, axis=1)
    if restarted is not None:
        index = ops.arange(ops.shape(kept)[1], dtype="int32")
        number -= ops.take_along_axis(number - kept, index - restarted, axis=1)
    return number * kept - 1


def numbers_of(sequence_ids: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Number what tokens see, in rows that hold several sequences.

    Args:
        sequence_ids: int tensor `(batch, length)`.
        padding_mask: bool tensor `(batch, length)`, or `None`.

    Returns:
        int32 tensor `(batch, length)`; tokens see those of the same number. Padding
        sees padding, which nothing reads.
    """
    numbers = ops.cast(sequence_ids, "int32")
    if padding_mask is None:
        return numbers
    return ops.where(padding_mask, numbers, ops.full_like(numbers, -1))


def restarted_positions(sequence_ids: Tensor) -> Tensor:
    """Count each token's position in its sequence, from the sequence's first token.

    Sorting brings the first tokens together, which costs less than to count
    equal ids of pairs.

    Returns:
        An int tensor `(batch, length)` that counts from 0 in each sequence.
    """
    index = ops.arange(ops.shape(sequence_ids)[1], dtype="int32")
    begins = ops.not_equal(sequence_ids[:, 1:], sequence_ids[:, :-1])
    begins = ops.pad(begins, [[0, 0], [1, 0]], constant_values=True)
    starts = ops.sort(ops.where(begins, index, ops.shape(sequence_ids)[1]), axis=1)
    number = ops.cumsum(ops.cast(begins, "int32"), axis=1) - 1
    return index - ops.take_along_axis(starts, number, axis=1)
