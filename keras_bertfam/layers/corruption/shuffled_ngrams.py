"""Neighbouring tokens in random order, which StructBERT learns to restore."""

import tensorflow as tf

from keras_bertfam.layers.corruption.selection import select_tokens
from keras_bertfam.layers.data.seeding import random_uniform, split_seed
from keras_bertfam.types import TFTensor


def shuffle_ngrams(
    token_ids: TFTensor,
    free: TFTensor,
    rate: float,
    length: int,
    most: int,
    seed: TFTensor,
    sequence_ids: TFTensor | None = None,
) -> tuple[TFTensor, TFTensor]:
    """Shuffle the tokens within some n-grams, which don't overlap.

    A row has `m` n-grams whose tokens are all free; `round(m * rate)` of them are
    shuffled, or fewer if not so many fit side by side. All orders of an n-gram are
    equally likely, its original order included.

    Args:
        token_ids: int32 tensor of shape `(batch, length of rows)`.
        free: bool tensor of that shape, true for tokens that may move.
        rate: float in [0, 1].
        length: int. Tokens of an n-gram, at least 2.
        most: int. The most n-grams of a row.
        seed: integer tensor of shape `(2,)`.
        sequence_ids: int tensor of the shape of the ids, or `None`. An n-gram stays
            within a sequence.

    Returns:
        The ids, and a bool tensor of their shape: which tokens belong to a shuffled
        n-gram.
    """
    # Example: n-grams of 3. A random offset cuts the row into a | b c d | e f g | h.
    # The n-gram e f g is drawn, and sorted by random keys: a b c d g e f h.
    seeds = split_seed(seed, 3)
    shape = tf.shape(token_ids)
    places = tf.range(shape[1])

    def following(x, steps, fill):
        paddings = [[0, 0], [0, steps]]
        return tf.pad(x, paddings, constant_values=fill)[:, steps:]

    whole = free
    for step in range(1, length):
        whole &= following(free, step, False)
        if sequence_ids is not None:
            whole &= following(sequence_ids, step, -1) == sequence_ids
    counts = tf.cast(tf.reduce_sum(tf.cast(whole, tf.int32), 1), tf.float64)
    counts = tf.minimum(tf.cast(tf.round(counts * rate), tf.int32), most)
    offset = random_uniform([shape[0], 1], seeds[0], 0, length, tf.int32)
    cells, inner = (places + offset) // length, (places + offset) % length
    first = select_tokens(whole & (inner == 0), counts, most, seeds[1])
    moved = first
    for step in range(1, length):
        moved |= tf.pad(first, [[0, 0], [step, 0]])[:, : shape[1]]
    drawn = random_uniform(shape, seeds[2], dtype=tf.float64)
    still = tf.cast(inner, tf.float64) / length
    keys = tf.cast(cells, tf.float64) + tf.where(moved, drawn, still)
    order = tf.argsort(keys, axis=1, stable=True)
    return tf.gather(token_ids, order, axis=1, batch_dims=1), moved
