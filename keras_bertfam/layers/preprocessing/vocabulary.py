"""More words for a vocabulary, from text of a domain."""

import collections

import tensorflow as tf

from keras_bertfam.layers.preprocessing.arrays import check_documents
from keras_bertfam.layers.preprocessing.bert_normalization import clean_texts
from keras_bertfam.layers.preprocessing.pipelines import PARALLEL
from keras_bertfam.layers.preprocessing.tokenizers import BertTokenizer, to_utf8


def extend_vocabulary(tokenizer, documents, count, min_frequency=2):
    """Adds the most frequent words that a tokenizer splits to its vocabulary.

    Args:
        tokenizer: `BertTokenizer`.
        documents: `tf.data.Dataset` of scalar strings.
        count: int. The most words to add.
        min_frequency: int. How often a word must occur. Defaults to `2`.

    Returns:
        A `BertTokenizer` with the words after the old ones, whose ids stay.

    Raises:
        TypeError: for another kind of tokenizer.
        ValueError: for a negative `count`.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("papers/*.txt")
    tokenizer = keras_bertfam.layers.extend_vocabulary(tokenizer, documents, 500)
    ```
    """
    if not isinstance(tokenizer, BertTokenizer):
        raise TypeError(
            "`tokenizer` must be a `BertTokenizer`, whose words can be told. "
            f"Received: {type(tokenizer).__name__}."
        )
    if count < 0:
        raise ValueError(f"`count` must not be negative. Received: {count}.")

    def split(texts):
        texts = clean_texts(to_utf8(texts), tokenizer.lowercase)
        # As BERT does, white space and punctuation end a word.
        texts = tf.strings.regex_replace(texts, r"[^\p{L}\p{M}\p{N}]", " ")
        return tf.strings.split(texts).flat_values

    frequencies = collections.Counter()
    for batch in check_documents(documents).batch(64).map(split, **PARALLEL):
        frequencies.update(word.decode() for word in batch.numpy())
    known = {*tokenizer.get_vocabulary()}
    # By frequency, and words as frequent in the order of the alphabet.
    ranked = sorted(frequencies.items(), key=lambda item: (-item[1], item[0]))
    new = [
        word
        for word, frequency in ranked
        if frequency >= min_frequency and word not in known and word.isalpha()
    ]
    return BertTokenizer(
        [*tokenizer.get_vocabulary(), *new[:count]],
        lowercase=tokenizer.lowercase,
        max_bytes_per_word=tokenizer.max_bytes_per_word,
    )
