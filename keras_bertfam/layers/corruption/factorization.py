"""Factorisation orders and what is predicted in them: pure seeded functions."""

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.seeding import RNG
from keras_bertfam.types import TFTensor


def sample_spans(
    starts: TFTensor,
    inside: TFTensor,
    goals: TFTensor,
    max_count: int,
    seed: TFTensor,
    max_words: int = 5,
    alpha: int = 6,
    beta: int = 1,
) -> tuple[TFTensor, TFTensor]:
    """Select spans of whole words, each within a context of its own.

    From left to right: a span of `n` words, `p(n)` proportional to `1 / n`, gets
    a context of `n * alpha // beta` tokens, of which a uniform part precedes it;
    the span begins at the next word. The walk ends with the row or when the
    goal is reached. A span is shortened to the words that fit what is left of
    the goal.

    Args:
        starts: bool tensor `(batch, length)`: which tokens start a word.
        inside: bool tensor `(batch, length)`: a contiguous part of each row,
            outside of which nothing is selected.
        goals: int32 tensor `(batch,)`. The most tokens to select.
        max_count: int. An upper bound of `goals`.
        seed: integer tensor of shape `(2,)`.
        max_words: int.
        alpha: int.
        beta: int.

    Returns:
        Begins and ends (exclusive) of the spans, int32 `(batch, max_count)`;
        both 0 in empty slots.
    """
    shape = tf.shape(starts)
    index = tf.range(shape[1])
    starts &= inside
    reached = tf.cast(inside, tf.int32) * (index + 1)
    end = tf.reduce_max(reached, 1)
    first = tf.where(end > 0, tf.argmax(inside, 1, tf.int32), 0)
    words = tf.cast(starts, tf.int32)
    num_words = tf.reduce_sum(words, 1)
    # The word that begins at or after a position, and where each word begins.
    word_at = tf.concat([tf.cumsum(words, 1, exclusive=True), num_words[:, None]], 1)
    begin_of = tf.sort(tf.where(starts, index, end[:, None]), axis=1)
    begin_of = tf.concat([begin_of, tf.repeat(end[:, None], max_words + 1, 1)], 1)
    seeds = tf.unstack(tf.random.split(seed, 2, alg=RNG), 2)
    draws = (max_count, shape[0])
    # By the inverse of the distribution function of n.
    shares = np.cumsum(1 / np.arange(1, max_words + 1))
    levels = tf.constant(shares[:-1] / shares[-1], tf.float32)
    sizes = tf.random.stateless_uniform(draws, seeds[0], alg=RNG)
    sizes = tf.searchsorted(levels, tf.reshape(sizes, [-1]), side="right") + 1
    places = tf.random.stateless_uniform(draws, seeds[1], alg=RNG)

    def walk(state, draw):
        at, left, _, _ = state
        words, place = draw
        words = tf.minimum(words, left)
        context = words * alpha // beta
        before = tf.cast(place * tf.cast(context, tf.float32), tf.int32)
        word = tf.gather(
            word_at, tf.minimum(at + before, shape[1]), axis=1, batch_dims=1
        )
        following = word[:, None] + tf.range(max_words + 1)
        bounds = tf.gather(
            begin_of,
            tf.minimum(following, tf.shape(begin_of)[1] - 1),
            axis=1,
            batch_dims=1,
        )
        begin = bounds[:, 0]
        fits = (tf.range(1, max_words + 1) <= words[:, None]) & (
            bounds[:, 1:] - begin[:, None] <= left[:, None]
        )
        count = tf.reduce_sum(tf.cast(fits, tf.int32), 1)
        stop = (word + words > num_words) | (count == 0)
        begin = tf.where(stop, 0, begin)
        last = tf.gather(bounds, count, axis=1, batch_dims=1)
        last = tf.where(stop, 0, last)
        left = tf.where(stop, 0, left - (last - begin))
        return last + context - before, left, begin, last

    nothing = tf.zeros_like(first)
    _, _, begins, ends = tf.scan(
        walk, (tf.reshape(sizes, draws), places), (first, goals, nothing, nothing)
    )
    return tf.transpose(begins), tf.transpose(ends)


def draw_order(
    shape: TFTensor, seed: TFTensor, perm_size: int | None = None
) -> TFTensor:
    """Draw each row's factorisation order.

    Args:
        shape: int tensor of shape `(2,)`, batch and length.
        seed: integer tensor of shape `(2,)`.
        perm_size: int or `None`. Blocks of this many tokens are permuted each
            by itself, and come one after the other. `None` permutes the row.

    Returns:
        int32 tensor of that shape: the place of each token in the order.
    """
    # Example: five keys .9 .4 .7 .1 .2 give the places 4, 2, 3, 0, 1: the fourth token
    # comes first. In blocks of three, 2, 0, 1 | 3, 4.
    keys = tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg=RNG)
    if perm_size is not None:
        keys += tf.cast(tf.range(shape[1]) // perm_size, tf.float64)
    return tf.argsort(tf.argsort(keys, axis=1), axis=1)


def order_ranks(order: TFTensor, selected: TFTensor, special: TFTensor) -> TFTensor:
    """Rank tokens by their places in an order; what everyone sees has rank -1.

    Args:
        order: int tensor `(batch, length)`, see `draw_order`.
        selected: bool tensor `(batch, length)`, the tokens to predict.
        special: bool tensor `(batch, length)`, separators and the like, which
            take part in the order but aren't predicted.

    Returns:
        int32 tensor `(batch, length)`, the `perm_ranks` of `XLNetBackbone`.
    """
    return tf.where(selected | special, tf.cast(order, tf.int32), -1)
