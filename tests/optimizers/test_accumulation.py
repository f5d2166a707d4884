"""Schedules count updates, whatever number of batches an update is of."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.optimizers import (
    LayerwiseAdamW,
    WarmupPolynomialDecay,
    fine_tuning_optimizer,
    pretraining_optimizer,
)
from keras_bertfam.optimizers.pretraining import count_updates, resolve_schedule
from tests import tiny_masked_lm as tiny


def used_rates(updates, accumulation=None, total_steps=None, **kwargs):
    """Rates by which SGD moves a variable whose gradient is always -1."""
    schedule = WarmupPolynomialDecay(1.0, total_steps=total_steps, **kwargs)
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=accumulation)
    variable = keras.Variable([0.0])
    optimizer.build([variable])
    batches = updates * (accumulation or 1)
    resolve_schedule(optimizer, batches)
    values = [0.0]
    for _ in range(batches):
        optimizer.apply([ops.array([-1.0])], [variable])
        values.append(ops.convert_to_numpy(variable).item())
    return np.diff(values[:: accumulation or 1])


@pytest.mark.parametrize("total_steps", [None, 6, 9])
@pytest.mark.parametrize("accumulation", [2, 3])
def test_rates_of_the_same_updates_are_the_same(accumulation, total_steps):
    for form in ("join", "hold", "product"):
        arguments = {"warmup_steps": 2, "form": form, "total_steps": total_steps}
        expected = used_rates(6, **arguments)
        assert expected[0] == 0 and expected[1] < expected[2] > expected[3] > 0
        rates = used_rates(6, accumulation, **arguments)
        np.testing.assert_allclose(rates, expected, atol=1e-6)


def test_updates_are_whole():
    optimizer = pretraining_optimizer(gradient_accumulation_steps=4)
    resolve_schedule(optimizer, 9)
    assert optimizer.get_config()["learning_rate"]["config"]["total_steps"] == 2
    resolve_schedule(optimizer, 11)
    with pytest.warns(UserWarning, match="ends at step 2, and this run goes to step 3"):
        resolve_schedule(optimizer, 12)
    with pytest.warns(UserWarning, match="Nothing will be trained: .*has 3 batches"):
        resolve_schedule(optimizer, 3)


class Rates(keras.callbacks.Callback):
    """Records the rates of all batches but the first, and of one more."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_end(self, batch, logs=None):
        assert self.model.variables  # as JAX needs it in mid-epoch
        rate = ops.convert_to_numpy(self.model.optimizer.learning_rate)
        self.rates.append(float(rate))


def fit(optimizer, epochs):
    model = tiny.make_model()
    model.compile(optimizer)
    recorder = Rates()
    data = tiny.stream(model).take(6)
    model.fit(data, epochs=epochs, callbacks=[recorder], verbose=0)
    return recorder.rates


@pytest.mark.slow
def test_fit_counts_updates():
    expected = fit(pretraining_optimizer(1.0, warmup_steps=2), 1)
    rates = fit(
        pretraining_optimizer(1.0, warmup_steps=2, gradient_accumulation_steps=2), 2
    )
    assert expected == pytest.approx([0.5, 1.0, 0.75, 0.5, 0.25, 0.0])
    assert rates[1::2] == pytest.approx(expected)
    assert rates[::2] == pytest.approx([0.0, *expected[:-1]])


@pytest.mark.slow
def test_an_optimizer_of_ones_own_is_told_by_compile():
    schedule = WarmupPolynomialDecay(1.0, 2, 6)
    model = tiny.make_model()
    model.compile(keras.optimizers.SGD(schedule, gradient_accumulation_steps=3))
    assert schedule.gradient_accumulation_steps == 3
    for batch in tiny.stream(model).take(3):
        model.train_on_batch(*batch)
    rate = ops.convert_to_numpy(model.optimizer.learning_rate)
    assert rate == pytest.approx(0.5)
    model.compile(fine_tuning_optimizer(model, gradient_accumulation_steps=2))
    assert model.optimizer._learning_rate.gradient_accumulation_steps == 2


