"""What is particular to byte-level BPE, whose tokens are made of bytes.

A token's string in the vocabulary has a sign for each byte, a space included (`Ġ`), and
a word has other tokens at the start of a text than after a space.
"""

import keras_hub
import numpy as np
import tensorflow as tf

from keras_bertfam.tokenizers.texts import without_nul
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer


def is_byte_pair(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer, or the one in it, is one of byte-level BPE, as RoBERTa's."""
    tokenizer = getattr(tokenizer, "unmarked", tokenizer)
    return isinstance(tokenizer, keras_hub.tokenizers.BytePairTokenizer)


def word_prefix(tokenizer: Tokenizer) -> str:
    """What goes before a word that is tokenised by itself, as it is in a text."""
    return " " if is_byte_pair(tokenizer) else ""


def token_strings(tokenizer: Tokenizer) -> list[str]:
    """The string of each token id, readable also for byte-level tokenizers.

    Args:
        tokenizer: a tokenizer layer.

    Returns:
        List of `vocabulary_size` str.
    """
    if is_byte_pair(tokenizer):
        ids = np.arange(tokenizer.vocabulary_size())[:, None]
        return [str(token) for token in tokenizer.detokenize(ids)]
    return list(tokenizer.get_vocabulary())


def byte_pair_offsets(
    tokenizer: Tokenizer, texts: TFTensor
) -> tuple[TFRagged, TFRagged, TFRagged]:
    """Tokens and their places: they are made of all bytes, one after the other.

    Args:
        tokenizer: a byte-pair tokenizer.
        texts: string tensor of shape `(batch,)`, in UTF-8.

    Returns:
        A tuple of ragged int32 tensors of shape `(batch, None)`: ids, and the bytes
        where tokens start and end, white space before them included.

    Raises:
        tf.errors.InvalidArgumentError: for a vocabulary that lacks bytes of the texts.
    """
    texts = without_nul(texts)
    ids = tokenizer(texts)
    strings = [""] * tokenizer.vocabulary_size()
    for token, number in tokenizer.vocabulary.items():
        strings[number] = token
    sizes = tf.constant([len(token) for token in strings])
    # A token that isn't in the vocabulary has a negative id.
    known = tf.maximum(ids.flat_values, 0)
    lengths = ids.with_flat_values(tf.gather(sizes, known))
    ends = _cumulative(lengths)
    prefix = int(tokenizer.add_prefix_space)
    covered = tf.reduce_sum(lengths, 1) - prefix
    total = tf.strings.length(texts)
    complete = tf.reduce_all(ids.flat_values >= 0) & tf.reduce_all(covered == total)
    tf.debugging.assert_equal(
        complete,
        True,
        "The tokens of a byte-pair `tokenizer` must be made of the bytes of the text. "
        "The vocabulary lacks bytes.",
    )
    ends = ends - prefix
    return ids, tf.maximum(ends - lengths, 0), ends


def _cumulative(lengths):
    """The running sum of each row."""
    totals = tf.cumsum(lengths.flat_values)
    before = tf.gather(tf.pad(totals, [[1, 0]]), lengths.row_starts())
    return lengths.with_flat_values(totals - tf.gather(before, lengths.value_rowids()))
