"""ELECTRA and distillation in a process of their own; prints results as JSON.

Usage: python -m tests.electra_worker mirrored
       python -m tests.electra_worker killed BACKUP_DIR EPOCH BATCH
"""

import contextlib
import json
import os
import signal
import sys

import keras
import numpy as np

from keras_bertfam import callbacks
from tests import tiny_distiller, tiny_electra
from tests import tiny_masked_lm as tiny
from tests.resume_worker import At, Recorder


def electra(**kwargs):
    model = tiny_electra.make_model(**kwargs)
    recorder = tiny.StepLosses()
    model.fit(tiny_electra.stream(model), epochs=2, callbacks=[recorder], verbose=0)
    return model, recorder.losses


def distilled():
    model = tiny_distiller.make_model()
    recorder = tiny.StepLosses()
    model.fit(tiny.stream(model), epochs=2, callbacks=[recorder], verbose=0)
    return model, recorder.losses


def summary(model, losses):
    weights = [keras.ops.convert_to_numpy(v).ravel() for v in model.weights]
    return {"losses": losses, "weights": np.concatenate(weights).tolist()}


def mirrored():
    """Both trainings on one device and on two, with the same samples."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, configuration)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    results = {}
    for name, train in (
        ("electra", lambda: electra(temperature=1e-6)),
        ("distilled", distilled),
    ):
        results[name] = []
        for scope in (contextlib.nullcontext(), strategy.scope()):
            with scope:
                results[name].append(summary(*train()))
    with strategy.scope():
        model = tiny_electra.make_model()
        x = tiny_electra.batch()
        sample = tf.function(lambda: model(x)["token_ids"])
        local = strategy.experimental_local_results(strategy.run(sample))
    results["samples"] = [np.asarray(ids).tolist() for ids in local]
    return results


def resumable(directory, extra=()):
    """Three epochs that can be killed and resumed; the running losses by step."""
    model = tiny_electra.make_model()
    recorder = Recorder()
    backup = callbacks.BackupAndResume(directory, save_freq=3)
    data = tiny_electra.stream(model)
    model.fit(data, epochs=3, callbacks=[backup, *extra, recorder], verbose=0)
    return recorder


if __name__ == "__main__":
    if sys.argv[1] == "mirrored":
        print(json.dumps(mirrored()))
    else:
        at = int(sys.argv[3]), int(sys.argv[4])
        kill = At(*at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        resumable(sys.argv[2], [kill])
