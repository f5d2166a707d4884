import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.tokenizers.texts import to_utf8

FIRST = (0x41, 0xC1, 0xC2, 0xDF, *range(0xE0, 0xF0))
OTHERS = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
LOST = "\ufffd".encode()


def all_sorts_of_bytes():
    pairs = itertools.product(range(256), repeat=2)
    triples = itertools.product(FIRST, range(256), OTHERS)
    fours = itertools.product(range(0xF0, 256), range(256), OTHERS, OTHERS)
    return [bytes(x) for x in itertools.chain(pairs, triples, fours)]


@pytest.mark.slow
def test_bytes_that_are_no_text_are_rewritten():
    strings = all_sorts_of_bytes()
    rewritten = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8").numpy()
    assert np.array_equal(to_utf8(tf.constant(strings)), rewritten)
    assert LOST in rewritten[0xFF] and rewritten[0x4142] == b"AB"
    # Alone, each is judged by itself.
    dataset = tf.data.Dataset.from_tensor_slices(strings[::11]).map(to_utf8)
    assert list(dataset.as_numpy_iterator()) == list(rewritten[::11])


def test_any_shape():
    assert to_utf8("a").numpy() == b"a" and to_utf8(b"a\xff").numpy() == b"a" + LOST
    assert to_utf8(tf.constant([], tf.string)).shape == (0,)
    ragged = tf.ragged.constant([["a"], [], [b"\xff", "é"]])
    assert to_utf8(ragged).to_list() == [[b"a"], [], [LOST, "é".encode()]]
