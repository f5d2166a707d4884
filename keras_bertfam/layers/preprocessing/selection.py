"""Which positions are selected, and what replaces them: pure seeded functions."""

import functools
import math

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.preprocessing.seeding import RNG


def max_selections(length, rate, count):
    """Returns the most selections that `count` gives a row of `length` tokens."""
    if count == "fairseq":
        return max(1, math.ceil(length * rate))
    return max(1, round(length * rate))


def count_selections(lengths, rate, count, seed):
    """Returns how many tokens to select in rows of `lengths` tokens, int32."""
    expected = tf.cast(lengths, tf.float64) * rate
    if count == "fairseq":
        noise = tf.random.stateless_uniform(
            tf.shape(lengths), seed, dtype=tf.float64, alg=RNG
        )
        return tf.cast(expected + noise, tf.int32)
    return tf.maximum(tf.cast(tf.round(expected), tf.int32), 1)


def is_any(ids, values):
    """Returns where `ids` is one of `values`, a sequence of ints."""
    if len(values) > 8:
        highest = max(values)
        table = np.isin(np.arange(highest + 2), values)
        return tf.gather(table, tf.minimum(ids, highest + 1))
    equal = [tf.equal(ids, value) for value in values]
    return functools.reduce(tf.logical_or, equal, tf.zeros_like(ids, tf.bool))


def select_tokens(candidates, counts, max_count, seed):
    """Selects `counts` of the `candidates` in each row, uniformly.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        counts: int32 tensor of shape `(batch,)`.
        max_count: int. An upper bound of `counts`.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A bool tensor of shape `(batch, length)` with `counts` true elements in
        each row, or all `candidates` if they are fewer.
    """
    lowest, highest = tf.int32.min, tf.int32.max
    scores = tf.where(candidates, distinct_scores(tf.shape(candidates), seed), lowest)
    # The (max_count)-th of a row lengthened by `max_count - counts` highest
    # scores is the (counts)-th of the row: one fixed rank for all rows.
    above = tf.range(max_count)[None] < max_count - counts[:, None]
    threshold = tf.raw_ops.NthElement(
        input=tf.concat([scores, tf.where(above, highest, lowest)], 1),
        n=max_count - 1,
        reverse=True,
    )
    # With no selections at all the threshold is `highest`, which no score has.
    return candidates & (scores >= threshold[:, None])


def distinct_scores(shape, seed):
    """Returns random int32 scores of `shape`, at least 0, distinct within a row.

    The position breaks ties, which 24 random bits at 128 tokens make rare.
    """
    length = shape[1]
    bits = tf.random.stateless_uniform(
        shape, seed, 0, tf.int32.max // length, tf.int32, alg=RNG
    )
    return bits * length + tf.range(length)


def select_words(candidates, starts, counts, seed):
    """Selects whole words in random order, each that fits what is left.

    A word is a candidate that starts one, or follows a token that is no
    candidate, together with the candidates after it that don't start one.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        starts: bool tensor of that shape: which tokens start a word.
        counts: int32 tensor of shape `(batch,)`: how many tokens to select.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A bool tensor of shape `(batch, length)` with at most `counts` true
        elements in each row.
    """
    shape = tf.shape(candidates)
    after_other = ~tf.pad(candidates, [[0, 0], [1, 0]])[:, :-1]
    starts = (starts & candidates) | after_other
    # Tokens that are no candidates add nothing to the sizes.
    word = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1
    word += tf.range(shape[0])[:, None] * shape[1]
    sizes = tf.math.unsorted_segment_sum(
        tf.reshape(tf.cast(candidates, tf.int32), [-1]),
        tf.reshape(word, [-1]),
        shape[0] * shape[1],
    )
    order = tf.argsort(distinct_scores(shape, seed), axis=1)
    in_order = tf.gather(tf.reshape(sizes, shape), order, axis=1, batch_dims=1)
    taken = take_fitting(in_order, counts)
    order += tf.range(shape[0])[:, None] * shape[1]
    taken = tf.scatter_nd(
        tf.reshape(order, [-1, 1]), tf.reshape(taken, [-1]), [shape[0] * shape[1]]
    )
    return candidates & tf.gather(taken, word)


def take_fitting(sizes, budgets):
    """Walks along each row and takes whatever fits what is left of the budget.

    Each turn of the loop takes all sizes up to the next that doesn't fit, so
    two to four turns do instead of one per size.

    Args:
        sizes: int32 tensor of shape `(batch, n)`; zeros are never taken.
        budgets: int32 tensor of shape `(batch,)`.

    Returns:
        A bool tensor of shape `(batch, n)`.
    """

    def turn(taken, left):
        open_sizes = tf.where(taken | (sizes > left[:, None]), 0, sizes)
        new = (tf.cumsum(open_sizes, axis=1) <= left[:, None]) & (open_sizes > 0)
        return taken | new, left - tf.reduce_sum(tf.where(new, sizes, 0), 1)

    def unfinished(taken, left):
        return tf.reduce_any((sizes > 0) & ~taken & (sizes <= left[:, None]))

    taken = tf.zeros_like(sizes, tf.bool)
    return tf.while_loop(unfinished, turn, (taken, budgets))[0]


def replace_tokens(originals, seed, mask_token_id, drawn_from, mask_rate, random_rate):
    """Replaces each token by the mask token, a random one, or itself.

    Args:
        originals: int32 tensor of shape `(n,)`.
        seed: integer tensor of shape `(2,)`.
        mask_token_id: int.
        drawn_from: int or sequence of ints. Random tokens are uniform in
            `[0, drawn_from)`, or uniform over the given ids.
        mask_rate: float. The probability of the mask token.
        random_rate: float. The probability of a random token.

    Returns:
        An int32 tensor of shape `(n,)`.
    """
    seeds = tf.unstack(tf.random.split(seed, 2, alg=RNG), 2)
    shape = tf.shape(originals)
    size = drawn_from if isinstance(drawn_from, int) else len(drawn_from)
    drawn = tf.random.stateless_uniform(shape, seeds[0], 0, size, tf.int32, alg=RNG)
    if not isinstance(drawn_from, int):
        drawn = tf.gather(tf.constant(drawn_from, tf.int32), drawn)
    fate = tf.random.stateless_uniform(shape, seeds[1], alg=RNG)
    kept_or_drawn = tf.where(fate < mask_rate + random_rate, drawn, originals)
    return tf.where(fate < mask_rate, mask_token_id, kept_or_drawn)


def fill_slots(where, values, num_rows, num_slots):
    """Lays out the selections of each row in a fixed number of slots.

    Args:
        where: int64 tensor of shape `(n, 2)`: row and position of each
            selection, in lexicographic order.
        values: int32 tensor of shape `(n,)`.
        num_rows: int64 scalar.
        num_slots: int. No row may have more selections.

    Returns:
        The positions and values, int32, and weights, float32, of shape
        `(num_rows, num_slots)`; empty slots are 0 in all three.
    """
    splits = tf.searchsorted(where[:, 0], tf.range(num_rows + 1))
    slot = splits[:-1, None] + tf.range(num_slots)
    full = slot < splits[1:, None]
    # One extra element, so that empty slots and empty batches have an index.
    slot = tf.where(full, slot, tf.size(values))
    positions = tf.pad(tf.cast(where[:, 1], tf.int32), [[0, 1]])
    return (
        tf.gather(positions, slot),
        tf.gather(tf.pad(values, [[0, 1]]), slot),
        tf.cast(full, tf.float32),
    )
