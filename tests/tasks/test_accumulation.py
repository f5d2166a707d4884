"""Updates of several batches, in every objective."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import callbacks
from keras_bertfam.optimizers import pretraining_optimizer
from tests import tiny_distiller, tiny_electra, tiny_permutation_lm
from tests import tiny_masked_lm as tiny

JIT = {"jit_compile": keras.backend.backend() == "jax"}
ACCUMULATED = {"gradient_accumulation_steps": 2, "learning_rate": 1e-2, **JIT}


def weights_of(model):
    return [ops.convert_to_numpy(variable) for variable in model.trainable_variables]


@pytest.mark.slow
@pytest.mark.any_backend
def test_two_batches_of_equal_weights_are_as_one_of_both():
    """Adam divides by a gradient's size, and so by rounding: here by 1."""
    x, y, _ = next(tiny.stream(tiny.make_model(), 8).as_numpy_iterator())
    moved = []
    for steps, size in ((2, 4), (None, 8)):
        model = tiny.make_model()
        optimizer = pretraining_optimizer(
            1.0, 4, 0, epsilon=1.0, gradient_accumulation_steps=steps
        )
        model.compile(optimizer, **JIT)
        before = weights_of(model)
        for first in range(0, 8, size):
            part = slice(first, first + size)
            rows = {name: value[part] for name, value in x.items()}
            weights = np.ones(y[part].shape, "float32")
            model.train_on_batch(rows, y[part], sample_weight=weights)
        assert int(ops.convert_to_numpy(model.optimizer.iterations)) == 1
        moved.append(weights_of(model))
    for expected, accumulated in zip(*moved, strict=True):
        np.testing.assert_allclose(accumulated, expected, atol=1e-5)
    changes = [np.max(abs(a - b)) for a, b in zip(before, moved[0], strict=True)]
    assert max(changes) > 1e-3


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
