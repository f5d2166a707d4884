"""Extreme inputs, configurations and errors of each strategy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keras_bertfam.layers import (
    GeometricSpans,
    GivenSpans,
    MaskTokens,
    NGrams,
    NGramWindows,
    SmoothedTokens,
    WholeWords,
)
from keras_bertfam.layers.corruption.strategies import IndependentTokens
from tests.layers.corruption.masked_batches import (
    CLS,
    PIECE,
    SEP,
    START,
    VOCABULARY,
    masker,
    numpy_call,
)

ROW = [CLS, START, PIECE, SEP, START, START, PIECE, PIECE, START, START, PIECE]
ROW += [START, SEP, 0]
STRATEGIES = {
    "tokens": IndependentTokens(),
    "smoothed": SmoothedTokens(np.arange(VOCABULARY)),
    "batch": SmoothedTokens(np.arange(VOCABULARY), budget="batch"),
    "words": WholeWords(),
    "ngrams": NGrams(4),
    "spans": GeometricSpans(),
    "windows": NGramWindows(2, 3),
    "given": GivenSpans(),
}
tokens = st.sampled_from([0, CLS, SEP, START, START + 1, PIECE, PIECE + 1])


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    row=st.lists(tokens, min_size=1, max_size=24),
    rate=st.sampled_from([0.0, 0.15, 0.5, 1.0]),
    slots=st.integers(1, 40),
)
@example(row=[0] * 8, rate=0.15, slots=3)  # all padding
@example(row=[START], rate=0.15, slots=1)  # one token
@example(row=[START, *[PIECE] * 9], rate=0.5, slots=5)  # all one word
@example(row=[START] * 3, rate=1.0, slots=40)  # more slots than text
@example(row=[START, PIECE, START, SEP] * 128, rate=0.15, slots=77)
def test_extremes(name, row, rate, slots):
    strategy = STRATEGIES[name]
    layer = masker(
        strategy, mask_selection_rate=rate, mask_selection_length=slots,
        return_span_bounds=True, replacement_unit="span",
    )  # fmt: skip
    ids = np.array([row])
    span_ids = np.array([[token % 3 for token in row]])
    out = numpy_call(layer, ids, seed=[0, 1], span_ids=span_ids)
    full = out["mask_weights"][0] == 1
    positions = out["mask_positions"][0]
    chosen = positions[full]
    assert len(positions) == slots and full.tolist() == sorted(full, reverse=True)
    assert (np.diff(chosen) > 0).all()  # no overlap
    assert not np.isin(ids[0, chosen], [0, CLS, SEP]).any()
    selectable = (~np.isin(row, [0, CLS, SEP])).sum()
    length = np.count_nonzero(row)
    budget = min(max(1, round(length * rate)), slots, selectable)
    # The last word of windows, or part of a long one, may exceed it.
    most = budget + 9 if isinstance(strategy, NGramWindows) else budget
    assert len(chosen) <= min(most, slots)
    unlike = WholeWords | NGrams | NGramWindows | GivenSpans
    if not isinstance(strategy, unlike):
        assert len(chosen) == budget
    assert (out["mask_ids"][0][full] == ids[0, chosen]).all()
    untouched = np.delete(np.arange(len(row)), chosen)
    assert (out["token_ids"][0, untouched] == ids[0, untouched]).all()
    bounds = out["span_bounds"][0]
    assert not bounds[~full].any()
    for position, (first, last) in zip(chosen, bounds[full], strict=True):
        assert first <= position <= last
        assert set(range(first, last + 1)) <= {*chosen}
        assert not {first - 1, last + 1} & {*chosen}


# === Configuration ===


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_in_a_dataset_and_from_its_config(name):
    layer = masker(
        STRATEGIES[name], replacement_unit="span", selections_per_row="spanbert"
    )
    copy = keras.layers.deserialize(keras.layers.serialize(layer))
    assert copy.get_config() == layer.get_config()
    ids = np.tile(ROW, (6, 1))
    mask = lambda x: copy(x, seed=[1, 2], span_ids=tf.sign(x - 50))  # noqa: E731
    ((in_dataset),) = tf.data.Dataset.from_tensors(ids).map(mask)
    eager = layer(ids, seed=[1, 2], span_ids=np.sign(ids - 50))
    for key, value in eager.items():
        np.testing.assert_array_equal(value, in_dataset[key])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: masker("span"), r"`strategy` must be.*'spans'.*Received: 'span'"),
        (lambda: masker("words", starts_word=None), "`starts_word` must be given"),
        (lambda: masker("words", replacement_unit="n"), "`replacement_unit`.*'n'"),
        (lambda: masker("words", random_token_weights=[1]), "100 numbers.*Received: 1"),
        (lambda: masker(SmoothedTokens([1, 2])), "`token_counts`.*100.*Received: 2"),
        (lambda: SmoothedTokens([-1.0]), "`token_counts`.*at least 0"),
        (lambda: SmoothedTokens([1], smoothing=-1), "`smoothing`.*-1"),
        (lambda: SmoothedTokens([1], budget="all"), "`budget`.*'all'"),
        (lambda: NGrams(0), "`max_n`.*0"),
        (lambda: NGramWindows(0), "`max_n`.*0"),
        (lambda: NGramWindows(window=0), "`window`.*0"),
        (lambda: GeometricSpans(max_length=1.5), "`max_length`.*1.5"),
        (lambda: GeometricSpans(p=0), r"`p` must be in \(0, 1\].*0"),
    ],
)
def test_argument_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("strategy", ["words", "ngrams", "spans"])
@pytest.mark.parametrize("words", ["one", "long", "usual"])
def test_words_longer_than_the_count_are_masked_in_part(strategy, words):
    """Thai, DNA: a row is one word. As many tokens are masked as of other text."""
    length, rate = 128, 0.15
    every = {"one": 128, "long": 32, "usual": 2}[words]
    starts = [token % every == 0 for token in range(5, 5 + length)]
    masker = MaskTokens(
        5 + length,
        mask_token_id=4,
        mask_selection_rate=rate,
        strategy=strategy,
        starts_word=[True] * 5 + starts,
        seed=1,
    )
    rows = np.tile(np.arange(5, 5 + length, dtype="int32"), (200, 1))
    weights = masker(rows)["mask_weights"].numpy()
    assert abs(weights.sum() / rows.size - rate) < 0.02
    places = masker(rows)["mask_positions"].numpy()[weights > 0]
    share = np.bincount(places, minlength=length) / len(rows)
    assert share.min() > 0.01  # each place has its turn
