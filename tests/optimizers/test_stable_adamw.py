import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.optimizers import StableAdamW, pretraining_optimizer


def updated(optimizer, values, gradients, dtype="float32"):
    """Values of variables, by name, after updates with these gradients."""
    variables = [
        keras.Variable(value, name=name, dtype=dtype) for name, value in values.items()
    ]
    optimizer.build(variables)
    for step in gradients:
        optimizer.apply([ops.array(step[name], dtype) for name in values], variables)
    return {v.name: np.array(ops.convert_to_numpy(v), "float32") for v in variables}


def reference(value, gradients, rate, decay, betas=(0.9, 0.98), epsilon=1e-6):
    w = np.array(value, "float64")
    m = v = np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        g = np.array(g)
        kept = [(beta**t - beta) / (beta**t - 1) for beta in betas]
        m = kept[0] * m + (1 - kept[0]) * g
        v = kept[1] * v + (1 - kept[1]) * g**2
        size = np.sqrt(np.mean(g**2 / np.maximum(v, epsilon**2)))
        lowered = rate / max(1, size)
        w = w * (1 - lowered * decay) - lowered * m / (np.sqrt(v) + epsilon)
    return w


def test_a_sudden_gradient_lowers_the_rate():
    """As worked out by hand: a gradient of 1, then one of 10."""
    for count, expected in ((1, 0.999999), (2, 0.999999 + 0.573684)):
        new = updated(
            StableAdamW(1.0, None, beta_2=0.98),
            {"kernel": [0.0]},
            [{"kernel": [1.0]}, {"kernel": [10.0]}][:count],
        )
        np.testing.assert_allclose(-new["kernel"], expected, rtol=1e-6)


def test_many_steps_against_numpy():
    rng = np.random.default_rng(0)
    values = {"kernel": rng.normal(size=(3, 2)), "bias": np.ones(2)}
    gradients = [
        {name: rng.normal(size=v.shape) * 3**k for name, v in values.items()}
        for k in range(6)
    ]
    new = updated(StableAdamW(0.1, 0.5, beta_2=0.98), values, gradients)
    for name, value in values.items():
        steps = [each[name] for each in gradients]
        expected = reference(value, steps, 0.1, 0.5 * (name == "kernel"))
        np.testing.assert_allclose(new[name], expected, rtol=1e-5)


def test_16_bits_are_updated_by_float32():
    values, gradients = {"kernel": [1.0, -2.0]}, [{"kernel": [1e-3, 3e-3]}] * 3
    new = updated(StableAdamW(0.1, epsilon=1e-8), values, gradients, "bfloat16")
    exact = updated(StableAdamW(0.1, epsilon=1e-8), values, gradients)
    np.testing.assert_allclose(new["kernel"], exact["kernel"], rtol=1e-2)


def test_without_a_gradient_only_the_decay_acts():
    new = updated(StableAdamW(0.1, 0.5), {"kernel": [2.0]}, [{"kernel": [0.0]}])
    np.testing.assert_allclose(new["kernel"], 2 - 0.1 * 0.5 * 2)


def test_the_config_and_the_name():
    optimizer = StableAdamW(0.1, 0.5, 0.8, 0.95, 1e-5, global_clipnorm=2.0)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is StableAdamW
    assert copy.get_config() == optimizer.get_config()
    made = pretraining_optimizer(
        total_steps=9, optimizer="stable_adamw", beta_2=0.98, global_clipnorm=None
    )
    assert type(made) is StableAdamW
    assert (made.beta_2, made.epsilon, made.weight_decay) == (0.98, 1e-6, 0.01)
    with pytest.raises(ValueError, match=r"`beta_2` must be in \[0, 1\)"):
        StableAdamW(beta_2=1.0)
