"""How the library's datasets run: in parallel, in order, without autotuning."""

import numbers
import weakref
from typing import Any

import tensorflow as tf

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
