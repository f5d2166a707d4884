"""Trains on one JAX device and on several; prints the results as JSON.

Usage: python -m tests.sharding_worker fully|model NAME...
"""

import json
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import distribution, models, tasks
from tests.tiny_masked_lm import StepLosses

SIZES = {
    "vocabulary_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "dropout": 0.0,
}
ROWS, LENGTH, SLOTS = 8, 12, 3


def ids(*shape, low=0):
    return np.random.default_rng(0).integers(low, 32, shape).astype("int32")


def masked():
    positions = np.sort(ids(ROWS, SLOTS) % LENGTH)
    x = {"token_ids": ids(ROWS, LENGTH), "mask_positions": positions}
    return x, ids(ROWS, SLOTS), np.ones((ROWS, SLOTS), "float32")


def next_tokens():
    y = ids(ROWS, LENGTH)
    return {"token_ids": np.roll(y, 1, 1)}, y, np.ones((ROWS, LENGTH), "float32")


def texts():
    x, y, weights = next_tokens()
    x = {"encoder_token_ids": y[:, ::-1].copy(), "decoder_token_ids": x["token_ids"]}
    return x, y, weights


def permuted():
    x, y, weights = masked()
    ranks = np.argsort(np.random.default_rng(0).random((ROWS, LENGTH)))
    x |= {"perm_ranks": ranks.astype("int32"), "continues": np.ones(ROWS, bool)}
    return x, y, weights


MODELS = {
    # Neither one of its biases nor its vocabulary can be divided.
    "bert": (tasks.MaskedLM, models.BertBackbone, {"vocabulary_size": 33}, masked),
    "albert": (tasks.MaskedLM, models.AlbertBackbone, {"embedding_dim": 8}, masked),
    "gpt2": (tasks.CausalLM, models.GPT2Backbone, {}, next_tokens),
    "t5": (
        tasks.TextToText,
        models.T5Backbone,
        {"head_dim": 8, "gated": True, "tie_embeddings": False},
        texts,
    ),
    "xlnet": (tasks.PermutationLM, models.XLNetBackbone, {}, permuted),
}
# Each group of devices has that of its rows.
MEMORY = {"xlnet": {"memory_length": 6, "reuse_length": 6, "batch_size": ROWS}}


def train(name, folder=None):
    """The losses of four steps and an evaluation, what is split, and one's bytes."""
    task, backbone, arguments, make_batch = MODELS[name]
    keras.utils.set_random_seed(1)
    model = task(backbone(**{**SIZES, **arguments}), **MEMORY.get(name, {}))
    model.compile(keras.optimizers.Adam(1e-2, epsilon=1e-5))
    batch = tf.data.Dataset.from_tensors(make_batch())
    recorder = StepLosses()
    model.fit(batch.repeat(4), callbacks=[recorder], verbose=0)
    last = model.evaluate(batch, verbose=0, return_dict=True)["loss"]
    variables = [*model.variables, *model.optimizer.variables]
    split = [v.path for v in variables if not v.value.is_fully_replicated]
    parts = [v.value.addressable_shards[0].data.nbytes for v in variables]
    results = {"losses": [*recorder.losses, last], "split": split, "bytes": sum(parts)}
    if folder is None:
        return results
    model.save_to_preset(folder)
    again = task.from_preset(folder)
    x, *_ = make_batch()
    differences = model.predict_on_batch(x) - again.predict_on_batch(x)
    return {**results, "reloaded": float(np.abs(differences).max())}


def mesh(*shape):
    return keras.distribution.DeviceMesh(shape, ["batch", "model"])


def refusal():
    """What is said of a mesh that doesn't fit."""
    arguments = {**SIZES, "intermediate_dim": 26}
    try:
        with distribution.ModelParallel(mesh(1, 4)).scope():
            models.BertBackbone(**arguments)
    except ValueError as error:
        return str(error)
    return None


def fully_sharded(name):
    """The results of one device, and of two and four that share weights and batches."""
    yield train(name)
    for count in (2, 4):
        devices = keras.distribution.list_devices()[:count]
        sharded = distribution.FullyShardedData(devices, least_size=64)
        with tempfile.TemporaryDirectory() as folder:
            with sharded.scope():
                yield train(name, folder if name == "bert" else None)


def main(kind, *names):
    if kind == "fully":
        print(json.dumps({name: [*fully_sharded(name)] for name in names}))
        return
    results = {}
    for name in names:
        one = train(name)
        with distribution.ModelParallel(mesh(2, 2)).scope():
            results[name] = [one, train(name)]
    print(json.dumps({**results, "refusal": refusal()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
