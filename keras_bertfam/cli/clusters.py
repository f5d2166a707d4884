"""Let several devices, or processes, train a model together.

Keras is imported only when a run begins: settings are checked without it.
"""

import contextlib
import os
from collections.abc import Iterator

# The kinds of distribution, and the backend that each needs.
BACKENDS = {"multi_worker": "tensorflow", "jax": "jax", "jax_sharded": "jax"}
_JAX_VARIABLES = [
    f"KERAS_DISTRIBUTION_{name}"
    for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
]


@contextlib.contextmanager
def cluster(kind: str, model_parallel: int = 1) -> Iterator[int]:
    """Open the scope in which all devices make and train a model together.

    Call it before anything is computed. Each `kind` opens the scope of a distribution:
    `"multi_worker"` that of `tf.distribute.MultiWorkerMirroredStrategy`, `"jax"` that
    of `keras.distribution.DataParallel` (with `model_parallel` above 1, of
    `keras_bertfam.distribution.ModelParallel`), and `"jax_sharded"` that of
    `keras_bertfam.distribution.FullyShardedData`.

    The environment names the processes: for TensorFlow in `TF_CONFIG`, for JAX in the
    variables of `keras.distribution.initialize`. If JAX's variables aren't set, the
    devices are those of this process.

    With every kind, each process is given whole batches, and takes its rows of them.

    Args:
        kind: `"multi_worker"`, `"jax"` or `"jax_sharded"`.
        model_parallel: int. With `"jax"`, over how many devices the weights are split.

    Yields:
        The number of devices, or of groups of devices, that share the rows of a batch.

    Raises:
        ValueError: if `kind` needs another backend, for `"multi_worker"` without
            `TF_CONFIG`, and if `model_parallel` doesn't divide the number of devices.
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
            "`TF_CONFIG` must be set in each process, to the addresses of all "
            "processes and to the place of this one among them. Received: nothing."
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
