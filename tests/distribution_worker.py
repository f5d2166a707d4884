"""One worker of a `MultiWorkerMirroredStrategy`, or the single-process run.

Usage: python -m tests.distribution_worker OUTPUT.npz
       python -m tests.distribution_worker OUTPUT.npz BACKUP_DIR inside|outside STEPS
           [PREPARED_CORPUS]

With `TF_CONFIG` set in the environment of a worker. With a backup, `fit()` is called
inside or outside of the strategy's scope, and the process kills itself with SIGKILL
after so many steps; never if that is 0.
"""

import contextlib
import itertools
import os
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import callbacks, layers
from tests import tiny_masked_lm as tiny
from tests.resume_worker import Recorder


def main(output):
    strategy = workers_strategy()
    with scope(strategy):
        model = tiny.make_model()
    held_out = tiny.stream(model, training=False)
    history = model.fit(
        tiny.stream(model), epochs=2, validation_data=held_out, verbose=2
    )
    np.savez(
        output,
        *[keras.ops.convert_to_numpy(v) for v in model.weights],
        **{name: np.array(values) for name, values in history.history.items()},
    )


def workers_strategy():
    if "TF_CONFIG" not in os.environ:
        return None
    return tf.distribute.MultiWorkerMirroredStrategy()


def scope(strategy):
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def resumable(output, backup, where, steps, corpus=None):
    """Writes the running mean of the loss at each batch of the epochs that it saw."""
    strategy, recorder = workers_strategy(), Recorder()
    with scope(strategy):
        model = tiny.make_model()
    extra = [callbacks.BackupAndResume(backup, save_freq=2), recorder]
    extra.append(keras.callbacks.LambdaCallback(on_train_batch_end=kill(int(steps))))
    with scope(strategy if where == "inside" else None):
        if corpus is None:
            data = tiny.stream(model)
        else:
            data = model.preprocessor.dataset(layers.read_tokens(corpus), 8)
        model.fit(data, epochs=2, callbacks=extra, verbose=2)
    np.savez(output, losses=np.array([*recorder.losses.values()]))


def kill(steps, number=signal.SIGKILL):
    """A function that sends the process a signal at its so-manyth call; never for 0."""
    done = itertools.count(1)

    def after_batch(batch, logs):
        if next(done) == steps:
            os.kill(os.getpid(), number)

    return after_batch


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 2 else resumable(*sys.argv[1:])
