import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats

from keras_bertfam.layers.heads.replaced_tokens import (
    SampleTokens,
    gumbel_noise,
    replace_at,
)

LOGITS = np.array([0.0, 1.0, -1.0, 2.0, 0.5])


def draw(count=20_000, excluded_ids=None, **kwargs):
    layer = SampleTokens(seed=5, **kwargs)
    logits = np.tile(LOGITS, (count // 4, 4, 1)).astype("float32")
    return ops.convert_to_numpy(layer(logits, excluded_ids)).ravel()


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_samples_follow_the_softmax(temperature):
    samples = draw(temperature=temperature)
    weights = np.exp(LOGITS / temperature)
    expected = weights / weights.sum() * samples.size
    assert stats.chisquare(np.bincount(samples, minlength=5), expected).pvalue > 1e-3


def test_excluded_ids_are_never_drawn_and_the_rest_as_before():
    samples = draw(excluded_ids=np.full((5000, 4), 3))
    weights = np.exp(LOGITS)[[0, 1, 2, 4]]
    counts = np.bincount(samples, minlength=5)
    assert counts[3] == 0
    expected = weights / weights.sum() * samples.size
    assert stats.chisquare(counts[[0, 1, 2, 4]], expected).pvalue > 1e-3


def test_low_temperature_takes_the_most_probable():
    assert (draw(count=400, temperature=1e-6) == 3).all()


def test_positions_and_calls_are_independent():
    layer = SampleTokens(seed=0)
    first, second = (layer(np.zeros((50, 80, 4), "float32")) for _ in range(2))
    first, second = ops.convert_to_numpy(first), ops.convert_to_numpy(second)
    for one, two in ((first, second), (first[:, 1:], first[:, :-1])):
        table = np.histogram2d(one.ravel(), two.ravel(), bins=4)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-3


def test_noise_is_gumbel():
    noise = gumbel_noise(ops.zeros((200, 100)), ops.array([1, 2], "uint32"))
    noise = ops.convert_to_numpy(noise).ravel()
    assert np.isfinite(noise).all()
    assert stats.kstest(noise, stats.gumbel_r.cdf).pvalue > 1e-3


def test_replace_at():
    ids = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    positions = np.array([[1, 3, 0], [2, 0, 0]])
    values = np.array([[20, 40, 99], [70, 99, 99]])
    where = np.array([[True, True, False], [True, False, False]])
    received = ops.convert_to_numpy(replace_at(ids, positions, values, where))
    assert received.tolist() == [[1, 20, 3, 40], [5, 6, 70, 8]]


def test_config_and_errors():
    layer = SampleTokens(0.5, seed=2, name="s")
    assert SampleTokens.from_config(layer.get_config()).get_config() == (
        layer.get_config()
    )
    assert layer.dtype_policy == keras.dtype_policies.get("float32")
    with pytest.raises(ValueError, match="temperature=0"):
        SampleTokens(0)
