"""Which tokens of texts are noise: pure seeded functions over ragged batches.

A noise mask is a ragged bool tensor `(batch, None)`, true where the noise is. Spans are
their borders, from which texts with sentinels are made in half the time.
"""

import math

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.layers.data.pairs.segments import uniform_below
from keras_bertfam.layers.data.seeding import random_uniform, split_seed
from keras_bertfam.types import TFRagged, TFTensor


def iid_noise(lengths: TFTensor, rate: float, seed: TFTensor) -> TFRagged:
    """Draw noise that is each token by itself with probability `rate`.

    Args:
        lengths: int32 tensor of shape `(batch,)`: the tokens of each text.
        rate: float.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A ragged bool tensor `(batch, None)`.
    """
    draws = random_uniform([tf.reduce_sum(lengths)], seed)
    return as_rows(draws < rate, lengths)


def span_counts(
    lengths: TFTensor, rate: float, mean_length: float
) -> tuple[TFTensor, TFTensor]:
    """Compute how many tokens of each text are noise, and in how many spans.

    `rate` of the tokens, half rounding to even, but at least one token is noise and
    one isn't; and `mean_length` of these to a span. A single token is no noise.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float.
        mean_length: float.

    Returns:
        Two int32 tensors of that shape.
    """
    expected = tf.round(tf.cast(lengths, tf.float64) * rate)
    noise = tf.minimum(tf.maximum(tf.cast(expected, tf.int32), 1), lengths - 1)
    noise = tf.maximum(noise, 0)
    spans = tf.round(tf.cast(noise, tf.float64) / mean_length)
    spans = tf.maximum(tf.cast(spans, tf.int32), 1)
    return noise, tf.minimum(spans, tf.minimum(noise, lengths - noise))


def random_spans(
    lengths: TFTensor, rate: float, mean_length: float, seed: TFTensor
) -> tuple[TFTensor, TFTensor]:
    """Draw T5's spans: noise and the rest, cut into equally many parts that alternate.

    All partitions into parts that aren't empty are equally likely. A text begins with
    what is no noise and ends with noise; one of a single token has none.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float. See `span_counts`.
        mean_length: float.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Two int32 tensors of shape `(batch, most spans)`: where the spans of each text
        begin and end, in ascending order; both are the text's length where it has no
        more.
    """
    # Example: five tokens, two of noise in two spans. Noise is cut into 1 + 1, and the
    # rest into 2 + 1, say: `x x N x N`, spans that begin at 2, 4 and end at 3, 5.
    noise, spans = span_counts(lengths, rate, mean_length)
    # Both at once: in `tf.data` these operations cost more than their numbers.
    totals = tf.concat([noise, lengths - noise], 0)
    begins, ends = random_parts(totals, tf.concat([spans, spans], 0), seed)
    first, _ = tf.split(begins, 2)
    last, before = tf.split(ends, 2)
    return before + first, before + last


def prefix_noise(
    lengths: TFTensor,
    rate: float | None,
    seed: TFTensor,
    mean_rate: float | None = None,
) -> TFRagged:
    """Draw noise that is all after a prefix, which is never empty.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float, the share of the text that is noise, or `None`: all prefixes that
            leave a token are equally likely.
        seed: integer tensor of shape `(2,)`.
        mean_rate: float or `None`. In place of `rate`, the share of the text that is
            noise in the mean: all numbers of tokens from 1 to twice that, less one, are
            equally likely.

    Returns:
        A ragged bool tensor `(batch, None)`.
    """
    if mean_rate is not None:
        most = 2 * span_counts(lengths, mean_rate, 1.0)[0] - 1
        most = tf.clip_by_value(most, 0, tf.maximum(lengths - 1, 0))
        kept = lengths - tf.minimum(1 + uniform_below(most, seed), most)
    elif rate is None:
        kept = 1 + uniform_below(tf.maximum(lengths - 1, 0), seed)
    else:
        kept = lengths - span_counts(lengths, rate, 1.0)[0]
    begin = tf.cumsum(lengths, exclusive=True)
    kept = tf.minimum(kept, lengths)
    inside = cover(begin + kept, begin + lengths, tf.reduce_sum(lengths))
    return as_rows(inside > 0, lengths)


