"""Rates of masking that are uniform, in a batch spread evenly, and their weights."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.corruption.diffuse_tokens import DiffuseTokens

IDS = np.tile([[2, *range(10, 26), 3, 0, 0]], (8, 1)).astype("int32")


def draw(count, ids=IDS, **kwargs):
    layer = DiffuseTokens(1, unselectable_token_ids=[2, 3], **kwargs)
    in_graph = tf.function(lambda seed: layer(ids, seed=seed), autograph=False)
    drawn = [in_graph(tf.constant([0, k])) for k in range(count)]
    return {name: np.stack([x[name].numpy() for x in drawn]) for name in drawn[0]}


def test_words_are_masked_and_nothing_else():
    drawn = draw(50)
    masked = drawn["token_ids"] == 1
    assert not masked[..., [0, 17, 18, 19]].any()
    assert np.array_equal(
        np.where(masked, IDS, drawn["token_ids"]), np.stack([IDS] * 50)
    )
    assert np.array_equal(masked, drawn["weights"] > 0)
    expected = np.where((IDS >= 10), IDS, -1)
    assert np.array_equal(drawn["targets"], np.stack([expected] * 50))


def test_rates_are_uniform_and_each_row_of_a_batch_has_a_part_of_its_own():
    drawn = draw(1500, lowest_rate=0.2)
    weights = drawn["weights"].max(axis=-1)
    # One of a row's masked tokens says its rate; of a few rows none is masked.
    rates = 1 / np.where(weights > 0, weights, np.nan)
    assert np.isnan(rates).mean() < 0.01
    parts = np.floor((rates - 0.2) / 0.1 - 1e-5)
    whole = ~np.isnan(rates).any(axis=1)
    assert (np.sort(parts[whole], axis=1) == np.arange(8)).all()
    for row in range(8):  # and any row may have any rate
        share = (rates[:, row] - 0.2) / 0.8
        counts, _ = np.histogram(share, 10, (0, 1))
        expected = counts.sum() / 10
        assert ((counts - expected) ** 2 / expected).sum() < 27.9  # chi2(9), p = .001
    # Tokens are masked by themselves: as many as a binomial says.
    masked = (drawn["weights"] > 0)[..., 1:17].sum(-1)
    known = ~np.isnan(rates)
    error = masked[known] - 16 * rates[known]
    variance = 16 * rates[known] * (1 - rates[known])
    assert np.abs(error.mean()) < 4 * np.sqrt(variance.mean() / known.sum()) + 0.02
    assert (error**2).mean() == pytest.approx(variance.mean(), rel=0.1)


def test_a_rate_of_0_weighs_nothing():
    layer = DiffuseTokens(1, lowest_rate=0.0)
    for seed in range(20):
        assert np.isfinite(layer(IDS, seed=[0, seed])["weights"]).all()


def test_weights_make_each_token_count_once():
    weights = draw(2000, lowest_rate=0.1)["weights"][..., 1:17]
    assert weights.mean() == pytest.approx(1, abs=0.02)


def test_one_row_and_wrong_rates():
    layer = DiffuseTokens(1)
    assert layer(IDS[0], seed=[0, 1])["token_ids"].shape == (20,)
    again = DiffuseTokens.from_config(layer.get_config())
    for name, value in layer(IDS).items():  # seeds are of the ids
        assert np.array_equal(value, again(IDS)[name])
    with pytest.raises(ValueError, match="`lowest_rate` must be .* from 0.0 to 1.0"):
        DiffuseTokens(1, lowest_rate=1.1)
