"""Batches of rows: by tokens, by length, and with several examples in a row."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import check_several, checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.limited_parts import block_starts
from keras_bertfam.layers.data.rows.sequence_packing import PackSequences, best_fit
from keras_bertfam.layers.data.seeding import fold, shuffle
from keras_bertfam.types import TFDataset, TFRagged, TFTensor


@checked
class BatchByTokens:
    """Batches rows up to a number of tokens: use it with `Dataset.apply`.

    It replaces `Dataset.batch` for rows with different numbers of tokens, such as
    DOC-SENTENCES and SENTENCE-PAIR. A batch takes rows while their tokens, without
    padding, fit. So batches differ in their number of rows. That is harmless for a loss
    that divides by the number of masked tokens. A compiler of fixed shapes (JAX,
    `jit_compile`) compiles anew for each number of rows.

    Args:
        tokens_per_batch: int. The most tokens in a batch.
        drop_remainder: bool. Whether to skip the last batch, which is usually smaller.
            Defaults to `False`.

    Returns:
        Called on a `tf.data.Dataset` of dicts of dense tensors with a bool
        `padding_mask` of shape `(length,)`, a dataset of dicts with a batch axis of
        varying length.

    Raises:
        ValueError: If `tokens_per_batch` is less than the length of a row, or
            the elements have no `padding_mask` of static length.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    rows = documents.apply(keras_bertfam.layers.PackSentences(
        tokenizer, 512, start_token_id=0, end_token_id=2, cross_documents=False))
    batches = rows.apply(keras_bertfam.layers.BatchByTokens(256 * 512))
    ```

    Reference: [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.2.
    """

    rows_at_once = 1024

    def __init__(self, tokens_per_batch: int, drop_remainder: bool = False) -> None:
        self.tokens_per_batch = tokens_per_batch
        self.drop_remainder = drop_remainder

    @as_written
    def __call__(self, dataset: TFDataset) -> TFDataset:
        spec = dataset.element_spec
        mask = spec.get("padding_mask") if isinstance(spec, dict) else None
        length = None if mask is None else mask.shape[0]
        if length is None:
            raise ValueError(
                "`dataset` must have dicts with a `padding_mask` of static length. "
                f"Received: element_spec={spec}."
            )
        if self.tokens_per_batch < length:
            raise ValueError(
                f"`tokens_per_batch` must be at least the length of a row, {length}. "
                f"Received: {self.tokens_per_batch}."
            )
        nothing = tf.nest.map_structure(
            lambda x: tf.zeros([0, *x.shape], x.dtype), spec
        )
        end = tf.data.Dataset.from_tensors((nothing, True))
        chunks = dataset.batch(self.rows_at_once).map(lambda rows: (rows, False))
        groups = chunks.concatenate(end).scan(nothing, self._step)
        return groups.flat_map(_slices)

    def _step(self, state, chunk):
        new, last = chunk
        rows = tf.nest.map_structure(lambda *x: tf.concat(x, 0), state, new)
        lengths = tf.reduce_sum(tf.cast(rows["padding_mask"], tf.int32), 1)
        starts = block_starts(tf.maximum(lengths, 1), self.tokens_per_batch)
        # The last batch stays open until a row comes that doesn't fit.
        still_open = ~last | self.drop_remainder
        closed = tf.size(starts) - tf.cast(still_open & (tf.size(starts) > 0), tf.int32)
        bounds = tf.concat([starts, tf.shape(lengths)], 0)[: closed + 1]
        rest = tf.nest.map_structure(lambda x: x[bounds[-1] :], rows)
        return rest, (rows, bounds)


def _slices(rows, bounds):
    """Make a dataset with an element for the rows between each two bounds."""
    pairs = tf.data.Dataset.from_tensor_slices((bounds[:-1], bounds[1:]))
    return pairs.map(
        lambda start, stop: tf.nest.map_structure(lambda x: x[start:stop], rows)
    )


@checked
@as_written
def full_batches(dataset: TFDataset, batch_size: int, label: int = 0) -> TFDataset:
    """Fill up smaller batches with rows of zeros, for devices that share each batch.

    `keras.distribution` needs at least one row for each device. The last batch of
    held-out data can have fewer. A row of zeros has no tokens, and weight 0.

    Args:
        dataset: `tf.data.Dataset` of batches of up to `batch_size` rows, with weights
            if there are labels.
        batch_size: int.
        label: int. What fills the labels; -1 for a loss that takes it for no label.

    Returns:
        A `tf.data.Dataset` of batches of one shape.

    Example:

    ```python
    from keras_bertfam.layers.data.rows.batches import full_batches
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    held_out = model.preprocessor.dataset(documents, batch_size=8, training=False)
    held_out = full_batches(held_out, 8)
    ```
    """

    def filled(x, value=0):
        shape = [batch_size - tf.shape(x)[0], *x.shape[1:]]
        rows = tf.concat([x, tf.fill(shape, tf.cast(value, x.dtype))], 0)
        return tf.ensure_shape(rows, [batch_size, *x.shape[1:]])

    def filled_labels(y):
        return filled(y, label)

    def fill(x, *others):
        x = tf.nest.map_structure(filled, x)
        if not others:
            return x
        y, *weights = others
        y = tf.nest.map_structure(filled_labels, y)
        return x, y, *tf.nest.map_structure(filled, weights)

    return dataset.map(fill)


# A function of preprocessed chunks of examples and a seed that makes batches.
Batcher: TypeAlias = Callable[[TFDataset, TFTensor], TFDataset]

_LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96)


def checked_buckets(
    buckets: Sequence[int] | None, sequence_length: int
) -> list[int] | None:
    """Check the lengths to which rows are padded; return them as a list, or `None`.

    Raises:
        ValueError: unless all are whole numbers from 1 to `sequence_length`.
    """
    if buckets is None:
        return None
    check_several("buckets", buckets, "lengths")
    whole = all(isinstance(size, numbers.Integral) for size in buckets)
    if not whole or not all(0 < size <= sequence_length for size in buckets):
        raise ValueError(
            "`buckets` must be lengths from 1 to sequence_length="
            f"{sequence_length}. Received: {list(buckets)}."
        )
    return [int(size) for size in buckets]


def length_buckets(buckets: Sequence[int] | None, sequence_length: int) -> list[int]:
    """List the lengths to which rows are padded, ascending, `sequence_length` last.

    Args:
        buckets: what `checked_buckets` gives. `None` stands for 8, 12, 16, 24, 32, 48,
            64, 96, and from there every multiple of 64.
        sequence_length: int.
    """
    if buckets is None:
        lengths = [*_LENGTHS, *range(128, sequence_length, 64)]
        buckets = [size for size in lengths if size < sequence_length]
    return sorted({*buckets, sequence_length})


def every_length(sequence_length: int) -> list[int]:
    """List the lengths to which rows are padded if nothing is compiled for a length."""
    return sorted(
        {*length_buckets(None, sequence_length), *range(8, sequence_length, 8)}
    )


def pad_rows(
    example: tuple[Any, Any, Any], buckets: list[int], pad_token_id: int
) -> tuple[Any, Any, Any]:
    """Pad the ragged parts of a batch to the least bucket in which they fit.

    Args:
        example: `(x, y, sample_weight)` with a dict `x`. All tensors have a batch axis,
            and are dense or have a ragged last axis.
        buckets: what `length_buckets` gives.
        pad_token_id: int. Padding of `token_ids`; other parts are padded with 0.

    Returns:
        The same with dense tensors; `x` has a bool `padding_mask` in addition.
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
    longest = tf.cast(ragged.longest(x), tf.int64)
    width = tf.gather(sizes, tf.reduce_sum(tf.cast(sizes < longest, tf.int32)))
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
    """Cut many rows into batches of rows of similar length, in random order.

    Args:
        example: `(x, y, sample_weight)` as for `pad_rows`, of any number of rows.
        batch_size: int. If it doesn't divide the number of rows, the shortest row
            is repeated with weight 0.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A `tf.data.Dataset` of examples with `batch_size` rows.
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


_SHUFFLED_ROWS = 1024


def rows_for(
    count: int, lengths: TFTensor, row_length: int, max_sequences: int | None
) -> int:
    """Estimate how many rows are needed for a number of sequences, at least one.

    Args:
        count: int. The number of sequences.
        lengths: int tensor of shape `(n,)`, the lengths of a sample of them.
        row_length: int.
        max_sequences: int or `None`. The most sequences in a row.

    Returns:
        An int.
    """
    *_, rows = best_fit(
        tf.cast(lengths, tf.int32), row_length, max_sequences=max_sequences
    )
    return max(1, round(count * int(tf.size(rows)) / int(tf.size(lengths))))


def packed_batches(
    sequences: TFDataset, packing: PackSequences, batch_size: int, seed: TFTensor
) -> TFDataset:
    """Pack sequences and batch the rows, in random order.

    Args:
        sequences: `tf.data.Dataset` that `PackSequences` takes.
        packing: `PackSequences`.
        batch_size: int. Rows of a batch; empty rows fill up the last one.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A `tf.data.Dataset` of the dicts that `packing` gives, with a batch axis.
    """
    rows = shuffle(sequences.apply(packing), _SHUFFLED_ROWS, seed)
    return rows.batch(batch_size).map(
        lambda batch: fill_up(batch, batch_size, packing.pad_token_id)
    )


def fill_up(
    batch: dict[str, TFTensor], batch_size: int, pad_token_id: int
) -> dict[str, TFTensor]:
    """Fill up a batch with empty rows: padding ids, and 0 in other parts.

    Args:
        batch: dict of tensors `(up to batch_size, ...)`.
        batch_size: int.
        pad_token_id: int. The id for parts whose names end with `"token_ids"` or
            `"target_ids"`.

    Returns:
        A dict of tensors `(batch_size, ...)`.
    """

    def filled_up(name, x):
        ids = name.endswith(("token_ids", "target_ids"))
        blank = tf.cast(pad_token_id if ids else 0, x.dtype)
        missing = batch_size - tf.shape(x)[0]
        rest = tf.fill(tf.concat([[missing], tf.shape(x)[1:]], 0), blank)
        return tf.ensure_shape(tf.concat([x, rest], 0), [batch_size, *x.shape[1:]])

    return {name: filled_up(name, x) for name, x in batch.items()}
