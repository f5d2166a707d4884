"""Selection of spans of words: pure seeded functions."""

import tensorflow as tf

from keras_bertfam.layers.corruption.selection import (
    after_other,
    distinct_scores,
    keep_highest,
    part_long_words,
)
from keras_bertfam.layers.data.seeding import random_uniform, split_seed
from keras_bertfam.types import TFTensor


def select_spans(
    candidates: TFTensor,
    starts: TFTensor,
    counts: TFTensor,
    max_count: int,
    probabilities: list[float],
    seed: TFTensor,
) -> TFTensor:
    """Select spans of whole words until the count is reached exactly.

    As published: draw a length in words, and uniformly a token that isn't selected yet.
    Select that many words, beginning with the token's word. A span stops at the end of
    a run of candidates, and where the row's count is reached, even within a word. Spans
    may touch and overlap.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        starts: bool tensor of that shape: which tokens start a word.
        counts: int32 tensor of shape `(batch,)`: how many tokens to select.
        max_count: int. An upper bound of `counts`.
        probabilities: list of floats. The probabilities of the lengths 1, 2, ...
        seed: integer tensor of shape `(2,)`.

    Returns:
        A bool tensor of shape `(batch, length)` with `counts` true elements in
        each row, or all `candidates` if they are fewer.
    """
    seeds = split_seed(seed, 2)
    shape = tf.shape(candidates)
    starts = part_long_words(candidates, starts, counts, seed)
    word = number_words(candidates, starts, gap=len(probabilities))
    # Drawing until a token isn't selected is the same as walking through all tokens in
    # random order. Each selects itself, so `max_count` of them are enough.
    scores = tf.where(candidates, distinct_scores(shape, seeds[0]), -1)
    scores, anchors = tf.math.top_k(scores, tf.minimum(max_count, shape[1]))
    first_word = tf.gather(word, anchors, batch_dims=1)
    lengths = draw_lengths(tf.shape(anchors), probabilities, seeds[1])
    lengths = tf.where(scores < 0, 0, lengths)
    size = tf.shape(anchors)[1]

    def turn(i, rank, left):
        taken = tf.gather(rank, anchors[:, i], batch_dims=1) > 0
        begin = first_word[:, i]
        end = begin + tf.where(taken, 0, lengths[:, i])
        new = (word >= begin[:, None]) & (word < end[:, None]) & (rank == 0)
        left -= tf.reduce_sum(tf.cast(new, tf.int32), 1)
        # With a single row the static shape would change in the loop.
        rank = tf.ensure_shape(tf.where(new, size - i, rank), word.shape)
        return i + 1, rank, tf.ensure_shape(left, counts.shape)

    _, rank, _ = tf.while_loop(
        lambda i, _, left: (i < size) & tf.reduce_any(left > 0),
        turn,
        (tf.constant(0), tf.zeros_like(word), counts),
    )
    # If there are too many, earlier spans are kept, and the left part of a span.
    rank = rank * shape[1] - tf.range(shape[1])
    return keep_highest(tf.where(candidates, rank, -1), counts, max_count)


def select_ngrams(
    candidates: TFTensor,
    starts: TFTensor,
    counts: TFTensor,
    max_count: int,
    probabilities: list[float],
    seed: TFTensor,
) -> TFTensor:
    """Select n-grams of words, from starts in random order, without overlap.

    As published: draw n for each start, and shrink it until the n-gram's tokens fit
    what is left of the row's count. Skip the start if not even its own word fits, or if
    one of the tokens is selected already.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        starts: bool tensor of that shape: which tokens start a word.
        counts: int32 tensor of shape `(batch,)`: how many tokens to select.
        max_count: int. An upper bound of `counts`.
        probabilities: list of floats. The probabilities of n = 1, 2, ... Near the end
            of a run of candidates n is at most the number of words left.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A bool tensor of shape `(batch, length)` with at most `counts` true
        elements in each row.
    """
    seeds = split_seed(seed, 2)
    shape = tf.shape(candidates)
    position = tf.range(shape[1])
    starts = part_long_words(candidates, starts, counts, seed)
    starts = (starts | after_other(candidates)) & candidates
    scores = tf.where(starts, distinct_scores(shape, seeds[0]), -1)
    n = draw_lengths(shape, probabilities, seeds[1])
    sizes = _ngram_sizes(candidates, starts, n, len(probabilities))
    last, left, free = _take_disjoint(scores, sizes[-1], counts, max_count)

    def turn(last, left, free, _):
        fitting = [tf.where(s <= left[:, None], s, 0) for s in sizes]
        size = tf.reduce_max(tf.stack(fitting), 0)
        possible = (size > 0) & (size <= free) & (scores < last[:, None])
        score = tf.where(possible, scores, -1)
        begin = tf.argmax(score, 1, tf.int32)
        last = tf.gather(score, begin, batch_dims=1)
        found = last >= 0
        size = tf.where(found, tf.gather(size, begin, batch_dims=1), 0)
        # How far each token is from the next selected one: 0 if it is selected.
        before = tf.maximum(begin[:, None] - position, 0)
        reached = position < (begin + size)[:, None]
        near = tf.where(reached & found[:, None], before, shape[1])
        return last, left - size, tf.minimum(free, near), tf.reduce_any(found)

    state = (last, left, free, tf.constant(True))
    return tf.while_loop(lambda *state: state[-1], turn, state)[2] == 0


