"""Randomness as a value: seeds that depend only on seed, epoch and batch."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.types import TFDataset, TFTensor

# Philox. The generator is fixed, because the default one depends on the device.
_PHILOX = 1
_SCRAMBLING_KEY = 0x02461E293EC8F720


def random_uniform(
    shape: Any,
    seed: TFTensor,
    minval: Any = None,
    maxval: Any = None,
    dtype: tf.DType = tf.float32,
) -> TFTensor:
    """Draw the same bits as `tf.random.stateless_uniform` with `alg="philox"`.

    TensorFlow's function puts fifty operations into a graph for each draw, this one
    sixteen. The difference was a tenth of the time to build a pipeline.

    Args:
        shape: ints, or an int tensor.
        seed: integer tensor of shape `(2,)`.
        minval, maxval: numbers are drawn from `[minval, maxval)`. Without them floats
            are in [0, 1), and ints are any.
        dtype: float or int dtype.

    Returns:
        A tensor of that shape.
    """
    key, counter = _key_and_counter(seed)
    if not tf.is_tensor(shape):
        shape = tf.convert_to_tensor(shape, tf.int32)
    drawn = {"shape": shape, "key": key, "counter": counter, "alg": _PHILOX}
    if dtype.is_floating:
        values = tf.raw_ops.StatelessRandomUniformV2(**drawn, dtype=dtype)
        if minval is None:
            return values
        least = tf.cast(minval, dtype)
        return values * (tf.cast(maxval, dtype) - least) + least
    if minval is None:
        return tf.raw_ops.StatelessRandomUniformFullIntV2(**drawn, dtype=dtype)
    return tf.raw_ops.StatelessRandomUniformIntV2(
        **drawn, minval=tf.cast(minval, dtype), maxval=tf.cast(maxval, dtype)
    )


def split_seed(seed: TFTensor, count: int) -> list[TFTensor]:
    """Make `count` seeds from one, the same as `tf.random.split(..., alg="philox")`."""
    seed = tf.convert_to_tensor(seed)
    return tf.unstack(random_uniform([count, 2], seed, dtype=seed.dtype), count)


def _key_and_counter(seed):
    """Scramble a seed, as TensorFlow does, so that neighbouring seeds differ much."""
    mixed = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[4],
        key=tf.constant([_SCRAMBLING_KEY], tf.uint64),
        counter=tf.cast(seed, tf.uint64),
        alg=_PHILOX,
        dtype=tf.uint32,
    )
    key, counter = tf.split(tf.bitcast(tf.reshape(mixed, [2, 2]), tf.uint64), 2)
    return key, tf.concat([tf.constant([0], tf.uint64), counter], 0)


def batch_seed(
    seed: int | TFTensor, epoch: int | TFTensor, batch: int | TFTensor
) -> TFTensor:
    """Return the seed of one batch of one pass over the data.

    Args:
        seed: int or int64 scalar. The run's seed.
        epoch: int or int64 scalar. The number of the pass over the data.
        batch: int or int64 scalar. The batch's index within the pass.

    Returns:
        An int64 tensor of shape `(2,)`, for `tf.random.stateless_*`.

    Example:

    ```python
    from keras_bertfam.layers.data.seeding import batch_seed

    tf.random.stateless_uniform((3,), batch_seed(0, epoch=1, batch=7))
    ```
    """
    return fold(fold(fold(tf.zeros(2, tf.int64), seed), epoch), batch)


def fold(seed: TFTensor, data: int | TFTensor) -> TFTensor:
    """Return a new seed of shape `(2,)` from `seed` and an integer."""
    data = tf.cast(data, tf.int64)
    drawn = random_uniform([], tf.cast(seed, tf.int64), dtype=tf.int64)
    return tf.stack([drawn, data])


def content_seed(token_ids: TFTensor, seed: int) -> TFTensor:
    """Return a seed that depends on `seed` and on the ids.

    Args:
        token_ids: integer tensor of any shape.
        seed: int. Mixed into the ids' 64-bit fingerprint.

    Returns:
        An int64 tensor of shape `(2,)`.
    """
    bits = tf.fingerprint(tf.reshape(tf.cast(token_ids, tf.int64), [1, -1]))
    return fold(fold(tf.zeros(2, tf.int64), seed), tf.bitcast(bits, tf.int64)[0])


def shuffle(
    dataset: TFDataset, buffer_size: int | TFTensor, seed: TFTensor
) -> TFDataset:
    """Shuffle as `Dataset.shuffle` does, by a seed that may be a tensor.

    `Dataset.shuffle` itself adds the global seed, and refuses a tensor if the global
    seed is 0.

    Args:
        dataset: `tf.data.Dataset` of dense tensors.
        buffer_size: int.
        seed: int64 tensor of shape `(2,)`.

    Returns:
        A `tf.data.Dataset` with the same order each time it is iterated.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=tf.cast(buffer_size, tf.int64),
        seed=seed[0],
        seed2=seed[1],
        output_types=[spec.dtype for spec in specs],
        output_shapes=[spec.shape for spec in specs],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


