import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.corruption.delete_words import DeleteWords

# [PAD] [CLS] [SEP] [MASK], whole words 4 to 9, pieces 10 to 19.
STARTS = [True] * 10 + [False] * 10
SETTINGS = {"unselectable_token_ids": [1, 2], "starts_word": STARTS}
ROW = [1, 4, 10, 11, 5, 6, 12, 7, 2, 0, 0]
WORDS = [[4, 10, 11], [5], [6, 12], [7]]


def left(row=ROW, rows=1, seed=0, **settings):
    """What is left of the words of each row."""
    layer = DeleteWords(**{**SETTINGS, **settings})
    out = layer([row] * rows, seed=[seed, 1])
    ids, mask = out["token_ids"].numpy(), out["padding_mask"].numpy()
    assert ids.shape == mask.shape == (rows, len(row))
    assert ((ids != 0) == mask).all()  # padding comes after all that is there
    assert (np.diff(mask.astype(int), axis=1) <= 0).all()
    found = [ids[k][mask[k]].tolist() for k in range(rows)]
    assert all(each[0] == 1 and each[-1] == 2 for each in found)
    return [each[1:-1] for each in found]


@pytest.mark.slow
def test_each_word_stays_or_goes_by_itself():
    """The law of words' sets: all of them independent, none of them one at random."""
    rate, rows = 0.6, 20_000
    expected = {}
    for k in range(16):
        there = [bool(k >> j & 1) for j in range(4)]
        chance = np.prod([1 - rate if stays else rate for stays in there])
        kept = tuple(t for word, s in zip(WORDS, there, strict=True) if s for t in word)
        expected[kept] = expected.get(kept, 0) + chance
    none = expected.pop(())
    for word in WORDS:
        expected[tuple(word)] += none / 4
    found = left(rows=rows)
    shares = {kept: 0 for kept in expected}
    for kept in found:
        shares[tuple(kept)] += 1 / rows
    assert max(abs(shares[kept] - expected[kept]) for kept in expected) < 0.012


def test_extremes():
    whole = [token for word in WORDS for token in word]
    assert left(deletion_rate=0.0) == [whole]
    assert all(each in WORDS for each in left(rows=50, deletion_rate=1.0))
    assert left([1, 2, 0]) == [[]]
    assert left([1, 4, 2], deletion_rate=1.0) == [[4]]
    empty = DeleteWords()(np.zeros((0, 4), "int32"))
    assert empty["token_ids"].shape == empty["padding_mask"].shape == (0, 4)
    padding = DeleteWords(unselectable_token_ids=[1])([[0, 0]])
    assert not padding["padding_mask"].numpy().any()


def test_seeds():
    layer = DeleteWords(**SETTINGS)

    def same(a, b):
        return all(np.array_equal(a[name], b[name]) for name in a)

    assert same(layer([ROW]), layer([ROW]))
    assert same(layer(ROW), {name: x[0] for name, x in layer([ROW]).items()})
    assert left(seed=1, rows=9) != left(seed=2, rows=9)
    assert same(layer([ROW]), DeleteWords.from_config(layer.get_config())([ROW]))
    data = tf.data.Dataset.from_tensors(tf.constant([ROW])).map(layer)
    assert same(layer([ROW]), next(iter(data)))


def test_errors():
    with pytest.raises(ValueError, match="`deletion_rate` must be .* -0.1"):
        DeleteWords(deletion_rate=-0.1)
    with pytest.raises(ValueError, match="`unselectable_token_ids`"):
        DeleteWords(**{**SETTINGS, "unselectable_token_ids": [20]})
    with pytest.raises(ValueError, match="`token_ids` must have the shape"):
        DeleteWords()(np.zeros((1, 2, 3), "int32"))
