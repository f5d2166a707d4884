import random

import numpy as np
import pytest

from keras_bertfam.corpora import NearDuplicates
from keras_bertfam.corpora.preparing import duplicates
from keras_bertfam.corpora.preparing.duplicates import (
    find_copies,
    hash_shingles,
    hash_words,
    is_contaminated,
)


def test_words_and_shingles():
    words = hash_words("The cat, the CAT! 猫が好き")
    assert len(words) == 8
    assert len({*words[:4].tolist()}) == 2
    shingles = hash_shingles(words, 2)
    assert shingles[0] == shingles[2] != shingles[1]
    assert len(hash_shingles(words, 9)) == 0
    assert len(hash_words("…")) == 0
    # The hash of a word is the same in any process.
    assert hash_words("cat")[0] == 3429664268601861939


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.95])
def test_signatures_estimate_what_is_in_common(share):
    near = NearDuplicates(shingle_size=1)
    generator = np.random.default_rng(0)
    same, found = [], 0
    for _ in range(40):
        common = round(2 * share / (1 + share) * 1500)
        numbers = generator.integers(0, 2**63, 3000 - common).astype(np.uint64)
        first, second = numbers[:1500], numbers[1500 - common :]
        signatures = np.stack([near.signature(first), near.signature(second)])
        same.append(np.mean(signatures[0] == signatures[1]))
        bands = near.band_hashes(signatures)
        found += (bands[0] == bands[1]).any()
    # A mean of 40 * 112 draws; six standard deviations.
    assert abs(np.mean(same) - share) < 0.05
    expected = 1 - (1 - share**7) ** 16
    assert abs(found / 40 - expected) < 0.3


def test_the_order_of_words_counts_and_short_texts_are_compared():
    near = NearDuplicates()
    words = [str(number) for number in range(200)]
    other = random.Random(0).sample(words, 200)
    one, two = (near.signature(hash_words(" ".join(x))) for x in (words, other))
    assert np.mean(one == two) < 0.1
    short = [near.signature(hash_words(text)) for text in ("a b", "A, b.", "a c")]
    np.testing.assert_array_equal(short[0], short[1])
    assert np.mean(short[0] == short[2]) < 0.1


@pytest.mark.parametrize("at_once", [1, 4, 1 << 17])
def test_the_first_in_order_stays_of_those_that_are_alike(at_once, monkeypatch):
    monkeypatch.setattr(duplicates, "_ROWS_AT_ONCE", at_once)
    groups = np.array([1, 1, 1, 2, 2, 3, 3, 3], np.uint64)
    order = np.array([5, 4, 6, 1, 1, 1, 2, 3], np.uint64)
    numbers = np.array([0, 1, 2, 3, 4, 5, 6, 7], np.uint64)
    np.testing.assert_array_equal(find_copies(groups, order, numbers), [0, 2, 4, 6, 7])

    def alike(best, others):  # 5 and 7 are, and no others
        return np.array([{best, other} == {5, 7} for other in others])

    asked = []

    def compare(numbers):
        asked.append(numbers.tolist())
        return alike

    np.testing.assert_array_equal(find_copies(groups, order, numbers, compare), [7])
    assert sorted(sum(asked, [])) == [*range(8)]
    assert len(asked) == (1 if at_once > 8 else 3)
    shuffled = np.random.default_rng(0).permutation(8)
    again = find_copies(groups[shuffled], order[shuffled], numbers[shuffled])
    np.testing.assert_array_equal(again, [0, 2, 4, 6, 7])
    assert len(find_copies(*np.zeros((3, 0), np.uint64))) == 0


def test_contamination():
    known = np.unique(hash_shingles(hash_words("one two three four five six"), 4))
    assert is_contaminated(hash_words("Said: Two, three (four) five."), known, 4)
    assert not is_contaminated(hash_words("two three four, six five"), known, 4)
    assert not is_contaminated(hash_words("two three"), known, 4)
    assert not is_contaminated(hash_words("one two three four"), known[:0], 4)


@pytest.mark.parametrize("name", ["shingle_size", "bands", "band_size", "threshold"])
def test_arguments_out_of_range(name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        NearDuplicates(**{name: 0})
