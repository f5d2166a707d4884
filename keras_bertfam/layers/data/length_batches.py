"""Batches of rows of like length, padded to one of few lengths."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from keras_bertfam.layers.data.seeding import fold
from keras_bertfam.types import TFDataset, TFRagged, TFTensor

# From featurised chunks of examples, and a seed, to batches.
Batcher: TypeAlias = Callable[[TFDataset, TFTensor], TFDataset]

_LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96)


def length_buckets(buckets: Sequence[int] | None, sequence_length: int) -> list[int]:
    """List the lengths that rows are padded to, ascending, `sequence_length` last.

    Args:
        buckets: sequence of ints, or `None` for 8, 12, 16, 24, 32, 48, 64, 96 and
            every multiple of 64 from there.
        sequence_length: int.

    Raises:
        ValueError: for lengths that aren't positive, or above `sequence_length`.
    """
    if buckets is None:
        lengths = [*_LENGTHS, *range(128, sequence_length, 64)]
        buckets = [size for size in lengths if size < sequence_length]
    elif not all(0 < size <= sequence_length for size in buckets):
        raise ValueError(
            "`buckets` must be lengths from 1 to sequence_length="
            f"{sequence_length}. Received: {list(buckets)}."
        )
    return sorted({*buckets, sequence_length})


def pad_rows(
    example: tuple[Any, Any, Any], buckets: list[int], pad_token_id: int
) -> tuple[Any, Any, Any]:
    """Pad the ragged parts of a batch to the least bucket that they fit in.

    Args:
        example: `(x, y, sample_weight)` with a dict `x`, all of tensors with a
            batch axis, dense or ragged in the last one.
        buckets: what `length_buckets` gives.
        pad_token_id: int. What `token_ids` are padded with; all else with 0.

    Returns:
        The same of dense tensors; `x` with a bool `padding_mask` besides.
    """
    x, y, weights = example
    padded = {name: _pad(value, buckets) for name, value in x.items()}
    ids = x["token_ids"]
    padded["token_ids"] = _pad(ids, buckets, pad_token_id)
    inside = ids.with_flat_values(tf.ones_like(ids.flat_values, tf.bool))
    padded["padding_mask"] = _pad(inside, buckets, False)
    y, weights = (None if v is None else _pad(v, buckets) for v in (y, weights))
    return padded, y, weights


def _pad(x, buckets, value=0):
    if not isinstance(x, tf.RaggedTensor):
        return x
    sizes = tf.constant(buckets, tf.int64)
    longest = x.bounding_shape()[-1]
    width = tf.gather(sizes, tf.searchsorted(sizes, longest[None])[0])
    shape = tf.concat(
        [tf.fill([x.shape.rank - 1], tf.constant(-1, tf.int64)), [width]], 0
    )
    dense = x.to_tensor(tf.cast(value, x.dtype), shape=shape)
    static = buckets[0] if len(buckets) == 1 else None
    return tf.ensure_shape(dense, [*x.shape[:-1], static])


def row_lengths(token_ids: TFRagged) -> TFTensor:
    """Measure the longest row of each example."""
    lengths = token_ids.row_lengths(axis=token_ids.shape.rank - 1)
    return lengths if token_ids.shape.rank == 2 else tf.reduce_max(lengths, axis=1)


def batches_by_length(chunks: TFDataset, batch_size: int, seed: TFTensor) -> TFDataset:
    """Cut each element of a dataset into batches; see `batch_by_length`."""
    return chunks.enumerate().flat_map(
        lambda k, chunk: batch_by_length(chunk, batch_size, fold(seed, k))
    )


def batch_by_length(
    example: tuple[Any, Any, Any], batch_size: int, seed: TFTensor
) -> TFDataset:
    """Cut many rows into batches of like length, in random order.

    Args:
        example: `(x, y, sample_weight)` as for `pad_rows`, of any number of rows.
        batch_size: int. If it doesn't divide the number of rows, the shortest row
            is repeated with weight 0.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A `tf.data.Dataset` of such examples with `batch_size` rows.
    """
    order = tf.argsort(row_lengths(example[0]["token_ids"]), stable=True)
    missing = -tf.size(order) % batch_size
    order = tf.concat([tf.repeat(order[:1], missing), order], 0)
    real = tf.cast(tf.range(tf.size(order)) >= missing, tf.float32)
    batches = tf.random.experimental.stateless_shuffle(
        tf.stack(
            [
                tf.reshape(order, [-1, batch_size]),
                tf.cast(tf.reshape(real, [-1, batch_size]), tf.int32),
            ],
            1,
        ),
        seed,
    )

    def take(pair):
        x, y, weights = tf.nest.map_structure(lambda v: tf.gather(v, pair[0]), example)
        kept = tf.cast(pair[1], weights.dtype)
        if isinstance(weights, tf.RaggedTensor):
            kept = kept[:, None]
        return x, y, weights * kept

    return tf.data.Dataset.from_tensor_slices(batches).map(take)
