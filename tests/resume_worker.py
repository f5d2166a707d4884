"""A run that kills itself with SIGKILL in mid-epoch.

Usage: python -m tests.resume_worker BACKUP_DIR EPOCH BATCH
"""

import os
import signal
import sys

import keras

from keras_bertfam import callbacks
from keras_bertfam.layers.preprocessing.seeding import StreamPosition
from keras_bertfam.optimizers import pretraining_optimizer
from tests import toy_masked_lm as toy


class At(keras.callbacks.Callback):
    """Does something at the end of one batch."""

    def __init__(self, epoch, batch, action):
        super().__init__()
        self.at, self.action = (epoch, batch), action

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            self.action()


class Recorder(keras.callbacks.Callback):
    """Records the running mean of the loss, which restored metrics continue."""

    def __init__(self):
        super().__init__()
        self.losses, self.epochs = {}, {}

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.losses[self.epoch, batch] = float(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        self.epochs[epoch] = {name: float(value) for name, value in logs.items()}


def train(data, extra=(), steps_per_execution=1, **fit):
    model = toy.ToyMaskedLM(dropout=0.3)
    model.build(None)
    model.compile(
        optimizer=pretraining_optimizer(1e-2, total_steps=30, warmup_steps=3),
        loss=toy.ToyLoss(),
        weighted_metrics=["sparse_categorical_accuracy"],
        steps_per_execution=steps_per_execution,
    )
    recorder = Recorder()
    listed = callbacks.with_stream_position(
        [*extra, recorder], data, fit.get("steps_per_epoch")
    )
    model.fit(data, epochs=3, callbacks=listed, verbose=0, **fit)
    return recorder


if __name__ == "__main__":
    position = StreamPosition()
    backup = callbacks.BackupAndResume(sys.argv[1], save_freq=3, position=position)
    end = At(
        int(sys.argv[2]),
        int(sys.argv[3]),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
    )
    train(toy.stream(position), [backup, end])
