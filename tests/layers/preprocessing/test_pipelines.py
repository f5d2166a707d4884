import tensorflow as tf

from keras_bertfam.layers.preprocessing.pipelines import PARALLEL, ready_to_iterate


def test_pass_does_not_wait_for_autotuning_to_wake_up():
    dataset = ready_to_iterate(tf.data.Dataset.range(3).map(abs, **PARALLEL))
    options = dataset.options()
    assert options.autotune.enabled is False
    assert options.deterministic is not False
    assert [*dataset.as_numpy_iterator()] == [0, 1, 2]


def test_workers_share_batches_and_not_files():
    options = ready_to_iterate(tf.data.Dataset.range(3)).options()
    policy = options.experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.DATA
