"""An update in one pass is that of several."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import optimizers
from keras_bertfam.optimizers.base import FusedUpdate

RATE = keras.optimizers.schedules.PolynomialDecay(0.1, 10)
MAKERS = {
    "adamw": lambda: optimizers.pretraining_optimizer(0.1, 10, warmup_steps=2),
    "bert": lambda: optimizers.BertAdamW(RATE, global_clipnorm=1.0),
    "corrected": lambda: optimizers.BertAdamW(RATE, bias_correction=True),
    "layerwise": lambda: optimizers.LayerwiseAdamW(
        RATE, {"kernel": 0.5}, decoupled_weight_decay=0.1
    ),
    "accumulated": lambda: optimizers.AdamW(RATE, gradient_accumulation_steps=2),
}


def trained(optimizer):
    """Values after six steps, and the optimizer's variables."""
    rng = np.random.default_rng(0)
    shapes = {"kernel": (3, 4), "bias": (4,), "gamma": (4,)}
    variables = [
        keras.Variable(rng.normal(size=shape), name=name)
        for name, shape in shapes.items()
    ]
    optimizer.build(variables)
    for _ in range(6):
        grads = [ops.array(rng.normal(size=v.shape), "float32") for v in variables]
        optimizer.apply(grads, variables)
    return [ops.convert_to_numpy(v) for v in [*variables, *optimizer.variables]]


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's kernel")
@pytest.mark.parametrize("name", MAKERS)
def test_a_fused_update_is_that_of_keras(name, monkeypatch):
    ours = trained(MAKERS[name]())
    monkeypatch.setattr(FusedUpdate, "_is_fused", lambda self: False)
    for value, expected in zip(ours, trained(MAKERS[name]()), strict=True):
        # Steps of 0.1; in float32 Keras's 1 - beta_2 is off by 2e-5 of itself.
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=5e-6)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's kernel")
def test_what_has_no_kernel_is_updated_by_keras():
    assert not optimizers.Lamb(RATE)._is_fused()
    assert not optimizers.LayerwiseAdamW(RATE, scale_gradients=True)._is_fused()
    settings = {"weight_decay": 0.1, "amsgrad": True}
    ours = trained(optimizers.AdamW(RATE, **settings))
    theirs = trained(keras.optimizers.AdamW(RATE, **settings))
    for value, expected in zip(ours[:3], theirs, strict=False):
        np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert optimizers.AdamW(RATE)._is_fused()
