"""Batches of about equally many tokens."""

import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.packing import block_starts
from keras_bertfam.types import TFDataset


@checked
class BatchByTokens:
    """Batches rows up to a number of tokens: use it with `Dataset.apply`.

    In place of `Dataset.batch`, for rows that are of unequal length, such as
    DOC-SENTENCES and SENTENCE-PAIR: a batch takes rows while their tokens,
    padding excluded, fit. The number of rows differs from batch to batch, and a
    loss that divides by the number of masked tokens makes that harmless. A
    compiler of fixed shapes (JAX, `jit_compile`) compiles each number of rows
    anew.

    Args:
        tokens_per_batch: int. The most tokens in a batch.
        drop_remainder: bool. Whether to leave out the last batch, which is
            usually smaller. Defaults to `False`.

    Returns:
        Called on a `tf.data.Dataset` of dicts of dense tensors that have a
        bool `padding_mask` of shape `(length,)`, a dataset of dicts with a batch
        axis of varying length.

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
        # The last batch is open until a row comes that doesn't fit.
        still_open = ~last | self.drop_remainder
        closed = tf.size(starts) - tf.cast(still_open & (tf.size(starts) > 0), tf.int32)
        bounds = tf.concat([starts, tf.shape(lengths)], 0)[: closed + 1]
        rest = tf.nest.map_structure(lambda x: x[bounds[-1] :], rows)
        return rest, (rows, bounds)


def _slices(rows, bounds):
    """Make a dataset of the rows between each two bounds."""
    pairs = tf.data.Dataset.from_tensor_slices((bounds[:-1], bounds[1:]))
    return pairs.map(
        lambda start, stop: tf.nest.map_structure(lambda x: x[start:stop], rows)
    )


@checked
@as_written
def full_batches(dataset: TFDataset, batch_size: int) -> TFDataset:
    """Fill smaller batches up with rows of zeros, for devices that share each batch.

    For held-out data, whose last batch may have fewer rows than there are devices, as
    `keras.distribution` needs rows for each. Rows of zeros have no tokens, and weights
    of zero.

    Args:
        dataset: `tf.data.Dataset` of batches of up to `batch_size` rows, with weights
            if there are labels.
        batch_size: int.

    Returns:
        A `tf.data.Dataset` of batches of one shape.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    held_out = model.preprocessor.dataset(documents, batch_size=8, training=False)
    held_out = keras_bertfam.layers.full_batches(held_out, 8)
    ```
    """

    def filled(x):
        missing = tf.zeros([batch_size - tf.shape(x)[0], *x.shape[1:]], x.dtype)
        rows = tf.concat([x, missing], 0)
        return tf.ensure_shape(rows, [batch_size, *x.shape[1:]])

    def fill(*batch):
        return tf.nest.map_structure(filled, batch if len(batch) > 1 else batch[0])

    return dataset.map(fill)
