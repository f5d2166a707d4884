"""Updates of several batches, in every objective."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import callbacks
from tests import (
    tiny_distiller,
    tiny_electra,
    tiny_permutation_lm,
)
from tests import tiny_masked_lm as tiny
from tests.uneven_batches import MODELS, MORE_MODELS, uneven_batch

JIT = {"jit_compile": keras.backend.backend() == "jax"}
ACCUMULATED = {"gradient_accumulation_steps": 2, "learning_rate": 1e-2, **JIT}


def weights_of(model):
    return [ops.convert_to_numpy(variable) for variable in model.trainable_variables]


class Parts(keras.utils.PyDataset):
    """A batch as several ones of equally many rows."""

    def __init__(self, batch, parts):
        super().__init__()
        self.batch, self.parts = batch, parts

    def __len__(self):
        return self.parts

    def __getitem__(self, index):
        return keras.tree.map_structure(
            lambda values: np.split(values, self.parts)[index], self.batch
        )


def moved_by(make_model, batch, parts, compile=None):
    """How far SGD of rate 1 moves the weights, and the loss that it reports."""
    model = make_model()
    steps = parts if parts > 1 else None
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=steps)
    # Graphs are made anew for each model: without them TensorFlow is faster.
    eager = {"run_eagerly": keras.backend.backend() == "tensorflow"}
    model.compile(optimizer, **JIT, **eager, **(compile or {}))
    before = weights_of(model)
    logs = model.fit(Parts(batch, parts), shuffle=False, verbose=0).history
    assert int(ops.convert_to_numpy(model.optimizer.iterations)) == 1
    pairs = zip(before, weights_of(model), strict=True)
    return [a - b for a, b in pairs], logs["loss"][0]


def check_as_one_batch(make_model, batch, compile=None):
    expected, loss = moved_by(make_model, batch, 1, compile)
    moved, accumulated = moved_by(make_model, batch, 2, compile)
    for a, b in zip(moved, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6 * max(1.0, np.max(abs(b))))
    assert accumulated == pytest.approx(loss, rel=1e-6)
    assert max(np.max(abs(x)) for x in expected) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_uneven_batches_are_as_one_of_both(name):
    make_model, _ = MODELS[name]
    check_as_one_batch(make_model, uneven_batch(name))


@pytest.mark.slow("release")
@pytest.mark.parametrize("name", MORE_MODELS)
def test_uneven_batches_of_any_task_are_as_one_of_both(name):
    make_model, _ = MORE_MODELS[name]
    check_as_one_batch(make_model, uneven_batch(name))


@pytest.mark.slow
def test_batches_without_a_weight_change_nothing():
    x, y, weights = uneven_batch("masked_lm")
    weights[4:] = 0
    check_as_one_batch(tiny.make_model, (x, y, weights))
    nothing, loss = moved_by(tiny.make_model, (x, y, 0 * weights), 2)
    assert loss == 0 and not any(np.any(each) for each in nothing)


@pytest.mark.slow
def test_batches_are_alike_under_a_loss_that_divides_by_something_else():
    """Keras's losses divide by all slots, which are as many in each batch."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    settings = {"loss": loss, "weighted_metrics": None}
    check_as_one_batch(tiny.make_model, uneven_batch("masked_lm"), settings)


class Moves(keras.callbacks.Callback):
    """Records which batches changed the weights."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def on_train_begin(self, logs=None):
        self.last = weights_of(self.model)

    def on_train_batch_end(self, batch, logs=None):
        new = weights_of(self.model)
        pairs = zip(self.last, new, strict=True)
        self.moved.append(any(np.any(a != b) for a, b in pairs))
        self.last = new


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "tiny_model",
    [tiny_electra, tiny_distiller, tiny_permutation_lm],
    ids=lambda x: x.__name__,
)
def test_every_objective_moves_at_every_second_batch(tiny_model):
    model, moves = tiny_model.make_model(), Moves()
    model.compile(warmup_steps=0, **ACCUMULATED)
    data = tiny_model.stream(model).take(5)
    model.fit(data, callbacks=[moves], verbose=0)
    assert moves.moved == [False, True, False, True, False]
    assert model.optimizer._learning_rate.total_steps == 3
    assert int(ops.convert_to_numpy(model.optimizer.iterations)) == 2


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 3:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_run_goes_on_in_the_middle_of_an_update(tmp_path):
    weights = []
    for interrupted in (False, True):
        model = tiny.make_model()
        model.compile(total_steps=4, warmup_steps=0, **ACCUMULATED)
        backup = callbacks.BackupAndResume(tmp_path / str(interrupted), save_freq=3)
        if interrupted:
            with pytest.raises(KeyboardInterrupt):
                model.fit(tiny.stream(model), callbacks=[backup, Stop()], verbose=0)
            model.optimizer._accumulated_gradients[0].assign_add(
                ops.ones(model.optimizer._accumulated_gradients[0].shape)
            )
        model.fit(tiny.stream(model), callbacks=[backup], verbose=0)
        weights.append(weights_of(model))
    for expected, resumed in zip(*weights, strict=True):
        np.testing.assert_array_equal(resumed, expected)
