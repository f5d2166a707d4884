"""Pre-training runs of files, as the command has them, with a backup every two steps.

Usage: python -m tests.cluster_worker SIGNAL STEPS RUN.yaml...

The process sends itself the signal after so many steps; never if that is 0.
"""

import signal
import sys

import keras

from keras_bertfam.cli import pretraining
from keras_bertfam.cli.runs import PretrainingRun
from tests.distribution_worker import kill


def main(name, steps, *paths):
    pretraining.SAVE_FREQ = 2
    make_callbacks = pretraining._callbacks
    end = kill(int(steps), signal.Signals[name])
    die = keras.callbacks.LambdaCallback(on_train_batch_end=end)
    pretraining._callbacks = lambda *args: [*make_callbacks(*args), die]
    for path in paths:
        pretraining.pretrain(PretrainingRun.read(path, resume=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
