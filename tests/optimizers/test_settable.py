"""Learning rates of schedules that are set."""

import types

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import callbacks, optimizers
from keras_bertfam.optimizers.base import inner, rates_set_by
from tests import tiny_masked_lm as tiny


def schedule(rate=1.0):
    return optimizers.WarmupPolynomialDecay(rate, 2, 10)


MAKERS = {
    "adamw": lambda: optimizers.pretraining_optimizer(schedule()),
    "lamb": lambda: optimizers.pretraining_optimizer(schedule(), optimizer="lamb"),
    "bert": lambda: optimizers.BertAdamW(schedule()),
    "layerwise": lambda: optimizers.LayerwiseAdamW(schedule()),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        optimizers.AdamW(schedule()), initial_scale=1.0
    ),
}


def made(name, steps=4):
    """An optimizer after some updates of one variable."""
    optimizer, variable = MAKERS[name](), keras.Variable([0.5])
    optimizer.build([variable])
    move(optimizer, variable, steps)
    return optimizer, variable


def move(optimizer, variable, steps=1):
    # Keras's loss scale changes nothing of an update, and can't be run eagerly on JAX.
    for _ in range(steps):
        inner(optimizer).apply([ops.array([1.0])], [variable])


def rate_of(optimizer):
    return float(ops.convert_to_numpy(optimizer.learning_rate))


@pytest.mark.parametrize("name", MAKERS)
def test_a_rate_that_is_set_takes_the_schedules_place(name):
    optimizer, variable = made(name)
    assert rate_of(optimizer) == pytest.approx(0.75)
    optimizer.learning_rate = 0.0
    before = ops.convert_to_numpy(variable)
    move(optimizer, variable)
    np.testing.assert_array_equal(ops.convert_to_numpy(variable), before)
    optimizer.learning_rate = np.float32(0.1)
    move(optimizer, variable)
    assert rate_of(optimizer) == pytest.approx(0.1)
    assert 0 < abs(ops.convert_to_numpy(variable) - before).item() < 1
    optimizer.learning_rate = schedule(2.0)
    assert rate_of(optimizer) == pytest.approx(2 * 0.5)
    with pytest.raises(ValueError, match="must not be negative. Received: -1"):
        optimizer.learning_rate = -1


@pytest.mark.parametrize("name", ["adamw", "scaled"])
def test_on_a_plateau_the_schedule_goes_on_at_a_lower_level(name):
    optimizer, variable = made(name)
    reduce = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1)
    reduce.set_model(types.SimpleNamespace(optimizer=optimizer, metrics=[]))
    with rates_set_by(optimizer, [reduce]):
        reduce.on_train_begin()
        for loss in (1.0, 2.0, 2.0):
            reduce.on_epoch_end(0, {"loss": loss})
        assert rate_of(optimizer) == pytest.approx(0.75 / 4)
        move(optimizer, variable, 2)
        assert rate_of(optimizer) == pytest.approx(0.5 / 4)
    optimizer.learning_rate = 0.3
    assert rate_of(optimizer) == pytest.approx(0.3)


def test_a_scheduler_sets_its_rates_also_where_the_schedule_is_at_zero():
    optimizer, variable = made("adamw", steps=0)
    assert rate_of(optimizer) == 0
    scheduler = keras.callbacks.LearningRateScheduler(
        lambda epoch, rate: 0.5 / 2**epoch
    )
    scheduler.set_model(types.SimpleNamespace(optimizer=optimizer))
    reduce = keras.callbacks.ReduceLROnPlateau()
    with rates_set_by(optimizer, [scheduler, reduce]):
        for epoch in range(3):
            scheduler.on_epoch_begin(epoch)
            move(optimizer, variable, 2)
            assert rate_of(optimizer) == pytest.approx(0.5 / 2**epoch)
    with rates_set_by(None, [reduce]):
        pass


def test_a_float_is_set_as_in_keras():
    optimizer = optimizers.AdamW(0.1)
    assert len(optimizer.variables) == len(keras.optimizers.AdamW(0.1).variables)
    optimizer.learning_rate = 0.2
    assert rate_of(optimizer) == pytest.approx(0.2)


class Rates(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates = []

    def on_epoch_begin(self, epoch, logs=None):
        self.rates.append(rate_of(self.model.optimizer))


@pytest.mark.slow
@pytest.mark.any_backend
def test_fit_scales_and_files_and_backups_keep_it(tmp_path):
    model = tiny.make_model()
    model.compile(total_steps=10, warmup_steps=0, learning_rate=1.0)
    rates, backup = Rates(), tmp_path / "backup"
    data = tiny.stream(model).take(2)
    added = [
        callbacks.BackupAndResume(backup, delete_checkpoint=False),
        keras.callbacks.ReduceLROnPlateau("loss", 0.5, patience=1, min_delta=100.0),
    ]
    model.fit(data, epochs=3, callbacks=[rates, *added[::-1]], verbose=0)
    # The first epoch has nothing to be compared with.
    assert rates.rates == pytest.approx([1.0, 0.8, 0.6 / 2])
    assert rate_of(model.optimizer) == pytest.approx(0.4 / 4)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert rate_of(loaded.optimizer) == pytest.approx(0.4 / 4)
    # The backup is of the end of the last epoch, before or after the plateau's turn.
    model.optimizer.learning_rate = 0.7
    added[0].delete_checkpoint = True
    model.fit(data, epochs=4, callbacks=[added[0], rates], verbose=0)
    assert rates.rates[3:] == pytest.approx([0.4 / 4])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_adams_steps_in_half_precision_are_those_of_float32(dtype):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=4).astype("float32") for _ in range(3)]
    gradients = [rng.normal(size=4).astype("float32") for _ in range(3)]
    changed = []
    for kind in (dtype, "float32"):
        optimizer = optimizers.AdamW(0.1, weight_decay=0.0, epsilon=1e-6)
        variables = [keras.Variable(value, dtype=kind) for value in values]
        optimizer.build(variables)
        optimizer.apply([ops.cast(g, kind) for g in gradients], variables)
        changed.append(
            [ops.convert_to_numpy(ops.cast(v, "float32")) for v in variables]
        )
    for half, whole, value in zip(*changed, values, strict=True):
        assert np.abs(whole - value).min() > 0.09
        np.testing.assert_allclose(half, whole, atol=0.02)


@pytest.mark.slow
def test_a_schedule_that_is_set_is_that_of_the_next_fit():
    model = tiny.make_model()
    model.compile(optimizers.pretraining_optimizer(1e-2, 40, 0))
    data = tiny.stream(model).take(2)
    model.fit(data, verbose=0)
    model.optimizer.learning_rate = optimizers.WarmupPolynomialDecay(1e-12, 0, 1000)
    before = [ops.convert_to_numpy(v).copy() for v in model.trainable_variables]
    model.fit(data, verbose=0)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(variable), value, atol=1e-9)
