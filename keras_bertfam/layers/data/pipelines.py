"""How the library's datasets run: in parallel, in order, without autotuning."""

import numbers
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import script_ops

from keras_bertfam.autograph import as_written
from keras_bertfam.types import TFDataset

# The batches of a pass, for datasets in use that don't know their cardinality.
_counts: Any = weakref.WeakKeyDictionary()
_made: Any = weakref.WeakSet()  # what `ready_to_iterate` has returned
# TensorFlow's classes of datasets with a batch for each one that they read.
_ONE_FOR_ONE = {
    "MapDataset",
    "ParallelMapDataset",
    "PrefetchDataset",
    "OptionsDataset",
    "AssertCardinalityDataset",
}
PARALLEL = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True}


def checked_batch_size(batch_size: int | None) -> int:
    """Check a batch size; `None` stands for Keras's default, 32.

    Raises:
        ValueError: if it isn't a positive int.
    """
    if batch_size is not None and not isinstance(batch_size, numbers.Integral):
        raise ValueError(f"`batch_size` must be an int. Received: {batch_size!r}.")
    check_at_least(1, batch_size=batch_size)
    return 32 if batch_size is None else batch_size


def check_at_least(least: int, **values: int | None) -> None:
    """Raise a `ValueError` for an argument below `least`; `None` is allowed."""
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, numbers.Real):
            raise ValueError(f"`{name}` must be a number. Received: {value!r}.")
        if not value >= least:  # NaN is refused, too
            raise ValueError(f"`{name}` must be at least {least}. Received: {value}.")


def remember_count(dataset: TFDataset, batches: int) -> TFDataset:
    """Remember how many batches a pass of a dataset has, for `remembered_count`."""
    _counts[dataset] = batches
    return dataset


def remembered_count(dataset: TFDataset) -> int | None:
    """Look up how many batches a pass has, or `None`."""
    count: int | None = _counts.get(dataset)
    return count


def ready_to_iterate(dataset: TFDataset) -> TFDataset:
    """Set the options for `fit`, and prepare some batches ahead.

    Autotuning is off: with it, an iterator that ends waits for a thread that sleeps for
    up to a minute, so `fit` waited between epochs. Without it, `AUTOTUNE` means a
    thread per core, at most 16, and memory doesn't limit `prefetch(AUTOTUNE)`. So the
    number of prefetched batches is fixed here.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    # With sharding by file, each worker would make its own, different batches.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    made = dataset.prefetch(8).with_options(options)
    _made.add(made)
    return made


def keeps_batches(dataset: Any) -> bool:
    """Tell whether a dataset has the batches of one that this library has made.

    Then a pass can begin in the middle, by the data's `StreamPosition`. With `take`,
    `skip` or `shuffle` behind it, other batches would follow.

    Args:
        dataset: `tf.data.Dataset`; others are taken to be right.

    Example:

    ```python
    from keras_bertfam.layers.data import pipelines
    data = pipelines.ready_to_iterate(tf.data.Dataset.range(9))
    pipelines.keeps_batches(data.map(lambda x: x + 1).repeat())  # True
    pipelines.keeps_batches(data.take(5))  # False
    ```
    """
    for each in _behind_made(dataset):
        name = _name_of(each)
        endless = name == "RepeatDataset" and int(each.cardinality()) == -1
        if not (endless or name in _ONE_FOR_ONE):
            return False
    return True


def is_cached(dataset: Any) -> bool:
    """Tell whether each pass of a dataset repeats the first one, by `cache()`.

    Args:
        dataset: see `keeps_batches`.
    """
    return any(_name_of(each) == "CacheDataset" for each in _behind_made(dataset))


def _behind_made(dataset):
    """List what a user has put behind a dataset of this library, the last first."""
    if not isinstance(dataset, tf.data.Dataset) or dataset in _made:
        return []
    inputs = dataset._inputs()
    return [dataset, *(each for part in inputs for each in _behind_made(part))]


def _name_of(dataset):
    """Give the name of TensorFlow's class, which begins with `_` in some modules."""
    return type(dataset).__name__.lstrip("_")


class FirstBatch:
    """The batch with which an endless dataset begins; batches before it are skipped.

    It resumes an epoch in the middle. Keras's loop with PyTorch hands every batch it
    reads to the step, so only the data itself can leave batches out.

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
    """Register a function of a module, so that graphs of other processes can call it.

    A function of `tf.numpy_function` exists in its own process only; a worker of
    `tf.data` service can't call it.

    Args:
        function: function of NumPy arrays.

    Returns:
        The name, the `token` of `tf.raw_ops.PyFunc`.
    """
    name = f"{function.__module__}.{function.__name__}"
    # TensorFlow numbers registered functions; no public call takes a name.
    script_ops._py_funcs._funcs[name] = function
    return name


def call_by_name(name: str, inputs: list[Any], types: list[tf.DType]) -> Any:
    """Call a function of `register_by_name`, also if nothing reads its outputs.

    Args:
        name: name of the function.
        inputs: list of tensors.
        types: list of `tf.DType`, the dtypes of the outputs.

    Returns:
        A list of tensors. Works in a graph.
    """
    return tf.raw_ops.PyFunc(input=inputs, token=name, Tout=types)
