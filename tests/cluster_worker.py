"""Pre-training runs of files, as the command has them, with a backup every two steps.

Usage: python -m tests.cluster_worker STEPS RUN.yaml...

The process kills itself with SIGKILL after so many steps; never if that is 0.
"""

import sys

import keras

from keras_bertfam.cli import pretraining
from keras_bertfam.cli.runs import PretrainingRun
from tests.distribution_worker import kill


def main(steps, *paths):
    pretraining.SAVE_FREQ = 2
    make_callbacks = pretraining._callbacks
    die = keras.callbacks.LambdaCallback(on_train_batch_end=kill(int(steps)))
    pretraining._callbacks = lambda *args: [*make_callbacks(*args), die]
    for path in paths:
        pretraining.pretrain(PretrainingRun.read(path, resume=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
