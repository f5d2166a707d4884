"""Several devices, and processes, that train a model together.

Keras is imported when a run begins, as its settings are checked without.
"""

import contextlib
import os
from collections.abc import Iterator

# What can share a batch, and the backend whose it is.
BACKENDS = {"multi_worker": "tensorflow", "jax": "jax", "jax_sharded": "jax"}
_JAX_VARIABLES = [
    f"KERAS_DISTRIBUTION_{name}"
    for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
]


@contextlib.contextmanager
def cluster(kind: str, model_parallel: int = 1) -> Iterator[int]:
    """Open the scope in which a model is made and trained by all devices there are.

    Call it before anything is computed. With `"multi_worker"` it is that of
    `tf.distribute.MultiWorkerMirroredStrategy`, whose processes the environment's
    `TF_CONFIG` names. With `"jax"` it is that of `keras.distribution.DataParallel` or,
    for `model_parallel`, of `keras_bertfam.distribution.ModelParallel`, and with
    `"jax_sharded"` that of `FullyShardedData`: over the devices of all processes that
    the variables of `keras.distribution.initialize` name, or of this one, if none is
    set.

    In all each process is given whole batches, and takes its rows of them.

    Args:
        kind: `"multi_worker"`, `"jax"` or `"jax_sharded"`.
        model_parallel: int. Over how many devices of `"jax"` the weights are split.

    Yields:
        Over how many devices, or groups of them, the rows of a batch are split.

    Raises:
        ValueError: for another backend than that of `kind`, for `"multi_worker"`
            without `TF_CONFIG`, and if `model_parallel` doesn't divide the devices.
    """
    import keras

    from keras_bertfam.callbacks.backup import end_at_once

    backend = keras.backend.backend()
    if backend != BACKENDS[kind]:
        raise ValueError(
            f"KERAS_BACKEND must be {BACKENDS[kind]!r} for distribution={kind!r}. "
            f"Received: {backend!r}."
        )
    if kind == "multi_worker":
        strategy = _multi_worker()
        end_at_once()  # by SIGTERM, which TensorFlow ignores from here on
        with strategy.scope():
            yield strategy.num_replicas_in_sync
    else:
        devices = _over_jax_devices(kind, model_parallel)
        end_at_once()
        with devices.scope():
            yield devices.num_model_replicas


def _multi_worker():
    import tensorflow as tf

    if not os.environ.get("TF_CONFIG"):
        raise ValueError(
            "`TF_CONFIG` must be set in each process, to the addresses of all and to "
            "which of them this is. Received: nothing."
        )
    return tf.distribute.MultiWorkerMirroredStrategy()


def _over_jax_devices(kind, model_parallel):
    import jax
    import keras

    from keras_bertfam.distribution import FullyShardedData, ModelParallel

    if any(name in os.environ for name in _JAX_VARIABLES):
        if not jax.distributed.is_initialized():
            keras.distribution.initialize()
    devices = keras.distribution.list_devices()
    if model_parallel < 1 or len(devices) % model_parallel:
        raise ValueError(
            f"`model_parallel` must divide the {len(devices)} devices there are. "
            f"Received: {model_parallel}."
        )
    if kind == "jax_sharded":
        return FullyShardedData(devices)
    if model_parallel == 1:
        return keras.distribution.DataParallel(devices=devices)
    mesh = keras.distribution.DeviceMesh(
        (len(devices) // model_parallel, model_parallel), ["batch", "model"], devices
    )
    return ModelParallel(mesh)