def select_ngram_windows(
    candidates: TFTensor,
    starts: TFTensor,
    counts: TFTensor,
    max_count: int,
    probabilities: list[float],
    window: int,
    seed: TFTensor,
) -> TFTensor:
    """Select an n-gram of words in each window, and keep as many as the count needs.

    As published: from left to right, draw n, and a place in the next `window * n`
    words, where the n-gram begins. The next window begins after both this window and
    its n-gram. Then keep the selected words from the left until the row's count is
    reached. The last word may exceed the count, but not `max_count`.

    Args:
        candidates: bool tensor of shape `(batch, length)`.
        starts: bool tensor of that shape: which tokens start a word.
        counts: int32 tensor of shape `(batch,)`: how many tokens to select.
        max_count: int. An upper bound of `counts`, and of a row's selections.
        probabilities: list of floats. The probabilities of n = 1, 2, ...
        window: int.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A bool tensor of shape `(batch, length)`.
    """
    # Example: 10 words, windows of 2 n words, and n = 2, 1, 1, 3 with the places 3, 0,
    # 1, 0. The windows begin at the words 0, 5, 7 and 9. The n-grams are the words 3 4,
    # then 5, then 8, then 9.
    seeds = split_seed(seed, 3)
    rows, length = tf.unstack(tf.shape(candidates))
    starts = part_long_words(candidates, starts, counts, seeds[2])
    fresh = candidates & after_other(candidates)
    starts = (starts & candidates) | fresh
    word = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    words = tf.reduce_sum(tf.cast(starts, tf.int32), 1, keepdims=True)

    shape = [rows, length // window + 1]
    n = draw_lengths(shape, probabilities, seeds[0])
    uniform = random_uniform(shape, seeds[1], dtype=tf.float64)

    def places(sizes):
        return tf.cast(uniform * tf.cast(sizes, tf.float64), tf.int32)

    steps = tf.maximum(window * n, places(window * n) + n)
    begins = tf.cumsum(steps, axis=1, exclusive=True)
    sizes = tf.clip_by_value(words - begins, 0, window * n)  # the last one is shorter
    first = tf.where(sizes > 0, begins + places(sizes), length)
    end = tf.where(sizes > 0, tf.minimum(first + n, words), length)

    def count_at(numbers):
        """Count for each word, and the row's end, the numbers up to its own."""
        flat = numbers + tf.range(rows)[:, None] * (length + 1)
        ones = tf.ones([tf.size(flat)], tf.int32)
        flat = tf.reshape(flat, [-1])
        at = tf.math.unsorted_segment_sum(ones, flat, rows * (length + 1))
        at = tf.cumsum(tf.reshape(at, [rows, length + 1]), axis=1)
        return tf.gather(at, word, batch_dims=1)

    gram, ended = count_at(first), count_at(end)
    hit = candidates & (gram > ended)
    # An n-gram stops at a token that is no candidate.
    run = tf.cumsum(tf.cast(fresh, tf.int32), axis=1)
    hit &= run == _minimum_of(run, gram, hit)
    before = tf.cumsum(tf.cast(hit, tf.int32), axis=1, exclusive=True)
    hit &= _minimum_of(before, word, candidates) < counts[:, None]
    return hit & (tf.cumsum(tf.cast(hit, tf.int32), axis=1) <= max_count)


def _minimum_of(values, groups, where):
    """Compute for each token the minimum over its group in the row."""
    rows, length = tf.unstack(tf.shape(values))
    flat = tf.reshape(groups + tf.range(rows)[:, None] * (length + 1), [-1])
    values = tf.reshape(tf.where(where, values, tf.int32.max), [-1])
    least = tf.math.unsorted_segment_min(values, flat, rows * (length + 1))
    return tf.reshape(tf.gather(least, flat), [rows, length])


def _take_disjoint(scores, sizes, counts, max_count):
    """Take the first intervals at once, up to the first that has to shrink.

    Args:
        scores: int32 tensor of shape `(batch, length)`: the rank of the interval that
            begins at each position, highest first; negative for no interval.
        sizes: int32 tensor of that shape.
        counts: int32 tensor of shape `(batch,)`.
        max_count: int.

    Returns:
        Two int32 tensors `(batch,)`: the score of the last interval that was looked at,
        and what is left of `counts`. And an int32 tensor `(batch, length)`: how far
        each position is from the next taken one.
    """
    shape = tf.shape(scores)
    scores, begins = tf.math.top_k(scores, tf.minimum(max_count, shape[1]))
    sizes = tf.where(scores < 0, 0, tf.gather(sizes, begins, batch_dims=1))
    ends = begins + sizes
    number = tf.range(tf.shape(begins)[1])
    conflicts = (
        (number[:, None] < number)
        & (begins[:, :, None] < ends[:, None])
        & (begins[:, None] < ends[:, :, None])
    )

    def settle(taken, _):
        # Each turn settles at least one more interval, and usually most of them.
        new = ~tf.reduce_any(conflicts & taken[:, :, None], 1)
        return new, tf.reduce_any(new != taken)

    state = (tf.ones_like(begins, tf.bool), tf.constant(True))
    taken = tf.while_loop(lambda _, changed: changed, settle, state)[0]
    added = tf.where(taken, sizes, 0)
    too_large = tf.cumsum(added, axis=1, exclusive=True) + sizes > counts[:, None]
    done = tf.cumsum(tf.cast(too_large, tf.int32), axis=1) == 0
    added = tf.where(done, added, 0)
    last = tf.reduce_min(tf.where(done, scores, tf.int32.max), 1)
    rows = tf.range(shape[0])[:, None] * (shape[1] + 1)
    borders = tf.concat([begins + rows, begins + added + rows], 1)
    steps = tf.sign(tf.concat([added, -added], 1))
    inside = tf.math.unsorted_segment_sum(steps, borders, shape[0] * (shape[1] + 1))
    inside = tf.cumsum(tf.reshape(inside, [shape[0], -1]), axis=1)[:, :-1]
    position = tf.range(shape[1])
    following = _minimum_from(tf.where(inside > 0, position, 2 * shape[1]))
    return last, counts - tf.reduce_sum(added, 1), following - position


def _ngram_sizes(candidates, starts, n, longest):
    """Count the tokens of the 1, ..., `longest` words that begin at each start."""
    # Example: starts 1 0 1 1 0 (1 is true), n = 2, 1, 2, 2, 1 and `longest` 2:
    # one word   2  1  1  2  1
    # two words  3  1  3  2  1
    shape = tf.shape(candidates)
    position = tf.range(shape[1])
    border = tf.where(starts | ~candidates, position, shape[1])
    # The next border after each position; the row's end is a border.
    border = tf.pad(border[:, 1:], [[0, 0], [0, 2]], constant_values=shape[1])
    following = _minimum_from(border)
    goes_on = tf.pad(starts, [[0, 0], [0, 1]])
    end = following[:, :-1]
    ends = [end]
    for k in range(1, longest):
        further = tf.gather(following, end, batch_dims=1)
        more = (k < n) & tf.gather(goes_on, end, batch_dims=1)
        end = tf.where(more, further, end)
        ends.append(end)
    return [end - position for end in ends]


def _minimum_from(x):
    """Compute for each element the minimum of it and all elements after it."""
    # Example: 5, 3, 4, 1, 2 give 1, 1, 1, 1, 2.
    length = tf.shape(x)[1]

    def turn(x, shift):
        shifted = tf.pad(x, [[0, 0], [0, shift]], constant_values=tf.int32.max)
        return tf.minimum(x, shifted[:, shift:]), 2 * shift

    return tf.while_loop(lambda _, shift: shift < length, turn, (x, tf.constant(1)))[0]


def number_words(candidates: TFTensor, starts: TFTensor, gap: int) -> TFTensor:
    """Number the words of each row, int32; -gap for tokens that are no candidates.

    Neighbouring words have consecutive numbers. Across tokens that are no candidates
    the numbers differ by more than `gap`. So a span of up to `gap` words stays within
    its run of candidates.
    """
    # Example: candidates 1 1 0 1 1, starts 1 0 0 1 0 (1 is true) and a gap of 3 give
    # 4 4 -3 8 8. A span of three words from word 4 covers the numbers 4 to 6, not 8.
    fresh = after_other(candidates)
    starts = (starts | fresh) & candidates
    steps = tf.cast(starts, tf.int32) + gap * tf.cast(fresh & candidates, tf.int32)
    return tf.where(candidates, tf.cumsum(steps, axis=1), -gap)


def draw_lengths(
    shape: TFTensor, probabilities: list[float], seed: TFTensor
) -> TFTensor:
    """Draw int32 lengths of `shape`; `probabilities` are those of 1, 2, ..."""
    uniform = random_uniform(shape, seed, dtype=tf.float64)
    bounds, total = [], 0.0
    for probability in probabilities[:-1]:
        total += probability
        bounds.append(total)
    lengths = tf.ones(shape, tf.int32)
    for bound in bounds:
        lengths += tf.cast(uniform >= bound, tf.int32)
    return lengths
