"""Similar words in place of masks: a table that finds words by their tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.corruption.replacement import check_ids
from keras_bertfam.layers.data.seeding import random_uniform
from keras_bertfam.tokenizers.pipeline_ops import (
    as_graph_layer,
    tokenize,
    word_prefix,
)
from keras_bertfam.types import TFTensor, Tokenizer

# Pairs: a word's ids, and the ids of each word that may replace it.
SimilarTokens = Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]]
# Any odd number whose powers spread over 64 bits.
_FACTOR = 6364136223846793005


class SimilarWordTable:
    """Finds words by their tokens, and draws similar words with equally many tokens.

    A word is found by a 64-bit hash of its ids. A word outside the table has the hash
    of a given word in the table with a probability of 1 in 2 ** 64.

    Args:
        similar_tokens: list of pairs: the ids of a word, and a list of the ids of
            similar words, each with equally many ids.
        vocabulary_size: int.

    Raises:
        ValueError: for a word that has no ids, comes twice, has no similar words, or
            has one of another length; and for ids outside the vocabulary.
    """

    def __init__(self, similar_tokens: SimilarTokens, vocabulary_size: int) -> None:
        words = [tuple(ids) for ids, _ in similar_tokens]
        if not words or len({*words}) < len(words):
            raise ValueError(
                "`similar_tokens` must have at least one word, and no word twice. "
                f"Received: {len(words)} words, {len({*words})} of them different."
            )
        for ids, others in similar_tokens:
            if not ids or not others or {len(ids)} != {len(each) for each in others}:
                raise ValueError(
                    "`similar_tokens` must list similar words, with as many ids as the "
                    "word itself. "
                    f"Received: {list(ids)} with {list(others)}."
                )
        check_ids(
            vocabulary_size,
            similar_tokens=[
                i for ids, others in similar_tokens for x in (ids, *others) for i in x
            ],
        )
        longest = max(map(len, words))
        with np.errstate(over="ignore"):  # products overflow 64 bits, as in the graph
            factor = np.array(_FACTOR, "int64")
            self._powers = np.cumprod(np.full(longest, factor))
            hashes = np.array(
                [
                    ((np.array(ids, "int64") + 1) * self._powers[: len(ids)]).sum()
                    for ids in words
                ]
            )
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        if (self._hashes[1:] == self._hashes[:-1]).any():
            raise ValueError(
                "`similar_tokens` has two words with the same hash. Remove one of them."
            )
        rows = [similar_tokens[k] for k in order]
        self._sizes = np.array([len(ids) for ids, _ in rows], "int32")
        self._counts = np.array([len(others) for _, others in rows], "int32")
        lengths = self._sizes * self._counts
        self._begins = (np.cumsum(lengths) - lengths).astype("int32")
        flat = [i for _, others in rows for ids in others for i in ids]
        self._tokens = np.array(flat, "int32")

    def draw(
        self, originals: TFTensor, words: TFTensor, others: TFTensor, seed: TFTensor
    ) -> TFTensor:
        """Draw a similar word for each word, all equally likely.

        Args:
            originals: int32 tensor of shape `(n,)`.
            words: int32 tensor of that shape, 0, 0, 1, ...: the word of each token.
            others: int32 tensor of that shape: the result for tokens of words that
                have no similar word.
            seed: integer tensor of shape `(2,)`.

        Returns:
            int32 tensor of shape `(n,)`.
        """
        # Example: the words 7 8 | 5, and a table in which 7 8 has the similar words 1 2
        # and 3 4. The second is drawn: the result is 3 4, then `others` for 5.
        places = tf.range(tf.size(originals))
        place = places - tf.gather(tf.math.segment_min(places, words), words)
        sizes = tf.math.segment_sum(tf.ones_like(words), words)
        power = tf.gather(self._powers, tf.minimum(place, len(self._powers) - 1))
        terms = (tf.cast(originals, tf.int64) + 1) * power
        hashes = tf.math.segment_sum(terms, words)
        at = tf.searchsorted(self._hashes, hashes)
        at = tf.minimum(at, len(self._hashes) - 1)
        known = tf.gather(self._hashes, at) == hashes
        known &= tf.gather(self._sizes, at) == sizes
        counts = tf.cast(tf.gather(self._counts, at), tf.float64)
        drawn = random_uniform(tf.shape(sizes), seed, dtype=tf.float64)
        drawn = tf.cast(drawn * counts, tf.int32)
        begin = tf.gather(self._begins, at) + drawn * sizes
        index = tf.minimum(tf.gather(begin, words) + place, len(self._tokens) - 1)
        similar = tf.gather(self._tokens, index)
        return tf.where(tf.gather(known, words), similar, others)


def tokens_of_words(
    tokenizer: Tokenizer, similar_words: Mapping[str, Sequence[str]]
) -> list[tuple[list[int], list[list[int]]]]:
    """Tokenise a table of similar words.

    Words that the tokenizer doesn't know are left out. So are similar words with
    another number of tokens, since they would move all tokens after them.

    Args:
        tokenizer: a tokenizer layer.
        similar_words: dict from words to lists of similar ones.

    Returns:
        What `SimilarWordTable` takes.

    Raises:
        ValueError: if no word is left.
    """
    words = [*dict.fromkeys([*similar_words, *others_of(similar_words)])]
    prefix = word_prefix(tokenizer)
    texts = tf.constant([prefix + word for word in words], tf.string)
    rows = tokenize(as_graph_layer(tokenizer), texts).to_list() if words else []
    ids = dict(zip(words, rows, strict=True))
    unknown = {
        i for i, token in enumerate(tokenizer.get_vocabulary()) if token in _UNKNOWN
    }
    found: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
    for word, others in similar_words.items():
        own = tuple(ids[word])
        if not own or unknown & {*own}:
            continue
        for other in map(tuple, (ids[other] for other in others)):
            if len(other) == len(own) and other != own and not unknown & {*other}:
                found.setdefault(own, {})[other] = None
    if not found:
        raise ValueError(
            "`similar_words` must have at least one word with a similar word of as "
            f"many tokens of the {type(tokenizer).__name__}. Received: "
            f"{len(similar_words)} words, all without."
        )
    return [([*own], [[*other] for other in others]) for own, others in found.items()]


_UNKNOWN = ("[UNK]", "<unk>")


def others_of(similar_words: Mapping[str, Any]) -> list[str]:
    """List all similar words of a table; raise a `ValueError` if it is malformed."""
    for word, others in similar_words.items():
        fits = isinstance(word, str) and isinstance(others, Sequence)
        if (
            not fits
            or isinstance(others, str)
            or not all(isinstance(other, str) for other in others)
        ):
            raise ValueError(
                "`similar_words` must be a dict from words to lists of words. "
                f"Received: {word!r} with {others!r}."
            )
    return [other for others in similar_words.values() for other in others]
