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

from tests import tiny_masked_lm as tiny


def main(output):
    workers = "TF_CONFIG" in os.environ
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if workers else None
    with strategy.scope() if workers else contextlib.nullcontext():
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


if __name__ == "__main__":
    main(sys.argv[1])
