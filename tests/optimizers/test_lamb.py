import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.optimizers import (
    BertAdamW,
    Lamb,
    WarmupPolynomialDecay,
    pretraining_optimizer,
)
from keras_bertfam.optimizers.pretraining import resolve_schedule
from tests import tiny_masked_lm as tiny

BACKEND = keras.backend.backend()


def array(x):
    return ops.convert_to_numpy(x)


def apply(optimizer, values, gradients):
    """Values of variables, by name, after updates with these gradients."""
    variables = [keras.Variable(v, name=name) for name, v in values.items()]
    optimizer.build(variables)
    for step in gradients:
        gradients = [ops.array(step[name], "float32") for name in values]
        optimizer.apply(gradients, variables)
    return {name: array(v) for name, v in zip(values, variables, strict=True)}


def reference(value, gradients, rate, lamb, corrected=False, decay=0.01, plain=False):
    """The released code's update in a few lines; `plain` is of biases and norms."""
    w = np.array(value, "float64")
    m = v = np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        scale = (1 - 0.9**t, 1 - 0.999**t) if corrected else (1, 1)
        update = m / scale[0] / (np.sqrt(v / scale[1]) + 1e-6)
        update = update if plain else update + decay * w
        norms = np.linalg.norm(w), np.linalg.norm(update)
        ratio = norms[0] / norms[1] if lamb and not plain and all(norms) else 1.0
        w = w - rate * ratio * update
    return w


