"""Lists that are cut into parts of limited size: blocks of tokens, batches of texts."""

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.tokenizers.texts import check_documents
from keras_bertfam.types import TFDataset, TFRagged, TFTensor

# The most bytes of texts that are tokenised together; a single text may be longer.
# Tokenising takes some hundred times as much memory.
_BYTES_AT_ONCE = 1 << 20


@as_written
def batches_of_texts(documents: TFDataset, count: int) -> TFDataset:
    """Batch texts for a tokenizer; their number and size are limited.

    Args:
        documents: `tf.data.Dataset` of scalar strings.
        count: int. The most texts in a batch.

    Returns:
        A `tf.data.Dataset` of string tensors of shape `(batch,)`, of 1 MiB at most
        or of a single text.
    """

    def parts(texts):
        return tf.data.Dataset.from_tensor_slices(parts_by_size(texts))

    return check_documents(documents).batch(count).flat_map(parts)


def parts_by_size(texts: TFTensor) -> TFRagged:
    """Cut a list of texts into parts that a tokenizer can take at once.

    Args:
        texts: string tensor of shape `(texts,)`, with one text at least.

    Returns:
        Ragged string tensor of shape `(parts, None)`; a part has 1 MiB at most, or a
        single text.
    """
    sizes = tf.clip_by_value(tf.strings.length(texts), 1, _BYTES_AT_ONCE)
    starts = tf.cond(
        tf.reduce_sum(sizes) > _BYTES_AT_ONCE,
        lambda: block_starts(sizes, _BYTES_AT_ONCE),
        lambda: tf.constant([0]),
    )
    return tf.RaggedTensor.from_row_starts(texts, starts, validate=False)


def block_starts(
    lengths: TFTensor, budget: int, document: TFTensor | None = None
) -> TFTensor:
    """Return the unit that each block starts with, packing greedily.

    Args:
        lengths: int32 tensor of shape `(n,)`, each in [1, `budget`].
        budget: int. The most tokens in a block.
        document: int32 tensor of shape `(n,)`, ascending: each unit's document, for
            blocks that end with their document. `None`: blocks cross documents.

    Returns:
        An int32 tensor of shape `(blocks,)`.
    """
    # Example: lengths 3, 2, 4, 1, 2 and a budget of 5. A block that begins at unit 0
    # holds 3 + 2 tokens, so the next begins at 2. For each unit the next block begins
    # at 2, 3, 4, 5, 5. From 0 on, blocks begin at 0, 2, 4.
    ends = tf.cumsum(lengths)
    following = tf.searchsorted(ends, ends - lengths + budget, side="right")
    if document is not None:
        last = tf.searchsorted(document, document, side="right")
        following = tf.minimum(following, last)
    return follow_pointers(following, 0)


def follow_pointers(following: TFTensor, first: int | TFTensor) -> TFTensor:
    """Follow pointers from `first` on to the end, and return all elements visited.

    The number of known elements doubles in each turn: the jump over `m` elements,
    applied to the first `m`, gives the next `m`.

    Args:
        following: int32 tensor of shape `(n,)`. `following[i]` is greater than
            `i` and at most `n`, the end.
        first: int scalar from 0 to `n`.

    Returns:
        An int32 tensor, ascending, without the end.
    """
    # Example: following = [2, 3, 4, 5, 5] from 0 gives 0, 2, 4; 5 is the end.
    n = tf.size(following)

    def double(elements, jump):
        more = tf.gather(jump, elements)
        return tf.concat([elements, more], 0), tf.gather(jump, jump)

    elements, _ = tf.while_loop(
        lambda elements, jump: elements[-1] < n,
        double,
        (tf.reshape(first, [1]), tf.concat([following, [n]], 0)),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([None])),
    )
    return ragged.keep(elements, elements < n)