def fragment_noise(lengths: TFTensor, rate: float, seed: TFTensor) -> TFRagged:
    """Draw noise that is one run of `rate` of the tokens, anywhere.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float. See `span_counts`.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A ragged bool tensor `(batch, None)`.
    """
    noise, _ = span_counts(lengths, rate, 1.0)
    begin = tf.cumsum(lengths, exclusive=True)
    begin += uniform_below(lengths - noise + 1, seed)
    inside = cover(begin, begin + noise, tf.reduce_sum(lengths))
    return as_rows(inside > 0, lengths)


def budget_noise(lengths: TFTensor, rate: float, seed: TFTensor) -> TFRagged:
    """Draw noise of `ceil(length * rate)` tokens, all sets of them equally likely.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A ragged bool tensor `(batch, None)`.
    """
    chosen = random_subset(lengths, _budgets(lengths, rate), seed)
    inside = tf.range(tf.shape(chosen)[1]) < lengths[:, None]
    return as_rows(ragged.keep(chosen, inside), lengths)


def poisson_spans(
    lengths: TFTensor, rate: float, mean_length: float, seed: TFTensor
) -> tuple[TFRagged, TFRagged, TFTensor]:
    """Draw BART's spans, lengths that cover the budget, the last one cut to it.

    The budget is `ceil(length * rate)` tokens. Spans begin at different tokens, each
    set and order of which is equally likely; they end with the text, and may run into
    each other, so that there may be less noise than the budget. Spans of no token are
    insertions.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float.
        mean_length: float. That of the Poisson distribution.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Ragged bool tensors `(batch, None)`: the noise, and where its spans begin; and
        how many insertions there are, int32 `(batch,)`.
    """
    seeds = split_seed(seed, 2)
    budgets = _budgets(lengths, rate)
    sizes = _spans_of_budgets(budgets, mean_length, seeds[0])
    used, sizes = sizes >= 0, tf.maximum(sizes, 0)
    full = sizes > 0
    number = tf.cumsum(tf.cast(full, tf.int32), axis=1)
    anchors = shuffled_places(lengths, number[:, -1], seeds[1])
    number = tf.clip_by_value(number - 1, 0, tf.shape(anchors)[1] - 1)
    anchors = tf.gather(anchors, number, batch_dims=1)
    offset = tf.cumsum(lengths, exclusive=True)[:, None]
    begin = ragged.keep(offset + anchors, full)
    limit = ragged.keep((offset + lengths[:, None]) + 0 * anchors, full)
    end = tf.minimum(begin + ragged.keep(sizes, full), limit)
    total = tf.reduce_sum(lengths)
    noise = cover(begin, end, total) > 0
    # A span that begins in another one is a part of it.
    starts = tf.math.unsorted_segment_sum(tf.ones_like(begin), begin, total) > 0
    starts &= cover(begin + 1, tf.maximum(end, begin + 1), total) == 0
    insertions = tf.reduce_sum(tf.cast(used & ~full, tf.int32), 1)
    return as_rows(noise, lengths), as_rows(starts, lengths), insertions


def _spans_of_budgets(budgets, mean_length, seed):
    """Draw Poisson lengths that cover budgets, `(batch, draws)`; -1 if not needed."""
    most = tf.cast(greatest(budgets), tf.float64) / mean_length
    draws = tf.cast(tf.math.ceil(most + 8 * tf.sqrt(most)), tf.int32) + 16
    shape = [tf.size(budgets), draws]
    uniform = random_uniform(shape, seed, dtype=tf.float64)
    bounds = tf.constant(poisson_bounds(mean_length), tf.float64)
    sizes = tf.searchsorted(bounds, tf.reshape(uniform, [-1]), side="right")
    return cut_to_budgets(tf.reshape(sizes, shape), budgets)