@pytest.mark.parametrize(
    ("corrected", "expected"),
    [(False, [2.500039, 3.993735]), (True, [2.500377, 3.980597])],
)
def test_lamb_of_a_worked_example(corrected, expected):
    new = apply(
        Lamb(0.1, bias_correction=corrected),
        {"kernel": [3.0, 4.0]},
        [{"kernel": [1.0, 0.0]}],
    )
    np.testing.assert_allclose(new["kernel"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("beta_2", "gradients", "expected"),
    [
        (0.999, [1.0, 0.01, 1e-4], [3.162178, 3.152309, 2.402531]),
        (0.98, [1.0], [0.707107]),
    ],
)
def test_adam_of_a_worked_example(beta_2, gradients, expected):
    optimizer = pretraining_optimizer(
        WarmupPolynomialDecay(1.0, 0, 100),
        beta_2=beta_2,
        bias_correction=False,
        global_clipnorm=None,
    )
    new = apply(
        optimizer, {"kernel": np.zeros(len(gradients))}, [{"kernel": gradients}]
    )
    np.testing.assert_allclose(-new["kernel"], expected, rtol=1e-5)


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("cls", [BertAdamW, Lamb])
def test_many_steps_against_numpy(cls, corrected):
    rng = np.random.default_rng(0)
    values = {
        "kernel": rng.normal(size=(3, 2)),
        "embeddings": np.zeros((2, 2)),  # a norm of 0, in the first step only
        "bias": rng.normal(size=2),
        "gamma": np.ones(2),
    }
    gradients = [
        {name: rng.normal(size=v.shape) for name, v in values.items()} for _ in range(5)
    ]
    new = apply(cls(0.1, bias_correction=corrected), values, gradients)
    for name, value in values.items():
        expected = reference(
            value,
            [step[name] for step in gradients],
            0.1,
            cls is Lamb,
            corrected,
            plain=name in ("bias", "gamma"),
        )
        np.testing.assert_allclose(new[name], expected, rtol=1e-4, atol=1e-5)


def test_no_gradient_and_no_weight_leave_a_ratio_of_1():
    values = {"kernel": [3.0, 4.0], "embeddings": [0.0, 0.0]}
    zeros = [{name: [0.0, 0.0] for name in values}]
    still = apply(Lamb(0.1, weight_decay=None), values, zeros)
    np.testing.assert_array_equal(still["kernel"], [3, 4])
    np.testing.assert_array_equal(still["embeddings"], [0, 0])
    # Decay alone, a direction of whatever length, is a step of the rate.
    decayed = apply(Lamb(0.1), values, zeros)["kernel"]
    np.testing.assert_allclose(decayed, [2.7, 3.6], rtol=1e-6)


def test_without_decay_it_is_keras_lamb():
    values, gradient = {"kernel": np.arange(1.0, 6.0)}, {"kernel": np.ones(5)}
    kwargs = {"epsilon": 1e-6, "weight_decay": None}
    ours = apply(Lamb(0.1, bias_correction=True, **kwargs), values, [gradient] * 3)
    theirs = apply(keras.optimizers.Lamb(0.1, **kwargs), values, [gradient] * 3)
    np.testing.assert_allclose(ours["kernel"], theirs["kernel"], rtol=1e-5)


def test_norms_are_float32_whatever_the_variable_is():
    variable = keras.Variable(np.full(4, 300.0), dtype="float16", name="kernel")
    optimizer = Lamb(0.1, epsilon=1e-4)
    optimizer.build([variable])
    optimizer.apply([ops.ones(4, "float16")], [variable])
    np.testing.assert_allclose(array(variable), 270, atol=0.5)


@pytest.mark.parametrize("cls", [BertAdamW, Lamb])
def test_config_round_trip_keeps_the_exclusions(cls):
    schedule = WarmupPolynomialDecay(0.1, 0, 100)
    optimizer = cls(schedule, 0.5, 0.8, 0.99, 1e-5, True, global_clipnorm=2.0)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is cls
    assert copy.get_config() == optimizer.get_config()
    names = ["kernel", "bias", "beta", "gamma"]
    new = apply(
        copy, {name: np.ones(2) for name in names}, [dict.fromkeys(names, [0.0, 0.0])]
    )
    assert [name for name in names if (new[name] != 1).any()] == ["kernel"]


def test_what_decays_can_be_chosen_as_in_keras():
    optimizer = Lamb(0.1)
    optimizer.exclude_from_weight_decay(var_names=["kernel"])
    values = {"kernel": [3.0, 4.0], "bias": [3.0, 4.0]}
    new = apply(optimizer, values, [{name: [1.0, 0.0] for name in values}])
    np.testing.assert_allclose(new["kernel"], [3 - 0.3162178, 4], rtol=1e-5)
    np.testing.assert_allclose(new["bias"], [2.500039, 3.993735], rtol=1e-5)


def test_the_published_optimizer_by_name():
    for name, correction, cls, corrected in [
        ("adamw", None, keras.optimizers.AdamW, None),
        ("adamw", True, keras.optimizers.AdamW, None),
        ("adamw", False, BertAdamW, False),
        ("lamb", None, Lamb, False),
        ("lamb", True, Lamb, True),
    ]:
        made = pretraining_optimizer(
            total_steps=9, optimizer=name, bias_correction=correction
        )
        assert isinstance(made, cls)
        assert getattr(made, "bias_correction", None) is corrected
        assert (made.weight_decay, made.global_clipnorm) == (0.01, 1.0)
    assert isinstance(pretraining_optimizer(total_steps=9), keras.optimizers.AdamW)
    with pytest.raises(ValueError, match="optimizer='sgd'"):
        pretraining_optimizer(optimizer="sgd")


@pytest.mark.parametrize("name", ["beta_1", "beta_2"])
def test_errors(name):
    with pytest.raises(ValueError, match=rf"`{name}` must be in \[0, 1\)"):
        Lamb(**{name: 1.0})


def fit_line(optimizer, batch_size, jit_compile):
    """Weights of a layer after 8 rows in some batch size, for 2 passes."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.layers[0].kernel.assign(np.linspace(-1, 1, 6).reshape(3, 2))
    model.layers[0].bias.assign([0.5, -0.5])
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    model.fit(x, y, batch_size, epochs=2, shuffle=False, verbose=0)
    return np.concatenate([w.ravel() for w in model.get_weights()])


@pytest.mark.slow
@pytest.mark.parametrize("cls", [BertAdamW, Lamb])
def test_compiled_scaled_and_accumulated_steps_are_the_same(cls):
    expected = fit_line(cls(0.1), 4, jit_compile=False)
    if BACKEND != "torch":  # whose compiler needs a C++ compiler, and minutes
        compiled = fit_line(cls(0.1), 4, jit_compile=True)
        np.testing.assert_allclose(compiled, expected, rtol=1e-4, atol=1e-6)
    scaled = keras.optimizers.LossScaleOptimizer(cls(0.1), initial_scale=1024.0)
    for optimizer in (scaled, cls(0.1, loss_scale_factor=1024.0)):
        new = fit_line(optimizer, 4, jit_compile=False)
        np.testing.assert_allclose(new, expected, rtol=1e-4, atol=1e-6)
    halves = fit_line(cls(0.1, gradient_accumulation_steps=2), 2, BACKEND == "jax")
    np.testing.assert_allclose(halves, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_a_saved_task_goes_on(name, tmp_path):
    """As if it had never been saved, in mid-schedule."""
    model = tiny.make_model()
    optimizer = pretraining_optimizer(
        1e-2, 10, 4, optimizer=name, bias_correction=False
    )
    model.compile(optimizer)
    batches = list(tiny.stream(model).take(6))
    for batch in batches[:3]:
        model.train_on_batch(*batch)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(optimizer)
    resolve_schedule(loaded.optimizer, 7)
    for batch in batches[3:]:
        losses = [each.train_on_batch(*batch) for each in (model, loaded)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
    pairs = zip(model.trainable_variables, loaded.trainable_variables, strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(array(one), array(other), atol=1e-5)
