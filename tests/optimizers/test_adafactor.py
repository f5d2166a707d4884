import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.optimizers import (
    Adafactor,
    InverseSquareRootDecay,
    WarmupPolynomialDecay,
    pretraining_optimizer,
)
from keras_bertfam.optimizers.pretraining import needs_total_steps, resolve_schedule

SHAPES = {"matrix": (4, 6), "thin": (2, 6), "bias": (5,)}


def array(x):
    return ops.convert_to_numpy(x)


def size(x):
    return np.sqrt((x**2).mean())


def reference(value, gradients, rate, factored):
    """T5's update in a few lines."""
    w = value.astype("float64")
    rows, columns, moment = (np.zeros(s) for s in (w.shape[:-1], w.shape[-1:], w.shape))
    for t, g in enumerate(gradients):
        decay, square = 1 - (t + 1) ** -0.8, g**2 + 1e-30
        if factored:
            rows = decay * rows + (1 - decay) * square.mean(-1)
            columns = decay * columns + (1 - decay) * square.mean(-2)
            moment = rows[:, None] * columns / rows.mean()
        else:
            moment = decay * moment + (1 - decay) * square
        step = g / np.sqrt(moment)
        w = w - rate * max(size(w), 1e-3) * step / max(1, size(step))
    return w


def test_updates_against_numpy():
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    values["bias"] *= 1e-5  # whose size is the least there is
    gradients = [{n: rng.normal(size=s) for n, s in SHAPES.items()} for _ in range(3)]
    optimizer = Adafactor(0.1, min_factored=3)
    variables = [keras.Variable(v, name=n) for n, v in values.items()]
    optimizer.build(variables)
    for step in gradients:
        optimizer.apply([ops.array(step[n], "float32") for n in values], variables)
    for name, variable in zip(values, variables, strict=True):
        steps = [step[name] for step in gradients]
        expected = reference(values[name], steps, 0.1, name == "matrix")
        np.testing.assert_allclose(array(variable), expected, rtol=1e-4, atol=1e-8)
    # A row and a column of the matrix, and no moment of its size.
    moments = [tuple(v.shape) for v in optimizer.variables if len(v.shape)]
    assert sorted(moments) == sorted([(4,), (6,), (2, 6), (5,)])


def test_config_and_errors():
    schedule = InverseSquareRootDecay(2.0, 100)
    optimizer = Adafactor(schedule, min_factored=8, global_clipnorm=1.0)
    again = Adafactor.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
    optimizer.learning_rate = 0.5
    assert float(array(optimizer.learning_rate)) == 0.5
    with pytest.raises(ValueError, match="`decay_exponent` must be negative"):
        Adafactor(decay_exponent=0.8)


def test_inverse_square_root():
    schedule = InverseSquareRootDecay()
    steps = [0, 10_000, 40_000, 262_144]
    found = [float(array(schedule(ops.array(step)))) for step in steps]
    np.testing.assert_allclose(found, [0.01, 0.01, 0.005, 0.001953125], rtol=1e-5)
    slower = InverseSquareRootDecay(1.0, 4, gradient_accumulation_steps=4)
    assert float(array(slower(ops.array(64)))) == pytest.approx(0.25)
    again = InverseSquareRootDecay.from_config(slower.get_config())
    assert again.get_config() == slower.get_config()
    for arguments in ((0.0,), (1.0, 0), (1.0, 1.5)):
        with pytest.raises(ValueError, match="must be a? ?positive"):
            InverseSquareRootDecay(*arguments)


def test_cosine():
    schedule = WarmupPolynomialDecay(1.0, 10, 30, end_learning_rate=0.2, form="cosine")
    found = [float(array(schedule(ops.array(t)))) for t in (0, 5, 10, 15, 20, 30, 40)]
    expected = [0, 0.5, 1, 0.2 + 0.4 * (1 + np.cos(np.pi / 4)), 0.6, 0.2, 0.2]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_published_optimizer():
    optimizer = pretraining_optimizer(
        1.0,
        warmup_steps=10,
        schedule_form="rsqrt",
        optimizer="adafactor",
        gradient_accumulation_steps=2,
    )
    assert isinstance(optimizer, Adafactor) and not needs_total_steps(optimizer)
    resolve_schedule(optimizer, None)  # which needs no number of steps
    assert optimizer._learning_rate.gradient_accumulation_steps == 2
    with pytest.raises(ValueError, match="one of .'adamw', 'lamb', 'stable_adamw'"):
        pretraining_optimizer(optimizer="sgd")
