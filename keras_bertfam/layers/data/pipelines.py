"""How the library's datasets run: in parallel, in order, without autotuning."""

import tensorflow as tf

from keras_bertfam.types import TFDataset

# What Keras takes for `batch_size=None`.
DEFAULT_BATCH_SIZE = 32

PARALLEL = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True}


def ready_to_iterate(dataset: TFDataset) -> TFDataset:
    """Gives a dataset the options of a `fit` and prepares some batches ahead.

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
