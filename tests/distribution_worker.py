"""One worker of a `MultiWorkerMirroredStrategy`, or the single-process run.

Usage: python -m tests.distribution_worker OUTPUT.npz, with `TF_CONFIG` set in the
environment of a worker.
"""

import contextlib
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.optimizers import pretraining_optimizer
from tests import toy_masked_lm as toy

BATCH = 8
STEPS = 6


def main(output):
    workers = "TF_CONFIG" in os.environ
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if workers else None
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    dataset = tf.data.Dataset.from_tensor_slices(toy.examples(STEPS * BATCH))
    dataset = dataset.batch(BATCH, drop_remainder=True).with_options(options)
    with strategy.scope() if workers else contextlib.nullcontext():
        model = toy.ToyMaskedLM()
        model.build(None)
        model.compile(
            optimizer=pretraining_optimizer(
                1e-2, STEPS * 2, warmup_steps=2, global_clipnorm=0.05
            ),
            loss=toy.ToyLoss(),
            weighted_metrics=["sparse_categorical_accuracy"],
        )
    history = model.fit(dataset, epochs=2, validation_data=dataset, verbose=2)
    predictions = model.predict(dataset, verbose=0)
    np.savez(
        output,
        *[keras.ops.convert_to_numpy(v) for v in model.weights],
        predictions=np.reshape(predictions, (-1, toy.SLOTS, toy.VOCABULARY)),
        **{name: np.array(values) for name, values in history.history.items()},
    )


if __name__ == "__main__":
    main(sys.argv[1])
