"""A strategy whose units depend on the tokens: n-grams of a list, as ERNIE-Gram's."""

import keras
import tensorflow as tf

from keras_bertfam.layers import MaskingStrategy


@keras.saving.register_keras_serializable("tests")
class ListedNGrams(MaskingStrategy):
    """n-grams of a list, none overlapping: the longest from left to right.

    Args:
        ngrams: sequence of tuples of ids.
    """

    name = "listed_ngrams"

    def __init__(self, ngrams=((5, 6),)):
        self.ngrams = [tuple(int(i) for i in ngram) for ngram in ngrams]

    def units(self, token_ids, candidates, starts, span_ids):
        sizes = tf.zeros_like(token_ids)
        for ngram in sorted(self.ngrams, key=len):
            padded = tf.pad(
                tf.where(candidates, token_ids, -1), [[0, 0], [0, len(ngram)]]
            )
            shape = tf.shape(token_ids)
            here = tf.ones(shape, tf.bool)
            for k, token in enumerate(ngram):
                here &= padded[:, k : k + shape[1]] == token
            sizes = tf.where(here, len(ngram), sizes)

        def step(state, size):
            left, _ = state
            begins = (left <= 1) & (size > 0)
            return tf.where(begins, size, tf.maximum(left - 1, 0)), begins

        nothing = tf.zeros_like(sizes[:, 0])
        left, begins = tf.scan(step, tf.transpose(sizes), (nothing, nothing > 0))
        return tf.transpose(left) > 0, tf.transpose(begins)

    def get_config(self):
        return {"ngrams": [list(ngram) for ngram in self.ngrams]}
