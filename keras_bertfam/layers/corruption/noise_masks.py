"""Which tokens of texts are noise: pure seeded functions over ragged batches.

Noise has two forms. A noise mask is a ragged bool tensor `(batch, None)`, true for
noise. Spans are given by where they begin and end; inputs with sentinels are made from
spans in half the time.
"""

import math

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.layers.data.pairs.segments import uniform_below
from keras_bertfam.layers.data.seeding import random_uniform, split_seed
from keras_bertfam.types import TFRagged, TFTensor


def iid_noise(lengths: TFTensor, rate: float, seed: TFTensor) -> TFRagged:
    """Draw noise: each token independently, with probability `rate`.

    Args:
        lengths: int32 tensor of shape `(batch,)`: the number of tokens of each text.
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

    A share `rate` of the tokens is noise, half rounding to even. At least one token is
    noise and at least one isn't, but a text of a single token has no noise. The number
    of spans is the noise divided by `mean_length`, rounded.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float.
        mean_length: float.

    Returns:
        Two int32 tensors of that shape: the tokens of noise, and the spans.
    """
    # Example: lengths 1, 2, 20, 100, a rate of .15 and a mean length of 3: the noise is
    # 0, 1, 3, 15, and the spans are 0, 1, 1, 5.
    expected = tf.round(tf.cast(lengths, tf.float64) * rate)
    noise = tf.minimum(tf.maximum(tf.cast(expected, tf.int32), 1), lengths - 1)
    noise = tf.maximum(noise, 0)
    spans = tf.round(tf.cast(noise, tf.float64) / mean_length)
    spans = tf.maximum(tf.cast(spans, tf.int32), 1)
    return noise, tf.minimum(spans, tf.minimum(noise, lengths - noise))


def random_spans(
    lengths: TFTensor, rate: float, mean_length: float, seed: TFTensor
) -> tuple[TFTensor, TFTensor]:
    """Draw T5's spans: noise and the rest alternate, in equally many parts.

    All partitions into parts of at least one token are equally likely. A text ends with
    noise and begins with the rest. A text of a single token has no noise.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float. See `span_counts`.
        mean_length: float.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Two int32 tensors of shape `(batch, most spans)`: where the spans of each text
        begin and end, in ascending order. Unused places have the text's length.
    """
    # Example: five tokens, two of noise (N) in two spans. The noise is cut into 1 + 1;
    # let the rest be cut into 2 + 1. The text is `x x N x N`: spans begin at 2, 4 and
    # end at 3, 5.
    noise, spans = span_counts(lengths, rate, mean_length)
    # Cut both in one call: in `tf.data` a call costs more than its numbers.
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
    """Draw noise: all tokens after a prefix of at least one token.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float, the share of the text that is noise. `None`: all prefixes that
            leave at least one token are equally likely.
        seed: integer tensor of shape `(2,)`.
        mean_rate: float or `None`. The mean share of the text that is noise, in place
            of `rate`. With a mean of `m` tokens, the number of tokens is uniform from 1
            to `2 * m - 1`.

    Returns:
        A ragged bool tensor `(batch, None)`.
    """
    # Example: lengths 3 and 4 with prefixes of 1 and 3 tokens give 0 1 1 | 0 0 0 1.
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
    """Draw noise: one run of a share `rate` of the tokens, at a random place.

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
    """Draw noise: `ceil(length * rate)` tokens, all sets of them equally likely.

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
    """Draw BART's spans, whose lengths have a Poisson distribution.

    Lengths are drawn until they cover the budget of `ceil(length * rate)` tokens; the
    last one is cut to it. Spans begin at different tokens, whose sets and orders are
    all equally likely. A span stops at the text's end and may run into another one, so
    there can be less noise than the budget. A span of length 0 is an insertion.

    Args:
        lengths: int32 tensor of shape `(batch,)`.
        rate: float.
        mean_length: float. Mean of the Poisson distribution.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Two ragged bool tensors `(batch, None)`: the noise, and where its spans begin.
        And an int32 tensor `(batch,)`: the number of insertions.
    """
    # Example: a text of eight tokens, a rate of .5 and lengths 3, 0, 2 drawn. The
    # budget of 4 cuts the last to 1. Let the spans of 3 and 1 begin at 4 and 2: the
    # noise is 0 0 1 0 1 1 1 0, its spans begin at 2 and 4, and one mask is inserted.
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
    # A span that begins inside another one is merged with it.
    starts = tf.math.unsorted_segment_sum(tf.ones_like(begin), begin, total) > 0
    starts &= cover(begin + 1, tf.maximum(end, begin + 1), total) == 0
    insertions = tf.reduce_sum(tf.cast(used & ~full, tf.int32), 1)
    return as_rows(noise, lengths), as_rows(starts, lengths), insertions


