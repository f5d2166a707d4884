"""Small tokenizers of text-to-text families, and texts that they know."""

import functools

import numpy as np
import tensorflow as tf

from keras_bertfam.tokenizers import (
    BertTokenizer,
    train_byte_pair,
    train_sentence_piece,
)

WORDS = "the a cat dog bat mat sat ate ran on under near old big red".split()


def random_texts(count, most=30, seed=0):
    """Texts of up to so many words, with a full stop now and then."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        words = rng.choice(WORDS, rng.integers(1, most))
        texts.append(" ".join(w + "." * (rng.random() < 0.2) for w in words))
    return texts


def as_dataset(texts):
    return tf.data.Dataset.from_tensor_slices(texts)


@functools.cache
def t5():
    documents = as_dataset(random_texts(200))
    return train_sentence_piece(documents, 80, family="t5", sentinels=30)


@functools.cache
def word_piece():
    """Faster than byte pairs, whose graphs take seconds to be made."""
    return BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS])


@functools.cache
def byte_pair(family):
    documents = as_dataset(random_texts(200))
    return train_byte_pair(documents, 290, family=family)
