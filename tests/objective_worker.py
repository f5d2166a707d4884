"""Training with each objective, also in a process of its own.

Usage: python -m tests.objective_worker mirrored OBJECTIVE...
       python -m tests.objective_worker killed OBJECTIVE BACKUP_DIR

The first compares two logical devices with one, and a run on two with one that goes on
from its backup, and prints JSON: what each objective gave, or how it failed. The second
kills itself with SIGKILL in mid-epoch.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback

import keras
import numpy as np

from keras_bertfam import callbacks
from tests import (
    tiny_bidirectional_lm,
    tiny_distiller,
    tiny_dual_encoder,
    tiny_electra,
    tiny_masked_lm,
    tiny_passage_tasks,
    tiny_permutation_lm,
    tiny_recurrent_lm,
    tiny_sentence_pair,
    tiny_span_boundary,
    tiny_sparse_encoder,
)
from tests.resume_worker import At, Recorder

OBJECTIVES = {
    "autoencoder": tiny_masked_lm.of("DenoisingAutoencoder"),
    "bidirectional_lm": tiny_bidirectional_lm,
    "diffusion": tiny_masked_lm.of("MaskedDiffusionLM"),
    "distillation": tiny_distiller,
    "dual_encoder": tiny_dual_encoder,
    "knowledge_augmented": tiny_passage_tasks.realm,
    "masked_and_permuted": tiny_masked_lm.of("MaskedPermutedLM"),
    "masked_autoencoder": tiny_masked_lm.of("MaskedAutoencoder"),
    "open_questions": tiny_passage_tasks.open_questions,
    "permutation_lm": tiny_permutation_lm,
    "recurrent_lm": tiny_recurrent_lm,
    "replaced_tokens": tiny_electra,
    "retrieval_augmented": tiny_passage_tasks.rag,
    "sentence_pair": tiny_sentence_pair,
    "span_boundary": tiny_span_boundary,
    "sparse_encoder": tiny_sparse_encoder,
}
# The epoch and batch after which a run is killed.
KILLED_AT = (1, 4)


def train(objective):
    """Per-step losses of two passes, the evaluation and the weights."""
    tiny = OBJECTIVES[objective]
    # Replicas draw samples of their own: there must be nothing to draw.
    sharp = {"temperature": 1e-6} if tiny is tiny_electra else {}
    model, recorder = tiny.make_model(**sharp), tiny_masked_lm.StepLosses()
    # What is added to all passages cancels in their softmax, so its gradient is
    # rounding alone. By Adam's own epsilon that would be a step as long as any.
    model.optimizer.epsilon = 1e-3
    model.fit(tiny.stream(model), epochs=2, callbacks=[recorder], verbose=0)
    held_out = tiny.stream(model, training=False)
    weights = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    return {
        "losses": recorder.losses,
        "evaluation": model.evaluate(held_out, verbose=0, return_dict=True),
        "weights": np.concatenate([w.ravel() for w in weights]).tolist(),
    }


def mirrored(objectives):
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, configuration)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    results = {}
    for objective in objectives:
        try:
            results[objective] = compared(objective, strategy)
        except Exception:
            results[objective] = {"failure": traceback.format_exc()}
    return results


def compared(objective, strategy):
    import tensorflow as tf

    results = {"runs": []}
    for scope in (contextlib.nullcontext(), strategy.scope()):
        with scope:
            results["runs"].append(train(objective))
    if objective == "replaced_tokens":
        with strategy.scope():
            model = tiny_electra.make_model()
            x = tiny_electra.batch()
            sample = tf.function(lambda: model(x)["token_ids"])
            local = strategy.experimental_local_results(strategy.run(sample))
        results["samples"] = [np.asarray(ids).tolist() for ids in local]
    if objective == "permutation_lm":
        with strategy.scope():
            results["interrupted"] = interrupted(objective)
    return results


def interrupted(objective):
    """The losses after `KILLED_AT` of a whole run and of one from its backup then."""
    with tempfile.TemporaryDirectory() as folder:
        backup, copy = (os.path.join(folder, name) for name in ("backup", "copy"))
        keep = At(*KILLED_AT, lambda: shutil.copytree(backup, copy))
        whole = resumable(objective, backup, keep).losses
        resumed = resumable(objective, copy).losses
    after = sorted(step for step in whole if step > KILLED_AT)
    return [[losses[step] for step in after] for losses in (whole, resumed)]


def resumable(objective, directory, *extra):
    """The losses of three epochs that can be killed and resumed."""
    tiny = OBJECTIVES[objective]
    model, recorder = tiny.make_model(dropout=0.3), Recorder()
    backup = callbacks.BackupAndResume(directory, save_freq=3)
    following = [backup, recorder, *extra]
    model.fit(tiny.stream(model), epochs=3, callbacks=following, verbose=0)
    return recorder


if __name__ == "__main__":
    if sys.argv[1] == "mirrored":
        print(json.dumps(mirrored(sys.argv[2:])))
    else:
        kill = At(*KILLED_AT, lambda: os.kill(os.getpid(), signal.SIGKILL))
        resumable(sys.argv[2], sys.argv[3], kill)
