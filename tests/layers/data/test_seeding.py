import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.seeding import (
    StreamPosition,
    batch_seed,
    content_seed,
    fold,
    random_uniform,
    seeded_passes,
    shuffle,
    split_seed,
)


def shuffled(epoch):
    return (
        tf.data.Dataset.range(20)
        .apply(lambda ds: shuffle(ds, 20, batch_seed(0, epoch, 0)))
        .batch(2)
    )


def collect(dataset):
    return [(tuple(s.numpy()), tuple(b.numpy())) for s, b in dataset]


@pytest.mark.slow
def test_batch_seeds_are_distinct_and_reproducible():
    seeds = {tuple(batch_seed(*x).numpy()) for x in np.ndindex(4, 8, 16)}
    assert len(seeds) == 4 * 8 * 16
    assert batch_seed(1, 2, 3).dtype == tf.int64
    assert (
        (batch_seed(1, 2, 3) == batch_seed(*map(tf.constant, (1, 2, 3)))).numpy().all()
    )


def test_content_seed_depends_on_every_id_and_its_place():
    base = content_seed([[1, 2, 3]], 0).numpy()
    assert (base == content_seed([[1, 2, 3]], 0).numpy()).all()
    for other in ([[1, 3, 2]], [[1, 2, 4]], [[1, 2, 3, 0]]):
        assert (base != content_seed(other, 0).numpy()).any()
    assert (base != content_seed([[1, 2, 3]], 1).numpy()).any()


def test_each_pass_differs_and_can_be_had_again():
    position = StreamPosition()
    passes = seeded_passes(shuffled, 0, position)
    first, second = collect(passes), collect(passes)
    assert position.epoch == 2 and first != second
    assert sorted(x for _, b in first for x in b) == list(range(20))
    position.set(0)
    assert collect(passes) == first
    assert collect(passes) == second
    assert collect(seeded_passes(shuffled, 1, StreamPosition())) != first


def test_starting_at_batch_k_gives_the_rest_of_the_pass():
    position = StreamPosition()
    passes = seeded_passes(shuffled, 0, position)
    whole = collect(passes)
    position.set(0, batch=7)
    assert (position.epoch, position.batch) == (0, 7)
    assert collect(passes) == whole[7:]
    assert (position.epoch, position.batch) == (1, 0)


def test_repeat_prefetch_and_take():
    position = StreamPosition()
    passes = seeded_passes(shuffled, 0, position)
    expected = collect(passes) + collect(passes)
    position.set(0)
    assert collect(passes.repeat(2).prefetch(3).take(15)) == expected[:15]


def test_without_a_position_every_pass_is_the_first():
    frozen = seeded_passes(shuffled, 0)
    first = collect(frozen)
    assert collect(frozen) == first
    assert first == collect(seeded_passes(shuffled, 0, StreamPosition()))


def test_period():
    passes = seeded_passes(shuffled, 0, StreamPosition(), period=2)
    streams = [collect(passes) for _ in range(4)]
    assert streams[0] == streams[2] and streams[1] == streams[3]
    assert streams[0] != streams[1]


def test_negative_position():
    with pytest.raises(ValueError, match="`batch` must not be negative.*-1"):
        StreamPosition().set(0, -1)


def test_under_a_distribution_strategy():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        position = StreamPosition()
        passes = seeded_passes(shuffled, 0, position)
        distributed = strategy.experimental_distribute_dataset(passes)
    plain = collect(seeded_passes(shuffled, 0, StreamPosition()))
    position.set(0, batch=4)
    assert collect(distributed) == plain[4:]
    position.set(0)
    assert collect(distributed) == plain
    assert collect(distributed) != plain


def test_shuffle_depends_on_its_seed_alone():
    def order(seed, global_seed):
        tf.random.set_seed(global_seed)
        dataset = tf.data.Dataset.range(50)
        return [int(x) for x in shuffle(dataset, 50, batch_seed(seed, 0, 0))]

    first = order(0, global_seed=0)
    assert first == order(0, global_seed=1) and sorted(first) == list(range(50))
    assert first != list(range(50)) and first != order(1, global_seed=0)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("seed", [[0, 0], [1, 2], [-(2**62), 2**40 + 7]])
def test_draws_are_those_of_tensorflow(seed, in_graph):
    def both(seed):
        shape, philox = tf.constant([3, 2]), {"alg": "philox"}
        own = [
            random_uniform(shape, seed),
            random_uniform([4], seed, dtype=tf.float64),
            random_uniform([4], seed, 0.1, 0.5),
            random_uniform([], seed, -3, 1000, tf.int32),
            random_uniform([5], seed, dtype=tf.int32),
            *split_seed(seed, 3),
            fold(seed, 5),
        ]
        uniform = tf.random.stateless_uniform
        theirs = [
            uniform(shape, seed, **philox),
            uniform([4], seed, dtype=tf.float64, **philox),
            uniform([4], seed, 0.1, 0.5, **philox),
            uniform([], seed, -3, 1000, tf.int32, **philox),
            uniform([5], seed, None, None, tf.int32, **philox),
            *tf.unstack(tf.random.split(seed, 3, **philox), 3),
            tf.random.fold_in(seed, tf.constant(5, tf.int64), **philox),
        ]
        return own, theirs

    made = (tf.function(both) if in_graph else both)(tf.constant(seed, tf.int64))
    for own, theirs in zip(*made, strict=True):
        assert own.dtype == theirs.dtype
        np.testing.assert_array_equal(own, theirs)
