import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.optimizers import WarmupPolynomialDecay, pretraining_optimizer
from keras_bertfam.optimizers.base import exclude_norms_and_biases
from keras_bertfam.optimizers.pretraining import (
    OPTIMIZERS,
    needs_total_steps,
    resolve_schedule,
)
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.tasks.recipes import PretrainingRecipe

RATE = 0.1


def after_one_step(gradients, values, names=None, **kwargs):
    names = names or [f"kernel_{i}" for i in range(len(values))]
    variables = [keras.Variable(v, name=n) for v, n in zip(values, names, strict=True)]
    schedule = WarmupPolynomialDecay(RATE, 0, 1000)
    optimizer = pretraining_optimizer(schedule, **kwargs)
    optimizer.build(variables)
    optimizer.apply([ops.array(g) for g in gradients], variables)
    return [ops.convert_to_numpy(v) for v in variables], optimizer


def adamw_reference(gradient, value, decay=0.01, beta_2=0.999, epsilon=1e-6):
    """First AdamW step with bias correction, epsilon beside the raw moment."""
    m, v = 0.1 * gradient, (1 - beta_2) * gradient**2
    rate = RATE * np.sqrt(1 - beta_2) / 0.1
    return value - RATE * decay * value - rate * m / (np.sqrt(v) + epsilon)


def test_first_step_is_bias_corrected_adamw():
    gradients = np.array([1.0, 0.01, -1e-3])
    values = np.array([10.0, 0.0, 2.0])
    (new,), _ = after_one_step(
        [gradients.astype("float32")], [values.astype("float32")], global_clipnorm=None
    )
    np.testing.assert_allclose(new, adamw_reference(gradients, values), rtol=1e-5)
    # Bias-corrected, the first step is about the rate: .1 beside the decay .01.
    assert new[0] == pytest.approx(10 - RATE * (1 + 0.1), abs=1e-4)


def test_weight_decay_acts_on_kernels_only():
    names = ["kernel", "embeddings", "bias", "output_bias", "gamma", "beta"]
    values = [np.full(2, 10.0, "float32")] * len(names)
    new, _ = after_one_step([np.zeros(2, "float32")] * len(names), values, names)
    decayed = [name for name, v in zip(names, new, strict=True) if not (v == 10).all()]
    assert decayed == ["kernel", "embeddings"]
    np.testing.assert_allclose(new[0], 10 - RATE * 0.01 * 10, rtol=1e-6)


def test_the_name_of_a_layer_does_not_matter():
    dense = keras.layers.Dense(1, name="bias_gamma_beta")
    dense.build((None, 1))
    optimizer = pretraining_optimizer(total_steps=10)
    optimizer.build(dense.trainable_variables)
    dense.kernel.assign([[1.0]])
    dense.bias.assign([1.0])
    for _ in range(2):  # the first rate is 0
        optimizer.apply([ops.zeros((1, 1)), ops.zeros((1,))], dense.trainable_variables)
    assert ops.convert_to_numpy(dense.kernel).item() < 1
    assert ops.convert_to_numpy(dense.bias).item() == 1


def test_gradients_are_clipped_by_their_global_norm():
    _, optimizer = after_one_step(
        [np.array([3.0], "float32"), np.array([4.0], "float32")],
        [np.zeros(1, "float32")] * 2,
    )
    moments = [v for v in optimizer.variables if "momentum" in v.path]
    first = [float(ops.convert_to_numpy(v)[0]) / 0.1 for v in moments]
    np.testing.assert_allclose(first, [0.6, 0.8], rtol=1e-5)


def test_defaults_are_the_published_ones():
    config = pretraining_optimizer(total_steps=100).get_config()
    expected = {
        "weight_decay": 0.01,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-6,
        "global_clipnorm": 1.0,
    }
    assert {name: config[name] for name in expected} == expected
    schedule = keras.optimizers.schedules.deserialize(config["learning_rate"])
    assert schedule.peak_learning_rate == 1e-4
    assert schedule.total_steps == 100


def test_exclusion_needs_an_unbuilt_optimizer():
    optimizer = keras.optimizers.AdamW()
    optimizer.build([keras.Variable([1.0])])
    with pytest.raises(ValueError, match="must not be built"):
        exclude_norms_and_biases(optimizer)


@pytest.mark.parametrize("scaled", [False, True])
def test_resolving_the_schedule(scaled):
    optimizer = pretraining_optimizer(warmup_steps=0)
    schedule = optimizer._learning_rate
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    assert needs_total_steps(optimizer)
    with pytest.raises(ValueError, match="`total_steps` to `compile"):
        resolve_schedule(optimizer, None)
    resolve_schedule(optimizer, 30)
    assert schedule.total_steps == 30
    assert not needs_total_steps(optimizer)
    resolve_schedule(optimizer, None)
    with pytest.warns(UserWarning, match="ends at step 30"):
        resolve_schedule(optimizer, 31)


def test_other_optimizers_are_left_alone():
    for optimizer in (None, keras.optimizers.SGD(0.1)):
        assert not needs_total_steps(optimizer)
        resolve_schedule(optimizer, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rate": "1e-3"}, "at least 0.0. Received: '1e-3'."),
        (
            {"learning_rate": "1e-3", "schedule_form": "constant"},
            "`learning_rate` must be a finite number",
        ),
        ({"learning_rate": float("nan")}, "at least 0.0. Received: nan."),
        ({"learning_rate": 0.0}, "must be a positive number. Received: 0.0."),
        ({"learning_rate": True}, "at least 0.0. Received: True."),
        ({"warmup_steps": "9"}, "`warmup_steps` must be a finite number"),
        ({"warmup_steps": 1.5}, "`warmup_steps` must be an integer"),
        ({"end_share": 0.5, "schedule_form": "rsqrt"}, "`end_share` must be 0 for"),
    ],
)
def test_numbers_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        pretraining_optimizer(**arguments)


def test_one_line_adds_an_optimizer(monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "sgd", keras.optimizers.SGD)
    recipe = PretrainingRecipe("MaskedLM", "me", 1e-3, 2, 10, 8, optimizer="sgd")
    made = pretraining_optimizer(**{**recipe.optimizer_arguments(), "total_steps": 10})
    assert isinstance(made, keras.optimizers.SGD)


def test_a_constant_rate_may_have_a_warmup():
    optimizer = pretraining_optimizer(
        1e-3, 100, warmup_steps=10, schedule_form="constant"
    )
    rates = [float(optimizer._learning_rate(step)) for step in (0, 5, 10, 99, 200)]
    np.testing.assert_allclose(rates, [0, 5e-4, 1e-3, 1e-3, 1e-3], rtol=1e-6)
    assert isinstance(
        pretraining_optimizer(1e-3, schedule_form="constant").get_config()[
            "learning_rate"
        ],
        float,
    )


RECIPES = {
    f"{family}-{size}": recipe
    for family, record in FAMILIES.items()
    for size, recipe in (record.pretraining or {}).items()
    if recipe.optimizer != "adafactor"  # its rates are relative to the weights' size
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", RECIPES)
def test_the_greatest_rate_of_a_recipe_is_the_one_it_names(name):
    recipe = RECIPES[name]
    optimizer = pretraining_optimizer(
        **recipe.optimizer_arguments(), total_steps=50_000
    )
    rate, greatest = optimizer._learning_rate, None
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        greatest = float(ops.max(rate(ops.arange(50_000))))
    else:
        greatest = float(rate)
    # Forms whose fall begins with the first step lose a little.
    assert greatest == pytest.approx(recipe.learning_rate, rel=0.05)
