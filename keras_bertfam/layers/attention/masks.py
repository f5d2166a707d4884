"""Attention masks: for causal rows, and for rows of several sequences."""

from keras import ops

from keras_bertfam.types import Tensor


def causal_mask(
    queries: int | Tensor,
    keys: int | Tensor,
    first_query: int | Tensor = 0,
    positions: Tensor | None = None,
) -> Tensor:
    """Make a mask that is true for keys up to the query's own position.

    Args:
        queries: int, the number of queries.
        keys: int, the number of keys.
        first_query: int, or int scalar. The position of the first query among the keys.
        positions: int tensor `(batch, queries)`, the position of each query among the
            keys. `None`: queries follow one another from `first_query` on.

    Returns:
        bool tensor `(1, queries, keys)`, with `positions` `(batch, queries, keys)`.
    """
    if positions is None:
        positions = ops.arange(queries, dtype="int32") + first_query
        positions = ops.expand_dims(positions, 0)
    places = ops.arange(keys, dtype="int32")
    return places <= ops.expand_dims(ops.cast(positions, "int32"), -1)


def two_stream_mask(positions: Tensor, filled: Tensor, length: int | Tensor) -> Tensor:
    """Make the attention mask of MPNet's two streams.

    A row of `length` tokens grows by `2 * count`: after its own tokens come `count`
    stand-ins (a mask, for example), one for each token to predict; and after these come
    `count` queries, which do the predictions.

    A query sees every position once, as a token or as a stand-in. It sees the tokens
    that aren't predicted, and those predicted before its own; for all others it sees
    the stand-in. A token that is predicted sees the same as its query, and itself.

    Args:
        positions: int tensor `(batch, count)`: where the tokens to predict are, in the
            order in which they are predicted.
        filled: bool tensor `(batch, count)`: false for slots without a token.
        length: int, the tokens of a row.

    Returns:
        bool tensor `(batch, length + 2 * count, length + 2 * count)`.

    Reference: [Song et al., 2020](https://arxiv.org/abs/2004.09297), section 3.
    """
    # Example: a row of three tokens; the third is predicted, then the second.
    #   tokens   stand-ins  queries
    #   1 0 0    1 1        0 0      first token, not predicted
    #   1 1 1    0 0        0 0      second token: sees the third, and itself
    #   1 0 1    0 1        0 0      third token: sees itself, and not the second
    #   1 0 0    1 1        0 0      stand-in of the third
    #   1 0 0    1 1        0 0      stand-in of the second
    #   1 0 0    1 1        0 0      query of the third
    #   1 0 1    0 1        0 0      query of the second: sees the third
    count = ops.shape(positions)[1]
    order = ops.arange(count, dtype="int32")
    places = ops.arange(length, dtype="int32")
    here = ops.expand_dims(ops.cast(positions, "int32"), 2) == places
    here = ops.logical_and(here, ops.expand_dims(filled, 2))
    # Each token's place in the order, from 1; 0 for tokens that aren't predicted.
    rank = ops.sum(ops.cast(here, "int32") * ops.expand_dims(order + 1, 1), axis=1)
    none = ops.zeros_like(positions, dtype="int32")
    known = ops.concatenate([rank, none, none + order], axis=1)
    known = ops.expand_dims(known, 2)  # how many predicted tokens each row sees
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
    """Make the mask of a causal text, with a prefix and another mask.

    Args:
        queries: int, the number of queries.
        keys: int, the number of keys.
        first_query: int, or int scalar. The position of the first query among the keys.
        prefix_mask: bool tensor `(batch, keys)`, true for keys that all queries see;
            or `None`.
        attention_mask: bool tensor `(batch, keys)` or `(batch, queries, keys)`, false
            for keys that are hidden, the prefix's included; or `None`.

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
    """Turn a bool mask into a float mask that is added to scores.

    Args:
        mask: bool tensor `(batch, keys)` or `(batch, queries, keys)`, or one of rank 4
            that broadcasts to the scores.
        dtype: name of the scores' dtype.

    Returns:
        Float tensor of rank 4: 0 where the mask is true, a large negative number where
        it is false.
    """
    if len(mask.shape) < 4:
        mask = ops.expand_dims(mask, (1, 2) if len(mask.shape) == 2 else 1)
    least = -3e4 if dtype == "float16" else -1e9  # float16 ends at -65504
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
    """Number the tokens that aren't padding from left to right, as fairseq does.

    Args:
        padding_mask: bool tensor `(batch, length)`, false for padding.
        restarted: int tensor `(batch, length)`, what `restarted_positions` gives for
            rows that hold several sequences, or `None`.

    Returns:
        An int tensor `(batch, length)` that counts from 0 in each sequence; -1 for
        padding.
    """
    # Example: padding mask 0 1 1 0 1 1 (0 is padding) gives -1 0 1 -1 2 3; and with
    # two sequences of three tokens, restarted 0 1 2 0 1 2, it gives -1 0 1 -1 0 1.
    kept = ops.cast(padding_mask, "int32")
    number = ops.cumsum(kept, axis=1)
    if restarted is not None:
        index = ops.arange(ops.shape(kept)[1], dtype="int32")
        number -= ops.take_along_axis(number - kept, index - restarted, axis=1)
    return number * kept - 1


def numbers_of(sequence_ids: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Number tokens so that each sees exactly the tokens with its own number.

    The numbers are those of the sequences; padding gets -1.

    Args:
        sequence_ids: int tensor `(batch, length)`.
        padding_mask: bool tensor `(batch, length)`, or `None`.

    Returns:
        int32 tensor `(batch, length)`. Padding sees padding, which nothing reads.
    """
    numbers = ops.cast(sequence_ids, "int32")
    if padding_mask is None:
        return numbers
    return ops.where(padding_mask, numbers, -1)


def restarted_positions(sequence_ids: Tensor) -> Tensor:
    """Give each token's position in its sequence.

    Args:
        sequence_ids: int tensor `(batch, length)`.

    Returns:
        An int tensor `(batch, length)` that counts from 0 in each sequence.
    """
    # Example: sequence ids 1 1 1 2 2 give positions 0 1 2 0 1. Sequences begin at 0 and
    # 3, which sorting brings to the front: starts 0 3 5 5 5. That costs less than
    # comparing all pairs of tokens.
    index = ops.arange(ops.shape(sequence_ids)[1], dtype="int32")
    begins = ops.not_equal(sequence_ids[:, 1:], sequence_ids[:, :-1])
    begins = ops.pad(begins, [[0, 0], [1, 0]], constant_values=True)
    starts = ops.sort(ops.where(begins, index, ops.shape(sequence_ids)[1]), axis=1)
    number = ops.cumsum(ops.cast(begins, "int32"), axis=1) - 1
    return index - ops.take_along_axis(starts, number, axis=1)
