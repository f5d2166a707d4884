"""How the library's datasets run: in parallel, in order, without autotuning."""

import numbers
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import script_ops

from keras_bertfam.autograph import as_written
from keras_bertfam.types import TFDataset

# Of datasets that don't tell and are in use: the batches of a pass.
_counts: Any = weakref.WeakKeyDictionary()
PARALLEL = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True}


def checked_batch_size(batch_size: int | None) -> int:
    """Check a batch size; `None` is what it is to Keras, 32.

    Raises:
        ValueError: if it isn't a positive int.
    """
    if batch_size is not None and not isinstance(batch_size, numbers.Integral):
        raise ValueError(f"`batch_size` must be an int. Received: {batch_size!r}.")
    check_at_least(1, batch_size=batch_size)
    return 32 if batch_size is None else batch_size


def check_at_least(least: int, **values: int | None) -> None:
    """Raise a `ValueError` for an argument that is less, and not `None`."""
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, numbers.Real):
            raise ValueError(f"`{name}` must be a number. Received: {value!r}.")
        if not value >= least:  # nor NaN
            raise ValueError(f"`{name}` must be at least {least}. Received: {value}.")


def remember_count(dataset: TFDataset, batches: int) -> TFDataset:
    """Remember how many batches a pass of a dataset has, for `remembered_count`."""
    _counts[dataset] = batches
    return dataset


def remembered_count(dataset: TFDataset) -> int | None:
    """Look up how many batches a pass has, if that was remembered."""
    count: int | None = _counts.get(dataset)
    return count


def ready_to_iterate(dataset: TFDataset) -> TFDataset:
    """Give a dataset the options of a `fit`, and prepare some batches ahead.

    Without autotuning, `AUTOTUNE` stands for a thread per core, 16 at the most.
    With it, an iterator that ends waits for a thread that sleeps for up to a
    minute: `fit` did so between epochs. Nothing then bounds `prefetch(AUTOTUNE)`
    by memory, so the number of batches is fixed.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    # By file, each worker would pack, sort, number and mask other batches.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return dataset.prefetch(8).with_options(options)


class FirstBatch:
    """The batch that an endless dataset begins with; those before are skipped.

    Keras's loop under PyTorch gives the step what it has read, so that nothing but the
    data can leave batches out of an epoch that goes on.

    Example:

    ```python
    first = keras_bertfam.layers.data.pipelines.FirstBatch()
    data = first.of(tf.data.Dataset.range(3).repeat())
    first.set(4)
    next(iter(data))  # 1
    ```
    """

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("CPU:0"):
            self._table = tf.lookup.experimental.MutableHashTable(
                tf.string, tf.int64, default_value=0
            )

    def set(self, batch: int) -> None:
        """Set which batch the next iteration begins with, counted over its passes."""
        with tf.device("CPU:0"):
            self._table.insert(tf.constant("first"), tf.constant(batch, tf.int64))

    @as_written
    def of(self, dataset: TFDataset) -> TFDataset:
        """Make each iteration of a dataset begin with that batch."""

        def wanted(number, _):
            return number >= self._table.lookup(tf.constant("first"))

        return dataset.enumerate().filter(wanted).map(lambda _, batch: batch)


def register_by_name(function: Callable[..., Any]) -> str:
    """Make a function of a module known to graphs by its name.

    What `tf.numpy_function` calls is known to its own process only, not to a worker of
    `tf.data` service.

    Args:
        function: of NumPy arrays.

    Returns:
        The name, the `token` of `tf.raw_ops.PyFunc`.
    """
    name = f"{function.__module__}.{function.__name__}"
    # TensorFlow numbers the functions that it is given: no public call takes a name.
    script_ops._py_funcs._funcs[name] = function
    return name


def call_by_name(name: str, inputs: list[Any], types: list[tf.DType]) -> Any:
    """Call a function of `register_by_name` for what it does besides its outputs.

    Args:
        name: of the function.
        inputs: list of tensors.
        types: list of `tf.DType`, of the outputs.

    Returns:
        A list of tensors. Works in a graph.
    """
    return tf.raw_ops.PyFunc(input=inputs, token=name, Tout=types)