def cut_to_budgets(sizes: TFTensor, budgets: TFTensor) -> TFTensor:
    """Cut lengths off where they reach the row's budget; -1 follows.

    Args:
        sizes: int32 tensor of shape `(batch, draws)`, not negative.
        budgets: int32 tensor of shape `(batch,)`.

    Returns:
        An int32 tensor of shape `(batch, draws)`.
    """
    # Example: sizes 2, 0, 3, 1, 2 and a budget of 4 give 2, 0, 2, -1, -1.
    left = budgets[:, None] - tf.cumsum(sizes, axis=1, exclusive=True)
    return tf.where(left > 0, tf.minimum(sizes, left), -1)


def poisson_bounds(mean_length: float) -> list[float]:
    """Compute where uniform draws of the lengths 0, 1, ... end, but for the last.

    Lengths of a probability below 1e-7 are left out.
    """
    probabilities, value, number = [], math.exp(-mean_length), 0
    while value >= 1e-7 or number < mean_length:
        probabilities.append(value)
        number += 1
        value *= mean_length / number
    total, bounds = 0.0, []
    for probability in probabilities[:-1]:
        total += probability / sum(probabilities)
        bounds.append(total)
    return bounds


def cover(begin: TFTensor, end: TFTensor, total: TFTensor) -> TFTensor:
    """Count the ranges that each of `total` places is in.

    Args:
        begin: int32 tensor of shape `(ranges,)`.
        end: int32 tensor of that shape, up to `total`, not less than `begin`.
        total: int32 scalar.

    Returns:
        An int32 tensor of shape `(total,)`.
    """
    # Example: ranges 0 to 3 and 2 to 4 of five places. The steps at the borders are
    # 1, 0, 1, -1, -1, and their sums 1, 1, 2, 1, 0.
    ones = tf.ones_like(begin)
    # Faster than a scatter.
    steps = tf.math.unsorted_segment_sum(
        tf.concat([ones, -ones], 0), tf.concat([begin, end], 0), total + 1
    )
    return tf.cumsum(steps)[:-1]


def _budgets(lengths, rate):
    return tf.cast(tf.math.ceil(tf.cast(lengths, tf.float64) * rate), tf.int32)


def random_parts(
    totals: TFTensor, counts: TFTensor, seed: TFTensor
) -> tuple[TFTensor, TFTensor]:
    """Cut numbers into parts of at least 1, all partitions equally likely.

    Args:
        totals: int32 tensor of shape `(batch,)`.
        counts: int32 tensor of that shape: the parts of each, at most its number. None
            are as one.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Two int32 tensors of shape `(batch, most parts)`: where each part begins and
        where it ends; both are the number where there are no more.
    """
    # Example: 5 in two parts, and the place 2 drawn of 0 to 3: a border at 3, and parts
    # that begin at 0, 3 and end at 3, 5.
    inner = 1 + random_places(totals - 1, counts - 1, seed)
    total = tf.expand_dims(totals, 1)
    borders = tf.concat([tf.zeros_like(total), inner, total], 1)
    return borders[:, :-1], borders[:, 1:]


def random_places(sizes: TFTensor, counts: TFTensor, seed: TFTensor) -> TFTensor:
    """Draw some of the places of each row, all sets of them equally likely.

    Args:
        sizes: int32 tensor of shape `(batch,)`: how many places there are.
        counts: int32 tensor of that shape: how many are drawn, at most all.
        seed: integer tensor of shape `(2,)`.

    Returns:
        An int32 tensor of shape `(batch, most drawn)`: the places in ascending order,
        then the row's size.
    """
    chosen = random_subset(sizes, counts, seed)
    width = tf.shape(chosen)[1]
    found = tf.cast(tf.where(tf.reshape(chosen, [-1]))[:, 0], tf.int32)
    rows, most = tf.size(sizes), greatest(counts)
    shape = tf.stack([rows, most])
    places = as_rows(found, tf.maximum(counts, 0)).to_tensor(shape=shape)
    places -= width * tf.expand_dims(tf.range(rows), 1)
    drawn = tf.range(most) < tf.expand_dims(counts, 1)
    return tf.where(drawn, places, tf.expand_dims(sizes, 1))


