"""REALM with an index that follows, in a run that may kill itself while that is made.

Usage: python -m tests.refresh_worker FOLDER

Prints the number of the process that makes the index, and ends by SIGKILL.
"""

import os
import pathlib
import signal
import sys

import keras

from keras_bertfam.callbacks import BackupAndResume
from keras_bertfam.tasks import RefreshIndex
from tests import tiny_passage_tasks

STEPS = 9  # of an epoch
KILLED_AFTER = 1  # this epoch


def train(folder, at_epoch_end=lambda refresh, epoch: None):
    """Three epochs; the index is begun with the last step of each, and waited for."""
    folder = pathlib.Path(folder)
    task = tiny_passage_tasks.make_realm()
    search = task.preprocessor.search
    refresh = RefreshIndex(search, folder / "indices", every=STEPS)

    def wait(epoch, logs):
        at_epoch_end(refresh, epoch)
        refresh.wait()

    waiting = keras.callbacks.LambdaCallback(on_epoch_end=wait)
    backup = BackupAndResume(folder / "backup", save_freq=4)
    data = tiny_passage_tasks.realm_stream(task)
    callbacks = [refresh, waiting, backup]
    history = task.fit(data, epochs=3, callbacks=callbacks, verbose=0).history
    return task, history


def kill(refresh, epoch):
    if epoch == KILLED_AFTER:
        assert refresh._process.poll() is None
        print(refresh._process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    train(sys.argv[1], kill)
