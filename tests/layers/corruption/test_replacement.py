import numpy as np
import pytest
from scipy.stats import chisquare

from keras_bertfam.layers import GeometricSpans, GivenSpans
from tests.layers.corruption.masked_batches import (
    LIKELY,
    MASK,
    PIECE,
    START,
    VOCABULARY,
    masker,
    numpy_call,
)


def fates(out, ids):
    """Of each slot: 0 masked, 1 random, 2 kept."""
    new = np.take_along_axis(out["token_ids"], out["mask_positions"], 1)
    return np.where(new == MASK, 0, np.where(new == out["mask_ids"], 2, 1))


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_a_unit_shares_its_fate(unit):
    ids = np.full((4000, 40), START)
    ids[:, 1::2] = PIECE
    layer = masker(
        GeometricSpans(), replacement_unit=unit, return_span_bounds=True, seed=0,
        random_token_ids=[9],
    )  # fmt: skip
    out = numpy_call(layer, ids, seed=[0, 2])
    fate, positions = fates(out, ids), out["mask_positions"]
    first = {
        "token": np.ones_like(positions, bool),
        "word": positions % 2 == 0,  # every span begins with a word
        "span": positions == out["span_bounds"][..., 0],
    }[unit]
    index = np.maximum.accumulate(np.where(first, np.arange(first.shape[1]), 0), 1)
    assert (np.take_along_axis(fate, index, 1) == fate).all()
    observed = np.bincount(fate[first], minlength=3)
    expected = np.array([0.8, 0.1, 0.1]) * first.sum()
    assert chisquare(observed, expected).pvalue > LIKELY


def test_random_tokens_by_their_frequency():
    weights = np.arange(VOCABULARY) ** 2.0
    layer = masker(
        "tokens", mask_token_rate=0, random_token_rate=1, random_token_weights=weights
    )
    out = numpy_call(layer, np.full((5000, 40), START), seed=[0, 3])
    new = np.take_along_axis(out["token_ids"], out["mask_positions"], 1)
    observed, expected = np.bincount(new.ravel()), weights / weights.sum() * new.size
    many = expected > 5
    assert observed[0] == 0
    expected = expected[many] * observed[many].sum() / expected[many].sum()
    assert chisquare(observed[many], expected).pvalue > LIKELY


def test_span_bounds():
    """The golden case: spans (0,1), (3,5), (6,7), (18,19) of 20 tokens."""
    chosen = [0, 1, 3, 4, 5, 6, 7, 18, 19]
    span_ids = np.isin(np.arange(20), chosen).astype("int32")
    layer = masker(GivenSpans(True), mask_selection_rate=0.5, return_span_bounds=True)
    ids = np.full((2, 20), START)
    out = numpy_call(layer, ids, span_ids=np.stack([span_ids, 0 * span_ids]))
    assert out["mask_positions"][0].tolist() == [*chosen, 0]
    assert out["span_bounds"][0].tolist() == [
        *[[0, 1]] * 2,
        *[[3, 7]] * 5,
        *[[18, 19]] * 2,
        [0, 0],
    ]
    assert not out["span_bounds"][1].any()


@pytest.mark.parametrize("strategy", ["words", "tokens", GeometricSpans()])
def test_a_word_has_one_fate_whatever_selects_its_pieces(strategy):
    """One word of ten pieces, all of which are selected."""
    ids = np.tile([START, *[PIECE] * 9], (500, 1))
    layer = masker(
        strategy, replacement_unit="word", mask_selection_rate=1.0,
        mask_token_rate=0.5, random_token_rate=0.0,
    )  # fmt: skip
    masked = numpy_call(layer, ids, seed=[0, 1])["token_ids"] == MASK
    assert (masked.any(1) == masked.all(1)).all()
    assert 200 < masked.all(1).sum() < 300
