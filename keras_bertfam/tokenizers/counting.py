"""Counts of tokens in text, and frequent words that a vocabulary lacks."""

import collections
import unicodedata

import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer, tokenize
from keras_bertfam.tokenizers.texts import (
    check_documents,
    first_pass,
    to_utf8,
    without_languages,
)
from keras_bertfam.tokenizers.word_piece import BertTokenizer
from keras_bertfam.types import TFDataset, Tokenizer


@as_written
def count_tokens(tokenizer: Tokenizer, documents: TFDataset) -> np.ndarray:
    """Count how often each token occurs in text.

    Args:
        tokenizer: a tokenizer layer, such as `BertTokenizer`.
        documents: `tf.data.Dataset` of scalar strings.

    Returns:
        An int64 NumPy array of shape `(vocabulary_size,)`, for `SmoothedTokens` and the
        `random_token_weights` of `MaskTokens`.

    Example:

    ```python
    from keras_bertfam.tokenizers.counting import count_tokens
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_word_piece(documents, 40)
    counts = count_tokens(tokenizer, documents)
    ```
    """
    size = tokenizer.vocabulary_size()
    tokenizer = as_graph_layer(tokenizer)

    def count(texts):
        ids = tokenize(tokenizer, to_utf8(without_languages(texts))).flat_values
        return tf.math.bincount(ids, minlength=size, dtype=tf.int64)

    zeros = tf.zeros([size], tf.int64)
    texts = check_documents(first_pass(documents)).batch(64)
    return texts.map(count).reduce(zeros, tf.add).numpy()


@checked
@as_written
def extend_vocabulary(
    tokenizer: BertTokenizer,
    documents: TFDataset,
    count: int,
    min_frequency: int = 2,
) -> BertTokenizer:
    """Extend a vocabulary by the most frequent words that its tokenizer splits.

    Args:
        tokenizer: `BertTokenizer`.
        documents: `tf.data.Dataset` of scalar strings.
        count: int. The most words to add.
        min_frequency: int. How often a word must occur. Defaults to `2`.

    Returns:
        A tokenizer of the same class. The old tokens keep their ids, and the new words
        follow.

    Raises:
        TypeError: for another kind of tokenizer.
        ValueError: for a negative `count`, or a tokenizer with added tokens, whose ids
            would change.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    documents = keras_bertfam.layers.read_documents("papers/*.txt")
    tokenizer = keras_bertfam.tokenizers.extend_vocabulary(tokenizer, documents, 500)
    ```
    """
    if not isinstance(tokenizer, BertTokenizer):
        raise TypeError(
            "`tokenizer` must be a `BertTokenizer`, which splits texts into words. "
            f"Received: {type(tokenizer).__name__}."
        )
    if count < 0:
        raise ValueError(f"`count` must not be negative. Received: {count}.")
    if getattr(tokenizer, "added_tokens", ()):
        raise ValueError(
            "`tokenizer` must have no added tokens, whose ids would change: extend it "
            f"first. Received: {len(tokenizer.added_tokens)} added tokens."
        )

    def split(texts):
        texts = tokenizer.clean_texts(to_utf8(without_languages(texts)))
        # White space and punctuation end a word, as in BERT, and each Chinese
        # character is one.
        texts = tf.strings.regex_replace(texts, r"[^\p{L}\p{M}\p{N}]", " ")
        texts = tf.strings.regex_replace(texts, r"(\p{Han})", r" \1 ")
        return tf.strings.split(texts).flat_values

    frequencies: collections.Counter[str] = collections.Counter()
    for batch in (
        check_documents(first_pass(documents))
        .batch(64)
        .map(split, num_parallel_calls=tf.data.AUTOTUNE)
    ):
        frequencies.update(word.decode() for word in batch.numpy())
    known = {*tokenizer.get_vocabulary()}
    # Sort by frequency; equally frequent words in alphabetical order.
    ranked = sorted(frequencies.items(), key=lambda item: (-item[1], item[0]))
    new = [
        word
        for word, frequency in ranked
        if frequency >= min_frequency and word not in known and _is_of_letters(word)
    ]
    config = tokenizer.get_config()
    config["vocabulary"] = [*tokenizer.get_vocabulary(), *new[:count]]
    return type(tokenizer).from_config(config)


def _is_of_letters(word):
    """Tell whether a word has letters and their marks only."""
    return all(unicodedata.category(character)[0] in "LM" for character in word)
