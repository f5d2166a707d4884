"""Event files, read back."""

import keras
import numpy as np
import pytest
from keras import ops
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_bertfam import callbacks
from keras_bertfam.optimizers import pretraining_optimizer
from tests import tiny_masked_lm as tiny
from tests.resume_worker import At

NAMES = ("learning_rate", "gradient_norm", "tokens_per_second", "padding_share")


def written(folder, prefix="batch"):
    """Dict from what was written in training to its values by step."""
    events = EventAccumulator(str(folder / "train"), {"tensors": 0})
    events.Reload()
    import tensorflow as tf

    return {
        name: {
            event.step: tf.make_ndarray(event.tensor_proto).item()
            for event in events.Tensors(f"{prefix}_{name}")
        }
        for name in (*NAMES, "loss")
        if f"{prefix}_{name}" in events.Tags()["tensors"]
    }


class Momentum(keras.callbacks.Callback):
    """Norms of SGD's steps of rate 1, which are the gradients."""

    def __init__(self):
        super().__init__()
        self.norms = []

    def _values(self):
        return [ops.convert_to_numpy(v) for v in self.model.trainable_variables]

    def on_train_begin(self, logs=None):
        self.last = self._values()

    def on_train_batch_end(self, batch, logs=None):
        new = self._values()
        steps = [a - b for a, b in zip(self.last, new, strict=True)]
        self.norms.append(np.sqrt(sum(np.sum(step**2) for step in steps)))
        self.last = new


@pytest.mark.slow
def test_what_is_written_of_each_step(tmp_path):
    model, momentum = tiny.make_model(), Momentum()
    model.compile(keras.optimizers.SGD(1.0), jit_compile=model.jit_compile)
    batches = list(tiny.stream(model).take(3).as_numpy_iterator())
    data = tiny.tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=tiny.stream(model).element_spec
    )
    board = callbacks.TensorBoard(tmp_path)
    held_out = tiny.stream(model, training=False)
    arguments = {"validation_data": held_out, "verbose": 0}
    history = model.fit(data, epochs=2, callbacks=[board, momentum], **arguments)
    assert sorted(history.history)[0] == "accuracy" and len(history.history) == 6
    values = written(tmp_path)
    for name in ("learning_rate", "gradient_norm", "padding_share", "loss"):
        assert list(values[name]) == [1, 2, 3, 4, 5, 6]
    assert list(values["tokens_per_second"]) == [2, 3, 4, 5, 6]
    assert all(rate > 0 for rate in values["tokens_per_second"].values())
    assert list(values["gradient_norm"].values()) == pytest.approx(
        momentum.norms, rel=1e-3
    )
    padding = [1 - float(np.mean(x["padding_mask"])) for x, _, _ in batches] * 2
    assert list(values["padding_share"].values()) == pytest.approx(padding, abs=1e-6)
    assert 0 < min(padding) and len(set(padding)) == 3
    # Nothing stays: neither in the file, nor after `compile()`.
    assert len(model.metrics_variables) > len(uncompiled(model))


def uncompiled(model):
    model.compile(keras.optimizers.SGD(1.0))
    return model.metrics_variables


@pytest.mark.slow
@pytest.mark.any_backend
def test_norms_are_of_updates_and_once_an_epoch(tmp_path):
    model = tiny.make_model()
    model.compile(pretraining_optimizer(1e-2, 9, 0, gradient_accumulation_steps=2))
    board = callbacks.TensorBoard(tmp_path / "steps")
    model.fit(tiny.stream(model).take(5), callbacks=[board], verbose=0)
    values = written(tmp_path / "steps")
    norms = list(values["gradient_norm"].values())
    assert norms[0] == 0 < norms[1] == norms[2] != norms[3] == norms[4]
    rates = list(values["learning_rate"].values())
    assert rates == pytest.approx([1e-2 * left / 9 for left in (9, 9, 8, 8, 7)])
    # Another `fit()` goes on with the numbers of the steps.
    board = callbacks.TensorBoard(tmp_path / "epochs", "epoch")
    model.fit(tiny.stream(model).take(2), epochs=2, callbacks=[board], verbose=0)
    values = written(tmp_path / "epochs", "epoch")
    assert {tuple(steps) for steps in values.values()} == {(0, 1)}
    assert set(values) == {*NAMES, "loss"} and not written(tmp_path / "epochs")
    board = callbacks.TensorBoard(tmp_path / "every", 2)
    model.fit(tiny.stream(model).take(5), callbacks=[board], verbose=0)
    assert list(written(tmp_path / "every")["padding_share"]) == [10, 12, 14]


@pytest.mark.slow
def test_validation_is_not_counted(tmp_path):
    model = tiny.make_model()
    x, y, weights = next(iter(tiny.stream(model)))
    full = {**x, "padding_mask": np.ones_like(x["padding_mask"])}
    board = callbacks.TensorBoard(tmp_path, "epoch")
    arguments = {"validation_data": (x, y, weights), "callbacks": [board]}
    arguments |= {"batch_size": 2, "epochs": 2, "verbose": 0}
    model.fit(full, y, sample_weight=weights, **arguments)
    assert list(written(tmp_path, "epoch")["padding_share"].values()) == [0, 0]


@pytest.mark.slow
@pytest.mark.any_backend
def test_steps_in_one_execution(tmp_path):
    model = tiny.make_model()
    model.compile(keras.optimizers.SGD(1.0), steps_per_execution=2)
    for name in ("first", "second"):
        board = callbacks.TensorBoard(tmp_path / name)
        model.fit(tiny.stream(model).take(4), callbacks=[board], verbose=0)
    steps = [[*written(tmp_path / name)["loss"]] for name in ("first", "second")]
    assert steps == [[1, 2], [3, 4]]


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_resumed_run_goes_on_with_its_steps(tmp_path):
    def fit(name, *added):
        model = tiny.make_model()
        backup = callbacks.BackupAndResume(tmp_path / "backup", 3)
        board = callbacks.TensorBoard(tmp_path / name)
        extra = [board, backup, *added]  # the board's turn is before the backup's
        model.fit(tiny.stream(model), epochs=2, callbacks=extra, verbose=0)

    with pytest.raises(ZeroDivisionError):
        fit("first", At(1, 4, lambda: 1 / 0))
    fit("second")
    first, second = written(tmp_path / "first"), written(tmp_path / "second")
    # What Keras hadn't flushed yet is lost.
    assert list(first["gradient_norm"]) == list(range(1, 12))
    assert list(second["gradient_norm"]) == list(
        range(11, 15)
    )  # backups are of 7 and 10
    for name in ("learning_rate", "gradient_norm", "loss"):
        both = [steps[name][11] for steps in (first, second)]
        assert both[0] == pytest.approx(both[1], rel=1e-4)


@pytest.mark.any_backend
def test_bad_arguments(tmp_path):
    expected = '"epoch" or a positive integer|must be an int'
    for update_freq in (0, -1, 1.5, "step"):
        with pytest.raises(ValueError, match=f"`update_freq` .*({expected})"):
            callbacks.TensorBoard(tmp_path, update_freq)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="must be a task of this library"):
        model.fit(np.ones((1, 1)), callbacks=[callbacks.TensorBoard(tmp_path)])
