"""A run that gets a signal in mid-epoch.

Usage: python -m tests.resume_worker BACKUP_DIR EPOCH BATCH [SIGNAL]
"""

import os
import signal
import sys

import keras

from keras_bertfam import callbacks
from tests import tiny_masked_lm as tiny


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


def train(make_data=tiny.stream, extra=(), steps_per_execution=1, **fit):
    model = tiny.make_model(0.3, steps_per_execution=steps_per_execution)
    recorder = Recorder()
    model.fit(
        make_data(model), epochs=3, callbacks=[*extra, recorder], verbose=0, **fit
    )
    return recorder


if __name__ == "__main__":
    backup = callbacks.BackupAndResume(sys.argv[1], save_freq=3)
    at = int(sys.argv[2]), int(sys.argv[3])
    number = signal.Signals[sys.argv[4]] if sys.argv[4:] else signal.SIGKILL
    end = At(*at, lambda: os.kill(os.getpid(), number))
    train(extra=[backup, end])
