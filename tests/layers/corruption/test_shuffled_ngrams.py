"""Trigrams in another order beside masks, StructBERT's word objective."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.layers import BertTokenizer, MaskTokens
from keras_bertfam.layers.corruption.shuffled_ngrams import shuffle_ngrams

pytestmark = pytest.mark.any_backend

MASK = 4
SETTINGS = {
    "vocabulary_size": 60,
    "mask_token_id": MASK,
    "unselectable_token_ids": [2, 3],
    "mask_selection_rate": 0.15,
}
# A row of its own number at each place, between special tokens, and padding.
ROW = np.array([2, *range(10, 38), 3, 0, 0], "int32")


def masked(rows=2000, **changes):
    ids = np.tile(ROW, (rows, 1))
    layer = MaskTokens(**{**SETTINGS, **changes})
    return ids, {n: x.numpy() for n, x in layer(ids, seed=[5, 6]).items()}


def runs(mask):
    """Begins and ends of the runs of true elements."""
    edges = np.flatnonzero(np.diff(np.pad(mask.astype(int), 1)))
    return edges.reshape(-1, 2)


def test_how_many_and_which():
    ids = tf.constant(np.tile(ROW, (4000, 1)))
    free = (ids > 4).numpy()
    free[:, 9] = False
    new, moved = (x.numpy() for x in shuffle_ngrams(ids, free, 0.1, 3, 5, [0, 1]))
    # 8 and 19 free tokens in a row: 6 + 17 trigrams, and round(2.3) are shuffled.
    assert (moved.sum(1) == 6).all()
    assert not moved[~free].any() and (new[~moved] == ids.numpy()[~moved]).all()
    orders, begins = collections.Counter(), collections.Counter()
    for row, own in zip(new, moved, strict=True):
        for begin, end in runs(own):
            for at in range(begin, end, 3):
                old = ROW[at : at + 3].tolist()
                assert sorted(row[at : at + 3]) == old
                orders[tuple(old.index(k) for k in row[at : at + 3])] += 1
                begins[at] += 1
    assert {*orders} == {*itertools.permutations(range(3))}
    expected = 8000 / 6
    chi = sum((count - expected) ** 2 / expected for count in orders.values())
    assert chi < 20.5  # 1e-3, 5 degrees
    assert {*begins} == {*range(1, 7), *range(10, 27)}


def test_no_ngram_of_two_sequences_and_nothing_to_move():
    ids = tf.constant(np.tile(np.arange(10, 22, dtype="int32"), (200, 1)))
    numbers = np.tile(np.repeat([1, 2, 3], 4), (200, 1)).astype("int32")
    free = tf.ones_like(ids, tf.bool)
    new, _ = shuffle_ngrams(ids, free, 1.0, 3, 9, [0, 1], tf.constant(numbers))
    np.testing.assert_array_equal((new.numpy() - 10) // 4, numbers - 1)
    new, moved = shuffle_ngrams(ids, free & False, 1.0, 3, 9, [0, 1])
    np.testing.assert_array_equal(new, ids)
    assert not moved.numpy().any()


@pytest.mark.parametrize("strategy", ["tokens", "words", "ngrams", "spans"])
def test_masks_stay_and_all_targets_are_the_originals(strategy):
    starts = [i % 3 != 0 for i in range(60)]
    more = {"strategy": strategy, "starts_word": starts}
    ids, plain = masked(**more)
    _, out = masked(**more, shuffle_rate=0.05)
    weights = out["mask_weights"] > 0
    found = np.take_along_axis(ids, out["mask_positions"], 1)
    assert (found[weights] == out["mask_ids"][weights]).all()
    assert (np.diff(np.where(weights, out["mask_positions"], 99)) >= 0).all()
    chosen, all_ = (np.zeros(ids.shape, bool) for _ in range(2))
    for each, batch in ((chosen, plain), (all_, out)):
        real = batch["mask_weights"] > 0
        each[np.nonzero(real)[0], batch["mask_positions"][real]] = True
    moved = all_ & ~chosen
    assert (all_ | ~chosen).all() and (moved.sum(1) % 3 == 0).all()
    # What is masked, and how, is as without; other tokens stay.
    assert (out["token_ids"][~moved] == plain["token_ids"][~moved]).all()
    assert (np.sort(out["token_ids"] * moved) == np.sort(ids * moved)).all()
    windows = ~chosen & (ids > 4)
    windows = windows[:, :-2] & windows[:, 1:-1] & windows[:, 2:]
    least = np.round(windows.sum(1) * 0.05)
    assert (moved.sum(1) <= 3 * least).all() and moved.sum() > 2.5 * least.sum()


def test_slots_in_random_order_and_a_saved_layer():
    ids, out = masked(50, shuffle_rate=0.2, shuffle_slots=True)
    weights = out["mask_weights"] > 0
    found = np.take_along_axis(ids, out["mask_positions"], 1)
    assert (found[weights] == out["mask_ids"][weights]).all()
    assert (np.diff(out["mask_positions"])[weights[:, 1:]] < 0).any()
    layer = MaskTokens(**SETTINGS, shuffle_rate=0.2, unshuffled_token_ids=[10])
    again = MaskTokens.from_config(layer.get_config())
    one, other = (each(ids, seed=[0, 1]) for each in (layer, again))
    np.testing.assert_array_equal(one["token_ids"], other["token_ids"])
    assert (one["token_ids"].numpy()[:, 0] == 2).all()
    row = layer(ids[0], seed=[0, 1])
    assert row["token_ids"].shape == ids[0].shape


def test_no_more_slots_than_tokens():
    ids, out = masked(50, mask_selection_rate=0.8, shuffle_rate=0.9)
    assert out["mask_ids"].shape == ids.shape


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shuffle_rate": 1.5}, "`shuffle_rate` must be"),
        ({"shuffle_rate": 0.1, "shuffle_length": 1}, "`shuffle_length` must be at l"),
        ({"shuffle_rate": 0.1, "return_span_bounds": True}, "`return_span_bounds`"),
        ({"unshuffled_token_ids": [60]}, "`unshuffled_token_ids` must be in"),
    ],
)
def test_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        MaskTokens(**SETTINGS, **changes)


def test_a_preprocessor():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", *"abcdefghijkl"]
    preprocessor = tasks.MaskedLMPreprocessor(
        BertTokenizer(words),
        sequence_length=24,
        strategy="words",
        shuffle_rate=0.3,
        mask_special_tokens=True,
    )
    text = "a b c d e f g h i j k l a b c d"
    for number in range(20):
        x, y, weights = preprocessor([text], seed=[number, 0])
        ids, plain = x["token_ids"].numpy(), preprocessor.encode([text])["token_ids"]
        real = weights.numpy() > 0
        found = np.take_along_axis(plain.numpy(), x["mask_positions"].numpy(), 1)
        assert (found[real] == y.numpy()[real]).all()
        same = ids[0, 0] in (2, 4) or x["mask_positions"].numpy()[0, 0] == 0
        assert same and (ids != 0).sum() == (plain.numpy() != 0).sum()
    again = type(preprocessor).from_config(preprocessor.get_config())
    assert again.shuffle_rate == 0.3
