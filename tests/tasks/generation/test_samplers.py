"""Samplers: the law of what they draw, and numbers with which nothing can be drawn."""

import keras_hub
import numpy as np
import pytest
from keras import ops
from scipy.stats import chisquare

from keras_bertfam.tasks.generation.compiled_kinds import kind_of
from keras_bertfam.tasks.generation.defaults import default_sampler
from keras_bertfam.tasks.generation.nucleus import NucleusSampler
from keras_bertfam.tasks.generation.samplers import as_sampler
from keras_bertfam.tasks.generation.settings import SAMPLERS, GenerationSettings


@pytest.mark.parametrize(("p", "k"), [(0.7, None), (0.7, 3), (1.0, 2), (0.01, 50)])
def test_a_nucleus_against_its_law(p, k):
    shares = np.array([0.1, 0.35, 0.3, 0.25])
    order = np.argsort(-shares)[: k or 4]
    best = shares[order] / shares[order].sum()
    kept = order[np.cumsum(best) - best < p]
    expected = np.where(np.isin(np.arange(4), kept), shares, 0)
    rows = ops.convert_to_tensor(np.tile(shares, (4000, 1)), "float32")
    drawn = ops.convert_to_numpy(NucleusSampler(p, k, seed=1).get_next_token(rows))
    counts = np.bincount(drawn, minlength=4)
    assert not counts[expected == 0].any()
    if len(kept) > 1:
        expected = 4000 * expected[kept] / expected[kept].sum()
        assert chisquare(counts[kept], expected).pvalue > 1e-4


def test_as_many_as_transformers_keeps():
    """Of 100 equal ones with top_p=0.5 and the usual top_k=50."""
    sampler = default_sampler({"do_sample": True, "top_p": 0.5})
    rows = ops.full((4000, 100), 0.01)
    assert 25 <= len({*ops.convert_to_numpy(sampler.get_next_token(rows))}) <= 26


@pytest.mark.any_backend
@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "greedy"])
@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperatures(name, temperature):
    sampler = as_sampler(name)
    sampler.temperature = temperature
    with pytest.raises(ValueError, match="`temperature` of the sampler must be more"):
        as_sampler(sampler)
    with pytest.raises(ValueError, match="`temperature` of the sampler must be more"):
        as_sampler(default_sampler({"do_sample": True, "temperature": temperature}))


def test_one_function_for_all_numbers():
    known = {
        kind_of(NucleusSampler(p, 9, temperature=t, seed=seed), GenerationSettings())
        for p, t, seed in ((0.5, 1.0, 1), (0.9, 0.3, 2))
    }
    assert len(known) == 1


@pytest.mark.any_backend
def test_other_numbers():
    with pytest.raises(ValueError, match=r"`p` of the sampler must be in \(0, 1\]"):
        as_sampler(keras_hub.samplers.TopPSampler(p=0.0))
    with pytest.raises(ValueError, match="`k` of the sampler must be at least 1"):
        as_sampler(keras_hub.samplers.TopKSampler(k=0))
