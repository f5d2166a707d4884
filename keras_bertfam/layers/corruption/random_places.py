"""Places drawn at random in rows of any length: pure seeded functions."""

import tensorflow as tf

from keras_bertfam.layers.data.seeding import RNG
from keras_bertfam.types import TFRagged, TFTensor


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
    seeds = tf.unstack(tf.random.split(seed, 2, alg=RNG), 2)
    places = random_places(sizes, counts, seeds[0])
    bits = tf.random.stateless_uniform(
        tf.shape(places), seeds[1], 0, tf.int32.max, tf.int32, alg=RNG
    )
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
    bits = tf.random.stateless_uniform(
        tf.stack([rows, draws]), seed, None, None, tf.int32, alg=RNG
    )
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
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def greatest(counts: TFTensor) -> TFTensor:
    """Find the greatest of some numbers, at least 1."""
    return tf.reduce_max(tf.concat([counts, [1]], 0))
