import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bertfam.layers.data import limited_parts
from keras_bertfam.layers.data.pairs.segments import (
    SegmentBuilder,
    truncate,
    truncated_lengths,
)
from keras_bertfam.tokenizers import BertTokenizer
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer
from tests import tiny_masked_lm as tiny


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


@pytest.mark.parametrize("size", [1, 40, 1 << 20])
def test_windows_are_tokenised_in_parts_of_limited_size(size, monkeypatch):
    monkeypatch.setattr(limited_parts, "_BYTES_AT_ONCE", size)
    words = [*tiny.SPECIALS, *tiny.WORDS, "##s"]
    tokenizer = as_graph_layer(BertTokenizer(words, lowercase=True))
    texts = ["the cat sat.\nthe dog sat.", "", "a red hat", "the tree.\na mat."]
    documents = tf.data.Dataset.from_tensor_slices(texts)
    builder = SegmentBuilder(tokenizer, 16, 2, 3, documents_at_once=3)
    first, last = builder.tokenize(documents)
    assert first["lengths"].numpy().tolist() == [4, 4, 3]
    assert first["document"].numpy().tolist() == [0, 0, 1]
    assert first["whole_document"].numpy().tolist() == [1, 1, 3]
    assert last["lengths"].numpy().tolist() == [3, 3]
    expected = [tokenizer(text).numpy().tolist() for text in ("the cat sat.", "a mat.")]
    assert first["tokens"].numpy().tolist()[:4] == expected[0]
    assert last["tokens"].numpy().tolist()[3:] == expected[1]
