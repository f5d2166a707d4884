"""Selection of positions: how many, and which. Pure seeded functions."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.seeding import random_uniform
from keras_bertfam.types import TFTensor


def most_selections(length: int, rate: float, selections_per_row: str) -> int:
    """Return the most selections that a rule gives a row of `length` tokens."""
    if selections_per_row in ("fairseq", "spanbert"):
        return max(1, math.ceil(length * rate))
    return max(1, round(length * rate))


def count_selections(
    lengths: TFTensor,
    selectable: TFTensor,
    rate: float,
    selections_per_row: str,
    seed: TFTensor,
) -> TFTensor:
    """Return how many tokens to select in each row, int32.

    Args:
        lengths: int32 tensor of shape `(batch,)`: how many tokens aren't padding.
        selectable: int32 tensor of that shape: how many tokens may be selected.
        rate: float.
        selections_per_row: `"bert"`, `"fairseq"` or `"spanbert"`; see `MaskTokens`.
        seed: integer tensor of shape `(2,)`.
    """
    if selections_per_row == "spanbert":
        return tf.cast(tf.math.ceil(tf.cast(selectable, tf.float64) * rate), tf.int32)
    expected = tf.cast(lengths, tf.float64) * rate
    if selections_per_row == "fairseq":
        noise = random_uniform(tf.shape(lengths), seed, dtype=tf.float64)
        return tf.cast(expected + noise, tf.int32)
    return tf.maximum(tf.cast(tf.round(expected), tf.int32), 1)


def is_any(ids: TFTensor, values: Sequence[int]) -> TFTensor:
    """Tell which ids are among `values`, a sequence of ints."""
    if len(values) > 8:
        highest = max(values)
        table = np.isin(np.arange(highest + 2), values)
        return tf.gather(table, tf.minimum(ids, highest + 1))
    equal = [tf.equal(ids, value) for value in values]
    return functools.reduce(tf.logical_or, equal, tf.zeros_like(ids, tf.bool))


def select_tokens(
    candidates: TFTensor, counts: TFTensor, max_count: int, seed: TFTensor
) -> TFTensor:
    """Select `counts` of the `candidates` in each row, uniformly.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        counts: int32 tensor of shape `(batch,)`.
        max_count: int. An upper bound of `counts`.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A bool tensor of shape `(batch, length)` with `counts` true elements in
        each row, or all `candidates` if they are fewer.
    """
    scores = distinct_scores(tf.shape(candidates), seed)
    return keep_highest(tf.where(candidates, scores, -1), counts, max_count)


def keep_highest(
    scores: TFTensor, counts: TFTensor, max_count: int | TFTensor
) -> TFTensor:
    """Return where the `counts` highest non-negative scores of each row are.

    Args:
        scores: int32 tensor of shape `(batch, length)`, distinct within a row;
            a negative one is never kept.
        counts: int32 tensor of shape `(batch,)`.
        max_count: int or int32 scalar. An upper bound of `counts`.
    """
    # Example: scores 7, 3, -1, 9, 5 and a count of 2 keep the places of 7 and 9.
    lowest, highest = tf.int32.min, tf.int32.max
    # `top_k` needs the same k for all rows. So a row gets `max_count - counts` dummies
    # that are higher than all its scores: its `counts`-th score is then in place
    # `max_count`, in every row.
    above = tf.range(max_count)[None] < max_count - counts[:, None]
    threshold = tf.raw_ops.NthElement(
        input=tf.concat([scores, tf.where(above, highest, lowest)], 1),
        n=max_count - 1,
        reverse=True,
    )
    # A count of 0 gives the threshold `highest`, which no score has.
    return (scores >= 0) & (scores >= threshold[:, None])


def distinct_scores(shape: TFTensor, seed: TFTensor) -> TFTensor:
    """Return random int32 scores of `shape`, at least 0, distinct within a row.

    The position breaks ties. They are rare: with 128 tokens, scores have 24 random
    bits.
    """
    length = shape[1]
    bits = random_uniform(shape, seed, 0, tf.int32.max // length, tf.int32)
    return bits * length + tf.range(length)


# The most tokens of a part of a long word, as many as words of SpanBERT's longest span.
LONGEST_PART = 10


def part_long_words(
    candidates: TFTensor, starts: TFTensor, counts: TFTensor, seed: TFTensor
) -> TFTensor:
    """Cut words that are longer than a row's count into parts.

    With a count of 2, the word `wwwww` becomes `w`, `ww`, `ww`, for example. A part has
    as many tokens as the count, at most 10; the first cut is at a random place.

    The published code skips long words, and so does this function if the other words
    can fill the count. But text without spaces, such as Thai or DNA, is one word a row,
    and nothing of it would ever be masked.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        starts: bool tensor of that shape: which tokens start a word.
        counts: int32 tensor of shape `(batch,)`: how many tokens to select.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A bool tensor of shape `(batch, length)`: `starts`, and the starts of parts.
    """
    shape = tf.shape(candidates)
    word, sizes = number_words(candidates, starts)
    long = candidates & (tf.gather(sizes, word) > counts[:, None])
    others = tf.reduce_sum(tf.cast(candidates & ~long, tf.int32), 1)
    too_long = long & (others < counts)[:, None]

    def parted():
        places = tf.broadcast_to(tf.range(shape[1]), shape)
        first = tf.math.unsorted_segment_min(places, word, tf.size(sizes))
        each = tf.clip_by_value(counts, 1, LONGEST_PART)[:, None]
        offset = random_uniform([shape[0], 1], seed, 0, LONGEST_PART, tf.int32)
        return starts | too_long & (
            (places - tf.gather(first, word) + offset) % each == 0
        )

    return tf.cond(tf.reduce_any(too_long), parted, lambda: tf.identity(starts))


def number_words(candidates: TFTensor, starts: TFTensor) -> tuple[TFTensor, TFTensor]:
    """Number each token's word over the whole batch, and count its candidates.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        starts: bool tensor of that shape: which tokens start a word.

    Returns:
        Two int32 tensors: the numbers, of that shape; and the words' sizes, of shape
        `(batch * length,)`. A token that is no candidate is a word of size 0.
    """
    # Example: candidates 0 1 1 1 1, starts 0 1 0 1 0 (1 is true). The words are
    # 0 1 1 2 2, and their sizes 0, 2, 2.
    shape = tf.shape(candidates)
    starts = (starts & candidates) | after_other(candidates)
    word = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1
    word += tf.range(shape[0])[:, None] * shape[1]
    # Tokens that are no candidates add nothing to the sizes.
    sizes = tf.math.unsorted_segment_sum(
        tf.reshape(tf.cast(candidates, tf.int32), [-1]),
        tf.reshape(word, [-1]),
        shape[0] * shape[1],
    )
    return word, sizes


def select_words(
    candidates: TFTensor,
    starts: TFTensor,
    counts: TFTensor,
    seed: TFTensor,
    parts: bool = True,
) -> TFTensor:
    """Select whole words in random order, each that fits what is left of the count.

    A word begins at a candidate that starts one, or that follows a token that is no
    candidate. The candidates after it that don't start a word belong to it.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        starts: bool tensor of that shape: which tokens start a word.
        counts: int32 tensor of shape `(batch,)`: how many tokens to select.
        seed: integer tensor of shape `(2,)`.
        parts: bool. Whether words that are too long for the count are cut, see
            `part_long_words`. If not, they aren't selected.

    Returns:
        A bool tensor of shape `(batch, length)` with at most `counts` true
        elements in each row.
    """
    # Example: words of the sizes 2, 1, 3 and a count of 3. In the random order 1, 2, 0
    # the sizes are 1, 3, 2: the first and the last fit, so words 0 and 1 are selected.
    shape = tf.shape(candidates)
    if parts:
        starts = part_long_words(candidates, starts, counts, seed)
    word, sizes = number_words(candidates, starts)
    order = tf.argsort(distinct_scores(shape, seed), axis=1)
    in_order = tf.gather(tf.reshape(sizes, shape), order, axis=1, batch_dims=1)
    taken = take_fitting(in_order, counts)
    order += tf.range(shape[0])[:, None] * shape[1]
    taken = tf.scatter_nd(
        tf.reshape(order, [-1, 1]), tf.reshape(taken, [-1]), [shape[0] * shape[1]]
    )
    return candidates & tf.gather(taken, word)


def after_other(candidates: TFTensor) -> TFTensor:
    """Tell which tokens follow a token that is no candidate, and so begin a word."""
    return ~tf.pad(candidates, [[0, 0], [1, 0]])[:, :-1]


def select_smoothed(
    candidates: TFTensor,
    weights: TFTensor,
    counts: TFTensor,
    max_count: int,
    across_rows: bool,
    seed: TFTensor,
) -> TFTensor:
    """Select tokens one by one, each in proportion to the weights of those left.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        weights: float tensor of that shape, positive.
        counts: int32 tensor of shape `(batch,)`.
        max_count: int. An upper bound of `counts`, and of a row's selections.
        across_rows: bool. Whether to select `sum(counts)` tokens among all rows
            together.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A bool tensor of shape `(batch, length)`.
    """
    shape = tf.shape(candidates)
    uniform = random_uniform(shape, seed, dtype=tf.float64)
    # Exponential variables with these rates arrive in the order of such a selection.
    arrivals = -tf.math.log1p(-uniform) / tf.cast(weights, tf.float64)
    latest_first = tf.argsort(tf.reshape(arrivals, [-1]), direction="DESCENDING")
    scores = tf.scatter_nd(
        latest_first[:, None], tf.range(tf.size(latest_first)), [tf.size(latest_first)]
    )
    scores = tf.where(candidates, tf.reshape(scores, shape), -1)
    if not across_rows:
        return keep_highest(scores, counts, max_count)
    most = tf.fill([shape[0]], max_count)
    scores = tf.where(keep_highest(scores, most, max_count), scores, -1)
    total = tf.reduce_sum(counts, keepdims=True)
    kept = keep_highest(tf.reshape(scores, [1, -1]), total, tf.maximum(total[0], 1))
    return tf.reshape(kept, shape)


def take_fitting(sizes: TFTensor, budgets: TFTensor) -> TFTensor:
    """Walk along each row, and take every size that fits what is left of the budget.

    Each turn of the loop takes all sizes up to the next that doesn't fit. So two to
    four turns are enough, instead of one for each size.

    Args:
        sizes: int32 tensor of shape `(batch, n)`; zeros are never taken.
        budgets: int32 tensor of shape `(batch,)`.

    Returns:
        A bool tensor of shape `(batch, n)`.
    """
    # Example: sizes 2, 4, 1, 3, 1 and a budget of 5. The first turn takes 2, since
    # 2 + 4 is too much. The sizes 1, 3, 1 still fit the 3 that are left: the second
    # turn takes 1, and the third turn the last 1.

    def turn(taken, left):
        open_sizes = tf.where(taken | (sizes > left[:, None]), 0, sizes)
        new = (tf.cumsum(open_sizes, axis=1) <= left[:, None]) & (open_sizes > 0)
        return taken | new, left - tf.reduce_sum(tf.where(new, sizes, 0), 1)

    def unfinished(taken, left):
        return tf.reduce_any((sizes > 0) & ~taken & (sizes <= left[:, None]))

    taken = tf.zeros_like(sizes, tf.bool)
    return tf.while_loop(unfinished, turn, (taken, budgets))[0]
