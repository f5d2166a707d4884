import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bertfam.layers.data.pairs.segments import truncate, truncated_lengths


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((10, 10), (7, 6)), ((3, 20), (3, 10)), ((20, 3), (10, 3)),
        ((12, 5), (8, 5)), ((6, 7), (6, 7)), ((0, 99), (0, 13)),
    ],
)  # fmt: skip
def test_truncated_lengths_golden(lengths, expected):
    got = truncated_lengths(*(tf.constant([n]) for n in lengths), 13)
    assert tuple(int(n[0]) for n in got) == expected


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 30))
def test_truncated_lengths_equal_the_loop(first, second, budget):
    got = truncated_lengths(tf.constant([first]), tf.constant([second]), budget)
    while first + second > budget:
        first, second = (first - 1, second) if first > second else (first, second - 1)
    assert tuple(int(n[0]) for n in got) == (first, second)


def test_each_end_loses_half_of_the_tokens():
    removed = 6
    at, size = truncate(
        (tf.zeros(20_000, tf.int32), tf.fill([20_000], 10 + removed)),
        tf.fill([20_000], 10),
        tf.constant([1, 2], tf.int64),
    )
    assert (size.numpy() == 10).all()
    expected = scipy.stats.binom.pmf(np.arange(removed + 1), removed, 0.5) * 20_000
    counts = np.bincount(at.numpy(), minlength=removed + 1)
    assert scipy.stats.chisquare(counts, expected).pvalue > 0.01
