"""Event files, read back."""

import keras
import numpy as np
import pytest
from keras import ops
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_bertfam import callbacks
from keras_bertfam.optimizers import pretraining_optimizer
from tests import tiny_masked_lm as tiny

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