def _spans_of_budgets(budgets, mean_length, seed):
    """Draw Poisson lengths that cover budgets, `(batch, draws)`; -1 once covered."""
    most = tf.cast(greatest(budgets), tf.float64) / mean_length
    draws = tf.cast(tf.math.ceil(most + 8 * tf.sqrt(most)), tf.int32) + 16
    shape = [tf.size(budgets), draws]
    uniform = random_uniform(shape, seed, dtype=tf.float64)
    bounds = tf.constant(poisson_bounds(mean_length), tf.float64)
    sizes = tf.searchsorted(bounds, tf.reshape(uniform, [-1]), side="right")
    return cut_to_budgets(tf.reshape(sizes, shape), budgets)


def cut_to_budgets(sizes: TFTensor, budgets: TFTensor) -> TFTensor:
    """Cut the lengths of each row where their sum reaches its budget; -1 follows.

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
    """Compute cumulative probabilities of the lengths 0, 1, ... except the last.

    A uniform draw below the first bound means length 0, below the second length 1, and
    so on. Long lengths with a probability below 1e-7 are left out.
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
    """Count for each of `total` places the ranges that contain it.

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
    # A segment sum is faster than a scatter.
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
        counts: int32 tensor of that shape: into how many parts each number is cut, at
            most as many as the number. A count of 0 means 1.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Two int32 tensors of shape `(batch, most parts)`: where each part begins and
        where it ends. Unused places have the number itself.
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
        sizes: int32 tensor of shape `(batch,)`: the number of places of each row.
        counts: int32 tensor of that shape: how many are drawn, at most `sizes`.
        seed: integer tensor of shape `(2,)`.

    Returns:
        An int32 tensor of shape `(batch, most drawn)`: the places in ascending order,
        then the row's size.
    """
    # Example: sizes 5 and 3, counts 2 and 1, and the sets {1, 4} and {0} drawn give
    # 1, 4 and 0, 3: the 3 fills an unused place.
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
    """Draw places as `random_places` does, but in random order."""
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
    # Example: sizes 5 and 3, counts 2 and 2, and the sets {1, 4} and {0, 1} drawn give
    # 0 1 0 0 1 and 1 1 0 0 0.
    # Draw the smaller set: the places that are in, or the places that are out.
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

    The first `counts` different places are a random set. This is faster than to draw a
    number for each place and take the places with the greatest.

    Args:
        sizes: int32 tensor of shape `(batch,)`.
        counts: int32 tensor of that shape, at most half of the sizes.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Two int32 tensors: the number of the draw that gave each place first, `(batch,
        most places)`; and how many different places there were before each draw,
        `(batch, draws)`.
    """
    # Example: the draws 3, 1, 3, 0, ... of five places. Place 3 comes first in draw 0,
    # place 1 in draw 1 and place 0 in draw 3. Before the draws there were 0, 1, 2, 2
    # different places.
    rows, width = tf.size(sizes), greatest(sizes)
    # Some draws repeat a place. Plan for twice the expected number of repetitions, and
    # 24 more: too few draws are as unlikely as ten standard deviations.
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
    """Cut flat values, one row after the other, into rows of given lengths."""
    lengths = tf.cast(lengths, tf.int64)
    return ragged.from_lengths(values, lengths)


def greatest(counts: TFTensor) -> TFTensor:
    """Find the greatest of some counts, at least 1."""
    return tf.reduce_max(tf.concat([counts, [1]], 0))
