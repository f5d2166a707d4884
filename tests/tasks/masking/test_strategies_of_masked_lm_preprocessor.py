import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer, NGrams
from keras_bertfam.tasks import MaskedLMPreprocessor
from tests.layers.corruption.listed_ngrams import ListedNGrams

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w", "##a", "##b"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["words", "ngrams", "spans", NGrams(2)])
def test_strategies_know_the_words_of_the_vocabulary(strategy):
    preprocessor = MaskedLMPreprocessor(
        BertTokenizer(PIECES),
        sequence_length=32,
        mask_selection_rate=0.5,
        mask_token_rate=1.0,
        random_token_rate=0.0,
        strategy=strategy,
    )
    x, y, w = preprocessor(["wab wab wab wab wab wab"] * 20)
    assert x["token_ids"].shape == (20, 32)
    ids, counts = x["token_ids"].numpy()[:, 1:19], w.numpy().sum(1)
    whole = (ids == 4).reshape(20, 6, 3)
    # 20 tokens, 10 selections: spans are cut to it, whole words aren't.
    assert set(counts) == {10 if strategy == "spans" else 9}
    split = (whole.any(2) & ~whole.all(2)).sum(1)
    assert set(split) == {1 if strategy == "spans" else 0}


def test_strategy_config_holds_no_table():
    preprocessor = MaskedLMPreprocessor(
        BertTokenizer(PIECES), strategy=NGrams(2), replacement_unit="word"
    )
    config = preprocessor.get_config()
    own = {"max_n": 2, "favor_shorter": True, "weights": None}
    assert config["strategy"]["config"] == own
    assert "starts_word" not in json.dumps(config)
    copy = keras.layers.deserialize(keras.layers.serialize(preprocessor))
    assert copy.get_config() == config and copy.strategy.max_n == 2


def test_given_spans_in_blocks():
    preprocessor = MaskedLMPreprocessor(
        BertTokenizer(PIECES), sequence_length=8, strategy="given_spans"
    )
    block = {
        "token_ids": np.array([[2, 5, 5, 5, 5, 5, 3, 0]] * 2, "int32"),
        "padding_mask": np.array([[True] * 7 + [False]] * 2),
        "span_ids": np.array([[0, 1, 1, 1, 2, 0, 0, 0]] * 2, "int32"),
    }
    blocks = tf.data.Dataset.from_tensor_slices(block)
    ((x, _, w),) = preprocessor.dataset(blocks, 2)
    assert "span_ids" not in x and w.numpy().sum(1).tolist() == [1, 1]
    assert not set(x["mask_positions"].numpy().ravel()) & {1, 2, 3}


@pytest.mark.slow
def test_a_strategy_of_listed_ngrams_by_rows():
    """Pieces 5, 6, 7 are listed as a pair and a triple, of which none is cut."""
    preprocessor = MaskedLMPreprocessor(
        BertTokenizer(PIECES),
        sequence_length=16,
        mask_selection_rate=0.5,
        mask_token_rate=1.0,
        random_token_rate=0.0,
        strategy=ListedNGrams([(5, 6), (5, 6, 7)]),
    )
    copy = keras.layers.deserialize(keras.layers.serialize(preprocessor))
    assert copy.get_config() == preprocessor.get_config()
    assert copy.strategy.ngrams == preprocessor.strategy.ngrams == [(5, 6), (5, 6, 7)]
    documents = tf.data.Dataset.from_tensor_slices(["wab wa w wab wb wa"] * 4)
    ((x, y, w),) = preprocessor.dataset(documents, 4, packing="doc")
    original = [2, 5, 6, 7, 5, 6, 5, 5, 6, 7, 5, 7, 5, 6, 3, 0]
    units = [{1, 2, 3}, {4, 5}, {7, 8, 9}, {12, 13}]
    for row, (ids, weights) in enumerate(zip(x["token_ids"].numpy(), w, strict=True)):
        masked = {*np.flatnonzero(ids == 4)}
        assert masked == {*x["mask_positions"].numpy()[row, weights.numpy() == 1]}
        assert masked == set().union(*(unit for unit in units if unit <= masked))
        assert 5 <= len(masked) <= 8  # 8 of 15, of which what fits is taken
        expected = [original[k] for k in sorted(masked)]
        assert y.numpy()[row, : len(masked)].tolist() == expected