@checked
class StreamPosition:
    """The place where a stream of batches goes on: the next pass, and its first batch.

    Datasets made by `seeded_passes` read it whenever an iteration begins. So a run that
    was stopped goes on with the batches that it would have seen. The beginning of a
    pass moves the position to the start of the next pass: iterating again, or
    `Dataset.repeat`, gives new masks.

    Args:
        epoch: int. The number of the next pass. Defaults to `0`.
        batch: int. The first batch of the next pass. Defaults to `0`.

    Attributes:
        batches: int or `None`. How many batches a pass has, if the data comes from a
            prepared corpus: there any batch can be the next.

    Example:

    ```python
    from keras_bertfam.layers.data.seeding import StreamPosition
    position = StreamPosition()
    position.set(epoch=3, batch=120)
    ```
    """

    def __init__(self, epoch: int = 0, batch: int = 0) -> None:
        self.batches: int | None = None
        # A table instead of `tf.Variable`s: under `tf.distribute` a variable exists
        # once per device, and a dataset on the CPU can't capture it.
        with tf.init_scope(), tf.device("CPU:0"):
            self._table = tf.lookup.experimental.MutableHashTable(
                tf.string, tf.int64, default_value=0
            )
        self.set(epoch, batch)

    def set(self, epoch: int, batch: int = 0) -> None:
        """Set the pass and batch that the next iteration begins with."""
        for name, value in (("epoch", epoch), ("batch", batch)):
            if int(value) < 0:
                raise ValueError(f"`{name}` must not be negative. Received: {value}.")
        self._write(tf.constant([epoch, batch], tf.int64))

    @property
    def epoch(self) -> int:
        """int: the number of the next pass."""
        return int(self._read()[0])

    @property
    def batch(self) -> int:
        """int: the first batch of the next pass."""
        return int(self._read()[1])

    def begin_pass(self) -> tuple[TFTensor, TFTensor]:
        """Return the `(epoch, batch)` to begin with, and move to the next pass.

        Both are int64 scalars. Works in a graph: the values are those at the
        moment the graph runs.
        """
        epoch, batch = tf.unstack(self._read(), 2)
        with tf.control_dependencies([epoch, batch]):
            self._write(tf.stack([epoch + 1, tf.zeros_like(batch)]))
        return epoch, batch

    def _read(self):
        return self._table.lookup(tf.constant(["epoch", "batch"]))

    def _write(self, values):
        with tf.device("CPU:0"):
            self._table.insert(tf.constant(["epoch", "batch"]), values)


@checked
@as_written
def seeded_passes(
    make_batches: Callable[[TFTensor], TFDataset],
    seed: int,
    position: StreamPosition | None = None,
    period: int | None = None,
) -> TFDataset:
    """Build the dataset of `(seed, batch)` pairs of a pass over the data.

    Args:
        make_batches: callable from the pass's number, an int64 scalar, to a
            `tf.data.Dataset` of batches, so that shuffling may depend on it.
        seed: int. The run's seed.
        position: `StreamPosition` or `None`. Each iteration of the dataset reads it
            anew. With `None` every iteration is pass 0 from its start, as evaluation
            needs it.
        period: int or `None`. Pass `e` equals pass `e % period`, as in static
            masking. Defaults to `None`: every pass is new.

    Returns:
        A `tf.data.Dataset`. Element `k` of a pass has the seed
        `batch_seed(seed, epoch, k)`, also when the pass doesn't begin at its
        first batch; skipped batches are made but not processed further.

    Example:

    ```python
    from keras_bertfam.layers.data.seeding import StreamPosition, seeded_passes
    batches = tf.data.Dataset.range(1000).batch(10)
    position = StreamPosition()
    pairs = seeded_passes(
        lambda epoch: batches, seed=0, position=position)
    pairs.map(lambda seed, batch: tf.random.stateless_uniform((10,), seed))
    ```
    """

    def one_pass(epoch, first):
        if period is not None:
            epoch = epoch % period
        numbered = make_batches(epoch).enumerate().skip(first)
        return numbered.map(lambda k, batch: (batch_seed(seed, epoch, k), batch))

    if position is None:
        zero = tf.constant(0, tf.int64)
        return one_pass(zero, zero)
    # Not inside of `flat_map`: TensorFlow crashes if its function holds a table.
    start = tf.data.Dataset.range(1).map(lambda _: position.begin_pass())
    return start.flat_map(one_pass)


@as_written
def shuffled_batches(
    rows: TFDataset, batch_size: int, seed: int, position: StreamPosition
) -> TFDataset:
    """Batch rows, in another order in each pass.

    Args:
        rows: unbatched `tf.data.Dataset` of known length.
        batch_size: int.
        seed: int.
        position: `StreamPosition`.

    Returns:
        A `tf.data.Dataset`.
    """

    def batches(epoch):
        order = batch_seed(seed, epoch, -1)
        return shuffle(rows, rows.cardinality(), order).batch(batch_size)

    return seeded_passes(batches, seed, position).map(lambda _, batch: batch)
