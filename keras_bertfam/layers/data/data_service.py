"""Prepared corpora read by the workers of `tf.data` service, in other processes."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.corpora.batch_source import BatchSource
from keras_bertfam.layers.data import mask_share  # noqa: F401, which graphs call
from keras_bertfam.layers.data.named_functions import register_by_name
from keras_bertfam.types import TFTensor


@checked
def data_worker(dispatcher_address: str, port: int = 0) -> Any:
    """Start a worker of `tf.data` service that can read prepared corpora.

    A dispatcher, any number of workers, and a trainer, each a process, on any
    machines that see the corpus by the same path:

    ```text
    # The dispatcher:
    service = tf.data.experimental.service
    service.DispatchServer(service.DispatcherConfig(port=5050)).join()
    # A worker:
    keras_bertfam.layers.data_worker("localhost:5050").join()
    # The trainer, for each pass:
    corpus = keras_bertfam.layers.read_tokens("prepared", epoch=epoch)
    data = preprocessor.dataset(corpus, batch_size=64).apply(
        service.distribute(service.ShardingPolicy.DYNAMIC, "grpc://localhost:5050"))
    ```

    Each batch is what it is without the service, a function of seed, pass and number.
    With `ShardingPolicy.DYNAMIC` a pass has each once, in the order in which they are
    ready; those that a killed worker was at are lost to the pass.

    Args:
        dispatcher_address: str, `"host:port"`.
        port: int. Where to listen; 0 for any that is free. Defaults to `0`.

    Returns:
        A `tf.data.experimental.service.WorkerServer`, which runs. `join()` waits for
        its end.
    """
    service = tf.data.experimental.service
    config = service.WorkerConfig(dispatcher_address=dispatcher_address, port=port)
    return service.WorkerServer(config)


def read_by_name(
    source: str,
    names: list[str],
    types: list[tf.DType],
    epoch: TFTensor,
    batch: TFTensor,
    part: int,
) -> list[TFTensor]:
    """Read a slice of a batch by a function that each process has by its name.

    Args:
        source: what `BatchSource.to_json` wrote.
        names: list of str. What to give of what is read.
        types: list of `tf.DType`, of these.
        epoch: int64 scalar.
        batch: int64 scalar.
        part: int.

    Returns:
        A list of tensors. Works in a graph.
    """
    inputs = [
        tf.constant(source),
        tf.constant(",".join(names)),
        epoch,
        batch,
        tf.constant(part, tf.int64),
    ]
    return tf.raw_ops.PyFuncStateless(input=inputs, token=_READ_IN_PROCESS, Tout=types)


def _read_in_process(source, names, epoch, batch, part):
    found = _source_from_json(source).read(int(epoch), int(batch), int(part))
    return [np.asarray(found[name]) for name in names.decode().split(",")]


_READ_IN_PROCESS = register_by_name(_read_in_process)
_source_from_json = functools.lru_cache(maxsize=8)(BatchSource.from_json)