def shuffled_places(sizes: TFTensor, counts: TFTensor, seed: TFTensor) -> TFTensor:
    """Draw places as `random_places` does, but in any order, all equally likely."""
    seeds = split_seed(seed, 2)
    places = random_places(sizes, counts, seeds[0])
    bits = random_uniform(tf.shape(places), seeds[1], 0, tf.int32.max, tf.int32)
    drawn = tf.range(tf.shape(places)[1]) < counts[:, None]
    order = tf.argsort(tf.where(drawn, bits, tf.int32.max), axis=1)
    return tf.gather(places, order, batch_dims=1)


def random_subset(sizes: TFTensor, counts: TFTensor, seed: TFTensor) -> TFTensor:
    """Mark some of the places of each row, all sets of them equally likely.

    The arguments are those of `random_places`.

    Returns:
        A bool tensor of shape `(batch, most places)`.
    """
    # The fewer are drawn: those that are in the set, or those that aren't.
    fewer = tf.minimum(counts, sizes - counts)
    drawn, before = _draws(sizes, fewer, seed)
    early = tf.cast(before < tf.expand_dims(fewer, 1), tf.int32)
    chosen = drawn < tf.reduce_sum(early, 1, keepdims=True)
    inverse = fewer < counts

    def inverted():
        inside = tf.range(tf.shape(chosen)[1]) < sizes[:, None]
        return (chosen != inverse[:, None]) & inside

    return tf.cond(tf.reduce_any(inverse), inverted, lambda: chosen)


def _draws(sizes, counts, seed):
    """Draw places one by one, with replacement, until enough are different.

    Places that are drawn first are a random set. Faster than random numbers for all
    places, of which the greatest are taken.

    Args:
        sizes: int32 tensor of shape `(batch,)`.
        counts: int32 tensor of that shape, at most half of the sizes.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Two int32 tensors: which draw was the first of each place, `(batch, most
        places)`; and how many places have been drawn before each draw, `(batch,
        draws)`.
    """
    # Example: of five places 3, 1, 3, 0, ... are drawn. 3 was first in draw 0, 1 in
    # draw 1 and 0 in draw 3; before these draws there have been 0, 1, 2, 2 places.
    rows, width = tf.size(sizes), greatest(sizes)
    # Twice as many as are expected not to be new, and some: that they are too few is as
    # unlikely as ten standard deviations.
    old = counts // tf.maximum((sizes - counts) // tf.maximum(counts, 1), 1)
    draws = greatest(counts + old) + 24
    bits = random_uniform(tf.stack([rows, draws]), seed, None, None, tf.int32)
    places = tf.math.floormod(bits, tf.expand_dims(tf.maximum(sizes, 1), 1))
    flat = places + width * tf.expand_dims(tf.range(rows), 1)
    number = tf.range(draws) + tf.zeros_like(flat)
    drawn = tf.math.unsorted_segment_min(number, flat, rows * width)
    new = tf.cast(tf.equal(tf.gather(drawn, flat), number), tf.int32)
    before = tf.cumsum(new, axis=1, exclusive=True)
    return tf.reshape(drawn, [rows, width]), before


def as_rows(values: TFTensor, lengths: TFTensor) -> TFRagged:
    """Cut the tokens of a batch, one row after the other, into rows."""
    lengths = tf.cast(lengths, tf.int64)
    return ragged.from_lengths(values, lengths)


def greatest(counts: TFTensor) -> TFTensor:
    """Find the greatest of some numbers, at least 1."""
    return tf.reduce_max(tf.concat([counts, [1]], 0))