@pytest.mark.slow
def test_a_saved_model_goes_on_at_its_rate(tmp_path):
    model = tiny.make_model()
    model.compile(pretraining_optimizer(1.0, 8, 2, gradient_accumulation_steps=2))
    data = tiny.stream(model).take(6)
    model.fit(data, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    schedule = loaded.optimizer._learning_rate
    assert (schedule.total_steps, schedule.gradient_accumulation_steps) == (8, 2)
    recorder = Rates()
    loaded.fit(data, epochs=2, initial_epoch=1, callbacks=[recorder], verbose=0)
    # After three updates the rate is that of the fourth, for two batches.
    expected = [5 / 6, 4 / 6, 4 / 6, 3 / 6, 3 / 6, 2 / 6]
    assert recorder.rates == pytest.approx(expected)


def test_schedule_and_optimizer_must_agree():
    schedule = WarmupPolynomialDecay(1.0, 0, 9, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="Received: 2 and 4"):
        count_updates(keras.optimizers.SGD(schedule, gradient_accumulation_steps=4))
    with pytest.raises(ValueError, match="Received: 2 and None"):
        tiny.make_model().compile(keras.optimizers.SGD(schedule))
    count_updates(keras.optimizers.SGD(schedule, gradient_accumulation_steps=2))


RATE = {"learning_rate": 1e-2, "total_steps": 4, "warmup_steps": 0}
MAKERS = {
    "adamw": lambda **kwargs: pretraining_optimizer(**RATE, **kwargs),
    "lamb": lambda **kwargs: pretraining_optimizer(**RATE, optimizer="lamb", **kwargs),
    "stable": lambda **kwargs: pretraining_optimizer(
        **RATE, optimizer="stable_adamw", **kwargs
    ),
    "bert": lambda **kwargs: pretraining_optimizer(
        **RATE, bias_correction=False, **kwargs
    ),
    "layerwise": lambda **kwargs: LayerwiseAdamW(
        WarmupPolynomialDecay(1e-2, 0, 4), {}, 0.1, global_clipnorm=1.0, **kwargs
    ),
}


def updated(make, batches, **kwargs):
    """A variable after the updates by some batches' gradients."""
    optimizer, variable = make(**kwargs), keras.Variable([0.5, -2.0], name="kernel")
    count_updates(optimizer)
    optimizer.build([variable])
    for gradient in batches:
        optimizer.apply([ops.convert_to_tensor(gradient)], [variable])
    return ops.convert_to_numpy(variable)


@pytest.mark.parametrize("name", MAKERS)
def test_two_batches_are_as_one_of_twice_the_size(name):
    rng = np.random.default_rng(0)
    halves = rng.normal(size=(3, 2, 2)).astype("float32")
    expected = updated(MAKERS[name], halves.mean(1))
    accumulated = updated(
        MAKERS[name], halves.reshape(6, 2), gradient_accumulation_steps=2
    )
    np.testing.assert_allclose(accumulated, expected, atol=1e-6)
    assert np.all(abs(expected - [0.5, -2.0]) > 1e-3)


def test_compile_takes_the_number_of_batches():
    model = tiny.make_model()
    schedule = compiled_schedule(model, gradient_accumulation_steps=2)
    assert model.optimizer.gradient_accumulation_steps == 2
    assert schedule.gradient_accumulation_steps == 2
    assert compiled_schedule(model, gradient_accumulation_steps=1) is not None
    assert model.optimizer.gradient_accumulation_steps is None
    for steps in (0, 1.5, -2):
        with pytest.raises(
            ValueError, match=f"`gradient_accumulation_steps` must be .*{steps}"
        ):
            model.compile(gradient_accumulation_steps=steps)
    with pytest.raises(ValueError, match="must be given to the optimizer itself"):
        model.compile("adam", gradient_accumulation_steps=2)


def compiled_schedule(model, **kwargs):
    model.compile(**kwargs)
    return model.optimizer._learning_rate
