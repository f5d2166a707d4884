"""A strategy that isn't the library's: by its name, and by what its units are."""

import keras
import numpy as np
import pytest
from scipy.stats import chisquare

from keras_bertfam.layers import MaskingStrategy, WholeWords
from keras_bertfam.layers.corruption.strategies import get_strategy
from tests.layers.corruption.listed_ngrams import ListedNGrams
from tests.layers.corruption.masked_batches import (
    CLS,
    LIKELY,
    SEP,
    masker,
    numpy_call,
    selected,
)


def listed(ids, ngrams, **kwargs):
    """Positions that are masked in each row where everything may be."""
    layer = masker(
        ListedNGrams(ngrams), mask_selection_rate=1.0, starts_word=None, **kwargs
    )
    copy = keras.layers.deserialize(keras.layers.serialize(layer))
    assert copy.get_config() == layer.get_config()
    ids = np.array(ids, "int32")
    hits = selected(numpy_call(layer, ids, seed=[0, 1]), ids.shape[1])
    again = selected(numpy_call(copy, ids, seed=[0, 1]), ids.shape[1])
    np.testing.assert_array_equal(hits, again)
    return [np.flatnonzero(row).tolist() for row in hits]


def test_listed_ngrams_are_the_longest_from_the_left():
    ngrams = [(20, 21), (21, 22, 23), (20, 21, 22), (30,)]
    rows = [
        [CLS, 20, 21, 22, 23, SEP, 30, 0],  # not (21, 22, 23), which overlaps
        [CLS, 21, 22, 23, 20, 21, 30, SEP],
        [CLS, 20, SEP, 21, 22, 20, 20, 21],
        [CLS, 40, 41, 42, 43, 44, SEP, 0],
    ]
    assert listed(rows, ngrams) == [[1, 2, 3, 6], [1, 2, 3, 4, 5, 6], [6, 7], []]


def test_listed_ngrams_are_selected_as_a_whole_and_uniformly():
    ids = np.array([[CLS, 20, 21, 40, 20, 21, 41, 20, 21, SEP]] * 3000, "int32")
    layer = masker(ListedNGrams([(20, 21)]), mask_selection_rate=0.2, starts_word=None)
    hits = selected(numpy_call(layer, ids, seed=[0, 3]), 10)
    pairs = hits[:, [1, 4, 7]]
    assert (hits.sum(1) == 2).all() and (pairs == hits[:, [2, 5, 8]]).all()
    assert chisquare(pairs.sum(0)).pvalue > LIKELY


def test_strategies_are_found_by_the_name_that_they_say():
    assert isinstance(get_strategy("listed_ngrams"), ListedNGrams)
    with pytest.raises(
        ValueError, match=r"one of \[.*'listed_ngrams'.*'words'.*'half'"
    ):
        get_strategy("half")
    with pytest.raises(ValueError, match="another strategy.*'words'.*WholeWords"):

        class Other(MaskingStrategy):
            name = "words"

    assert isinstance(get_strategy("words"), WholeWords)


class Units(MaskingStrategy):
    def __init__(self, found=None):
        self.found = found

    def units(self, token_ids, candidates, starts_word, span_ids):
        return candidates if self.found is None else (candidates,) * self.found


@pytest.mark.parametrize("found", [None, 1, 3])
def test_units_are_two_tensors(found):
    with pytest.raises(ValueError, match="`units` of Units must return two tensors"):
        masker(Units(found))(np.ones((2, 8), "int32"))


def test_arguments_are_attributes():
    class Forgets(MaskingStrategy):
        def __init__(self, k=1):
            self._k = k

    with pytest.raises(ValueError, match=r"Forgets must keep each .*\['k'\]"):
        masker(Forgets())
