"""Batches from a later one on, for a loop that reads before it asks."""

import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.types import TFDataset


class FirstBatch:
    """The batch that an endless dataset begins with; those before are skipped.

    Keras's loop under PyTorch gives the step what it has read, so that nothing but the
    data can leave batches out of an epoch that goes on.

    Example:

    ```python
    first = keras_bertfam.layers.data.first_batch.FirstBatch()
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
