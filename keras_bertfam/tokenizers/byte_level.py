"""Byte-level BPE in the graph: texts in words as published, words in tokens by merges.

KerasHub's byte-pair tokenizers mark places inside the text by characters that texts
have: the Devanagari digit six is deleted, and `Ĵ` with a capital is taken for a special
token. Here places stay numbers. The merges of a word, and what is remembered of them,
are KerasHub's.

The published expression (Radford et al., 2019) ends with `\\s+(?!\\S)|\\s+`: of white
space before a word, all but the last character is a token by itself. RE2, which
TensorFlow has, can't look ahead, so the last character is given to the word first. Of
`"a  b\\n\\nc"`:

    white space and others   "a"  "  "  "b"  "\\n\\n"  "c"
    the last to the word     "a"  " "  " b"  "\\n"  "\\nc"
    words                    "a"  " "  " b"  "\\n"  "\\n"  "c"
"""

import re
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam.autograph import as_written
from keras_bertfam.tokenizers.texts import WHITE_SPACE, without_nul
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer

_SPACES = f"[{WHITE_SPACE}]+"
_WORDS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|"
    rf" ?[^{WHITE_SPACE}\p{{L}}\p{{N}}]+|{_SPACES}"
)


@as_written
def words_of(texts: TFTensor) -> TFRagged:
    """Split texts into the words that are merged by themselves. Works in a graph.

    Args:
        texts: string tensor of shape `(batch,)`, in UTF-8.

    Returns:
        Ragged string tensor of shape `(batch, None)`, whose words joined are the text.
    """
    pieces = tf_text.regex_split(texts, _SPACES, _SPACES)
    flat = pieces.flat_values
    rows = pieces.value_rowids()
    # Nothing follows the last piece of a row; an empty row has none.
    follows = tf.concat([rows[1:] == rows[:-1], tf.zeros(tf.size(rows[:1]), bool)], 0)
    gives = follows & tf.strings.regex_full_match(flat, _SPACES)
    last = tf.where(gives, tf.strings.substr(flat, -1, 1, unit="UTF8_CHAR"), "")
    left = tf.strings.length(flat) - tf.strings.length(last)
    given = tf.concat([tf.fill([tf.size(rows[:1])], ""), last[:-1]], 0)
    flat = tf.strings.join([given, tf.strings.substr(flat, tf.zeros_like(left), left)])
    kept = flat != ""
    words = tf_text.regex_split(tf.boolean_mask(flat, kept), _WORDS, _WORDS)
    return tf.RaggedTensor.from_value_rowids(
        words, tf.boolean_mask(rows, kept), tf.size(texts, tf.int64)
    ).merge_dims(1, 2)


@as_written
def tokenize_byte_level(
    tokenizer: Tokenizer, inputs: Any, other_tokens: str = ""
) -> TFTensor | TFRagged:
    """Tokenize as the published byte-level BPE does. Works in a graph.

    Tokens that are never split, the special ones, are found in the text first. A zero
    byte, at which RE2 takes a text to end in TensorFlow, is a space.

    Args:
        tokenizer: a `keras_hub.tokenizers.BytePairTokenizer`.
        inputs: string, or strings of shape `(batch,)`, in UTF-8.
        other_tokens: an expression of RE2. What matches is a token as well.

    Returns:
        As `keras_hub.tokenizers.BytePairTokenizer`, but ragged in eager mode, too.

    Raises:
        ValueError: for strings of another rank.
    """
    with tf.device("CPU:0"):
        texts = tf.convert_to_tensor(inputs)
        single = texts.shape.rank == 0
        if not single and texts.shape.rank != 1:
            raise ValueError(
                "`inputs` must be a string, a list of strings or a string tensor with "
                f"rank < 2. Received: {inputs}."
            )
        texts = without_nul(tf.reshape(texts, [-1]))
        whole = sorted(tokenizer.unsplittable_tokens or (), key=len, reverse=True)
        choices = [re.escape(token) for token in whole]
        choices += [other_tokens] if other_tokens else []
        parts = _row_of_parts(texts, "|".join(choices))
        flat = parts.flat_values
        is_token = tf.zeros(tf.size(flat), bool)
        if choices:
            is_token = tf.strings.regex_full_match(flat, "|".join(choices))
        if tokenizer.add_prefix_space:
            bare = tf.strings.regex_full_match(flat, r"[^ ](?s:.*)")
            flat = tf.where(bare & ~is_token, tf.strings.join([" ", flat]), flat)
        tokens = _merged(tokenizer, words_of(tf.where(is_token, "", flat)))
        own = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(flat, is_token), tf.cast(is_token, tf.int64)
        )
        tokens = tf.concat([tokens, own], 1)
        if tokenizer.compute_dtype != "string":
            ids = tokenizer.token_to_id_map.lookup(tokens.flat_values)
            tokens = tokens.with_flat_values(ids)
        rows = parts.with_flat_values(tokens).merge_dims(1, 2)
        if tokenizer.sequence_length:
            rows = rows.to_tensor(shape=[None, tokenizer.sequence_length])
        return rows[0] if single else rows


def _row_of_parts(texts, pattern):
    """Texts in parts, of which some match the pattern."""
    if not pattern:
        return tf.RaggedTensor.from_uniform_row_length(texts, 1)
    return tf_text.regex_split(texts, pattern, pattern)


def _merged(tokenizer, words):
    """Split words into tokens, `(batch, None)`, as strings of the vocabulary."""
    different, places = tf.unique(words.flat_values)
    known = tokenizer.cache.lookup(different)
    new = tf.boolean_mask(different, known == "")

    def merged():
        tokenizer._bpe_merge_and_update_cache_tf(new)
        return tokenizer.cache.lookup(different)

    known = tf.cond(tf.size(new) > 0, merged, lambda: known)
    # A sign of a byte is never a space.
    tokens = tf.gather(tf.strings.split(known, " "), places)
    return words.with_flat_values(tokens).merge_dims(1, 2)
