"""Merges of byte pairs in the graph, as in Sennrich et al. (2016).

KerasHub's loop gives the same result with nine hundred operations, which took a third
of the time to build a dataset's graph. KerasHub's table caches the tokens of words.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer

_LONGEST_REMEMBERED = 64  # characters


def as_given(vocabulary: Any, merges: Any) -> list[Any]:
    """Turn paths of a vocabulary and merges into strings, as KerasHub takes them.

    Raises:
        ValueError: as `check_ids`, for a dict.
    """
    if isinstance(vocabulary, Mapping):
        check_ids(vocabulary)  # before KerasHub makes tables, which fails in C++
    given = (vocabulary, merges)
    return [os.fspath(x) if isinstance(x, os.PathLike) else x for x in given]


def check_ids(vocabulary: Mapping[str, int] | None) -> None:
    """Raise a `ValueError` unless the ids of a vocabulary are 0, 1, 2, ..."""
    if vocabulary is None:
        return
    ids = sorted(vocabulary.values())
    wrong = next((n for n, number in enumerate(ids) if n != number), None)
    if wrong is not None:
        raise ValueError(
            "`vocabulary` must have the ids 0, 1, 2, ..., each once. Received: "
            f"{ids[wrong]} in the place of {wrong}."
        )


def refuse_prefix_space(tokenizer: Tokenizer, arguments: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a tokenizer that puts no space before a text."""
    if arguments.get("add_prefix_space"):
        raise ValueError(
            f"`add_prefix_space` must be `False` for a {type(tokenizer).__name__}, "
            "which adds no space. Received: True."
        )


def merged_words(
    tokenizer: Tokenizer, words: TFRagged, letters_of: Callable[[TFTensor], TFRagged]
) -> TFRagged:
    """Split words into tokens. Works in a graph.

    Args:
        tokenizer: a `keras_hub.tokenizers.BytePairTokenizer`.
        words: ragged string tensor of shape `(batch, None)`.
        letters_of: function from words, a string tensor of shape `(n,)`, to the letters
            that are merged, ragged strings of shape `(n, None)`.

    Returns:
        Ragged string tensor of shape `(batch, words, tokens)`.
    """
    different, places = tf.unique(words.flat_values)
    known = tokenizer.cache.lookup(different)
    new = ragged.keep(different, known == "")

    def merged():
        tokens = _merge(tokenizer, letters_of(new))
        # Long "words" are texts without spaces, which seldom come again.
        short = tf.strings.length(new, "UTF8_CHAR") <= _LONGEST_REMEMBERED
        tokenizer.cache.insert(ragged.keep(new, short), ragged.keep(tokens, short))
        return tf.tensor_scatter_nd_update(known, tf.where(known == ""), tokens)

    found = tf.cond(tf.size(new) > 0, merged, lambda: known)
    # A space can separate tokens: the signs for bytes and the letters of words have no
    # space among them.
    tokens = tf.gather(tf.strings.split(found, " "), places)
    return words.with_flat_values(tokens)


# The most letters that are merged at once, padding of short words included.
_AT_ONCE = 1 << 18


