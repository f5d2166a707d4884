import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.corruption.sample_contexts import SampleContexts

# [PAD] [CLS] [SEP] [MASK], whole words 4 to 9, pieces 10 to 19.
STARTS = [True] * 10 + [False] * 10
SETTINGS = {"unselectable_token_ids": [1, 2], "starts_word": STARTS}
ROW = [1, 4, 10, 11, 5, 6, 12, 7, 8, 9, 2, 0, 0]
WORDS = [{1, 2, 3}, {4}, {5, 6}, {7}, {8}, {9}]


def seen(row=ROW, rows=1, seed=0, **settings):
    layer = SampleContexts(**{**SETTINGS, **settings})
    return layer([row] * rows, seed=[seed, 1]).numpy()


def hidden_sets(row=ROW, **kwargs):
    """What is hidden from each token, without itself and padding."""
    for matrix in seen(row, **kwargs):
        for place, sees in enumerate(matrix):
            yield place, {k for k, sees_it in enumerate(sees) if not sees_it and row[k]}


def test_what_is_hidden_is_words_and_oneself():
    """11 tokens and a rate of .5: at most 6 tokens (5.5, half to even), words each."""
    for place, hidden in hidden_sets(rows=40):
        drawn = [word for word in WORDS if word <= hidden]
        own = {place} if ROW[place] not in (0, 1, 2) else set()
        assert own <= hidden
        assert hidden - own <= set().union(*drawn)  # whole words, and oneself
        assert sum(map(len, drawn)) <= 6 + len(own)


def test_specials_are_seen_and_padding_is_not():
    matrices = seen(rows=3)
    assert matrices.shape == (3, 13, 13)
    assert matrices[..., [0, 10]].all()
    assert not matrices[..., 11:].any()


def test_each_word_is_as_often_hidden():
    """Of six words of one token, three: each in half of the sets (a row has 8)."""
    row = [1, 4, 5, 6, 7, 8, 9, 2]
    counts, others = np.zeros(8), 0
    for seed in range(60):
        for place, hidden in hidden_sets(row, rows=8, seed=seed, hiding_rate=0.375):
            if place in (0, 7):  # they hide nothing of their own
                assert len(hidden) == 3
                others += 1
                counts[[*hidden]] += 1
    # Sets are drawn anew for each row, and about 1.8 of 8 are chosen twice.
    assert np.abs(counts[1:7] / others - 0.5).max() < 0.05
    assert counts[[0, 7]].max() == 0


def test_tokens_choose_among_as_many_sets_as_there_are_tokens():
    row = [1, *[4, 5, 6, 7, 8, 9] * 50, 2]
    found = {frozenset(hidden - {place}) for place, hidden in hidden_sets(row)}
    # Of 256 sets, 302 tokens choose about 256 * (1 - 1/e^1.18) = 177; and where one's
    # own token was among those hidden, it counts as another.
    assert 140 < len(found) < 302


def test_a_short_row_has_as_many_sets_as_tokens():
    """Of 14 tokens in a row of 214, the 202 that hide nothing of their own tell."""
    sets = set()
    row = [1, *range(4, 10), *range(4, 10), 2]
    for place, hidden in hidden_sets(row + [0] * 200):
        if place in (0, 13) or place > 13:  # those that hide nothing of their own
            sets.add(frozenset(hidden))
    assert len(sets) <= 14


def test_given_spans_are_words():
    spans = [0, 1, 1, 1, 1, 1, 1, 2, 2, 3, 0, 0, 0]
    layer = SampleContexts(**SETTINGS)
    matrix = layer([ROW], seed=[0, 1], span_ids=[spans]).numpy()[0]
    for sees in matrix[[0, 10]]:
        for span in (range(1, 7), range(7, 9), [9]):
            assert len({sees[k] for k in span}) == 1


@pytest.mark.parametrize(("rate", "most"), [(0.0, 1), (1.0, 9)])
def test_extremes(rate, most):
    """At least one token is drawn, as of BERT's masks."""
    for place, hidden in hidden_sets(hiding_rate=rate):
        assert len(hidden - {place}) <= most
    assert seen([0] * 5).shape == (1, 5, 5)
    assert not seen([0] * 5).any()
    assert SampleContexts()(np.zeros((0, 4), "int32")).shape == (0, 4, 4)


def test_seeds():
    layer = SampleContexts(**SETTINGS)
    assert np.array_equal(layer([ROW]), layer([ROW]))
    assert np.array_equal(layer(ROW), layer([ROW])[0])
    assert not np.array_equal(seen(seed=1), seen(seed=2))
    again = SampleContexts.from_config(layer.get_config())
    assert np.array_equal(layer([ROW]), again([ROW]))
    data = tf.data.Dataset.from_tensors(tf.constant([ROW])).map(layer)
    assert np.array_equal(layer([ROW]), next(iter(data)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hiding_rate": 1.5}, "`hiding_rate` must be .* 1.5"),
        ({"unselectable_token_ids": [20]}, "`unselectable_token_ids`"),
    ],
)
def test_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        SampleContexts(**{**SETTINGS, **settings})
    with pytest.raises(ValueError, match="`token_ids` must have the shape"):
        SampleContexts()(np.zeros((1, 2, 3), "int32"))