def _merge(tokenizer, letters):
    """Merge words, the longest first, in groups that fit into memory.

    Args:
        tokenizer: a `keras_hub.tokenizers.BytePairTokenizer`.
        letters: ragged string tensor of shape `(n, None)`.

    Returns:
        String tensor of shape `(n,)`: tokens with spaces between them.
    """
    lengths = letters.row_lengths()
    order = tf.argsort(lengths, direction="DESCENDING")
    count = tf.size(order)

    def merge_group(words, longest):
        def one_place():
            return _merge_at_once(tokenizer, words, False)

        if not getattr(tokenizer, "merges_in_order", False):
            return one_place()
        # Steps over one place are cheaper; those over all places are much fewer.
        return tf.cond(
            longest > _LONGEST_REMEMBERED,
            lambda: _merge_at_once(tokenizer, words, True),
            one_place,
        )

    def merge_some(start, done):
        longest = tf.cast(lengths[order[start]], tf.int32)
        some = order[start : start + tf.maximum(_AT_ONCE // (longest + 2), 1)]
        merged = merge_group(tf.gather(letters, some), longest)
        done = tf.tensor_scatter_nd_update(done, some[:, None], merged)
        return start + tf.size(some), done

    _, done = tf.while_loop(
        lambda start, done: start < count, merge_some, (0, tf.fill([count], ""))
    )
    return done


def _merge_at_once(tokenizer, letters, all_places):
    """Merge the pair of the lowest rank in each word, until no pair is left.

    Each step merges one pair of each word, and sets words without a pair aside. With
    the merges `l o`, `lo w`, in this order:

        l o w   n o t         lo w   n o t is done
        lo w                  low
        low                   is done

    Args:
        tokenizer: a `keras_hub.tokenizers.BytePairTokenizer`.
        letters: ragged string tensor of shape `(n, None)`.
        all_places: bool. Whether a step merges all places of a word's pair, which gives
            the same where merges are in order.

    Returns:
        String tensor of shape `(n,)`: tokens with spaces between them.
    """
    ranks, none = tokenizer.merge_ranks, tokenizer.merge_ranks_lookup_default
    count = letters.nrows()
    # Each row ends in "", so that there are always two columns.
    tokens = tf.pad(letters.to_tensor(""), [[0, 0], [0, 2]])

    def step(tokens, numbers, done):
        first, second = tokens[:, :-1], tokens[:, 1:]
        rank = ranks.lookup(tf.strings.join([first, second], " "))
        rank = tf.where(second == "", none, rank)
        mergeable = tf.reduce_min(rank, 1) < none
        finished = ~mergeable
        joined = tf.strings.reduce_join(ragged.keep(tokens, finished), 1, separator=" ")
        done = tf.tensor_scatter_nd_update(
            done,
            ragged.keep(numbers, finished)[:, None],
            tf.strings.regex_replace(joined, " +$", ""),
        )
        first, second, rank = (ragged.keep(x, mergeable) for x in (first, second, rank))
        if all_places:
            joins = _apart(rank == tf.reduce_min(rank, 1)[:, None])
            tokens = tf.where(joins, tf.strings.join([first, second]), first)
            gone = tf.pad(joins, [[0, 0], [1, 0]])[:, :-1]
            tokens = ragged.keep_in_matrix(tokens, ~gone).to_tensor("")
            # The longest row ends in "" again.
            tokens = tf.pad(tokens, [[0, 0], [0, 1]])
            return tokens, ragged.keep(numbers, mergeable), done
        at = tf.argmin(rank, 1)[:, None]
        place = tf.range(tf.shape(rank, tf.int64)[1])[None]
        pair = tf.where(place == at, tf.strings.join([first, second]), second)
        tokens = tf.where(place < at, first, pair)
        return tokens, ragged.keep(numbers, mergeable), done

    shapes: Any = (tf.TensorShape([None, None]), *[tf.TensorShape([None])] * 2)
    _, _, done = tf.while_loop(
        lambda tokens, numbers, done: tf.size(numbers) > 0,
        step,
        (tokens, tf.range(count), tf.fill([count], "")),
        shapes,
    )
    return done


def _apart(chosen):
    """Choose every other one of places side by side, as of `a a` in `a a a a a`.

    Args:
        chosen: bool tensor of shape `(n, m)`, whose last column is `False`.
    """
    flat = tf.reshape(chosen, [-1])
    starts = flat & ~tf.concat([[False], flat[:-1]], 0)
    # Before the first start, no place is chosen.
    start = tf.concat([[0], tf.where(starts)[:, 0]], 0)
    since = tf.range(tf.size(flat, tf.int64)) - tf.gather(
        start, tf.cumsum(tf.cast(starts, tf.int64))
    )
    return tf.reshape(flat & (since % 2 == 0), tf.shape(chosen))


def are_in_order(merges: Sequence[str]) -> bool:
    """Tell whether each merge is of tokens that only merges before it make.

    Then what a merge makes is part of later merges only, and all places of one pair
    are merged before any of another that comes of them. So are merges that were
    learned.

    Args:
        merges: list of pairs with a space between them.
    """
    last: dict[str, int] = {}
    pairs = [merge.split(" ") for merge in merges]
    for rank, pair in enumerate(pairs):
        last["".join(pair)] = rank
    return not any(
        last.get(part, -1) >= rank for rank, pair in enumerate(pairs) for part in pair
    )


def once_traced(
    tokenizer: Tokenizer, rows_of: Callable[[TFTensor], TFRagged]
) -> Callable[[TFTensor], TFRagged]:
    """Let eager calls of a function of texts share one graph.

    Args:
        tokenizer: a tokenizer of byte pairs, whose vocabulary may be replaced.
        rows_of: callable from strings of shape `(batch,)` to a ragged tensor.
    """
    # The table of a vocabulary, and the traced function. One tuple holds both, so that
    # other threads see them change together.
    traced: list[tuple[Any, Any]] = [(None, None)]

    def rows_once_traced(texts):
        if not tf.executing_eagerly():
            return rows_of(texts)
        cache, call = traced[0]
        if cache is not tokenizer.cache:  # the vocabulary was replaced
            call = tf.function(
                rows_of,
                input_signature=[tf.TensorSpec([None], tf.string)],
                autograph=False,
            )
            traced[0] = (tokenizer.cache, call)
        return call(texts)

    return rows_once_traced
