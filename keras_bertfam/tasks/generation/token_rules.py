"""Rules of the next token: penalties, and tokens that may not come."""

import itertools
from typing import Any

from keras import ops

from keras_bertfam.tasks.generation.compiled_kinds import is_known_as
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.types import Tensor

# The score of a token that may not come. It is finite, so that sums of it are no NaN.
BANNED = -1e9


def apply_rules(
    scores: Tensor,
    texts: Tensor,
    index: Any,
    starts: Tensor,
    stop: Tensor | None,
    settings: GenerationSettings,
    limits: Tensor | None = None,
) -> Tensor:
    """Change scores of the next token as the settings say.

    Args:
        scores: float tensor `(rows, vocabulary)`: logits or log-probabilities.
        texts: int32 tensor `(rows, length)`. What follows `index` isn't read.
        index: int32 scalar, the place of the next token.
        starts: int32 tensor `(rows,)`, the tokens that each text began with.
        stop: int32 tensor `(rows, count)`, the ids that end each row's text, with
            negative ones to fill it up; or `None`.
        settings: `GenerationSettings`, with ids for `bad_words`.
        limits: int32 tensor `(rows,)`, the most tokens of each text; `None` for the
            length of the rows.

    Returns:
        Tensor like `scores`.
    """
    size = scores.shape[-1]
    if not is_known_as(settings.repetition_penalty, 1):
        penalty = settings.repetition_penalty
        there = ops.arange(texts.shape[1], dtype="int32") < index
        other = ops.where(scores < 0, scores * penalty, scores / penalty)
        seen = _marked(ops.where(there, texts, -1), size)
        scores = ops.where(seen, other, scores)
    banned = []
    if 0 < settings.no_repeat_ngram_size <= texts.shape[1]:
        banned.append(_ends_of_ngrams(texts, index, settings.no_repeat_ngram_size))
    for _, words in itertools.groupby(sorted(settings.bad_words, key=len), len):
        banned.append(_ends_of_words(texts, index, [*words]))
    if stop is not None and not is_known_as(settings.min_new_tokens, 0):
        early = ops.expand_dims(index - starts < settings.min_new_tokens, 1)
        banned.append(ops.where(early, stop, -1))
    if stop is not None and not is_known_as(settings.min_length, 0):
        banned.append(ops.where(index < settings.min_length, stop, -1))
    if banned:
        marks = _marked(ops.concatenate(banned, 1), size)
        scores = ops.where(marks, BANNED, scores)
    if settings.forced_first_token is not None:
        begins = ops.expand_dims(starts == index, 1)
        scores = _forced(scores, begins, settings.forced_first_token)
    if settings.forced_second_token is not None:
        begins = ops.expand_dims((starts == index) & (starts == 1), 1)
        scores = _forced(scores, begins, settings.forced_second_token)
    if settings.forced_last_token is not None:
        most = texts.shape[1] if limits is None else ops.expand_dims(limits, 1)
        ends = index == most - 1
        scores = _forced(scores, ends, settings.forced_last_token)
    return scores


def _forced(scores, where, token):
    """Give scores of one token that has to come, 0, and of the others."""
    place = ops.arange(scores.shape[-1], dtype="int32") == token
    only = ops.cast(ops.where(place, 0.0, BANNED), scores.dtype)
    return ops.where(where, ops.expand_dims(only, 0), scores)


def _marked(ids, size):
    """Mark which of the ids below `size` a row has: bool `(rows, size)`.

    Of `[[2, -1, 0]]` and 4 these are `[[True, False, True, False]]`: what is no id goes
    to a column of its own, which is cut off.
    """
    ids = ops.where((ids >= 0) & (ids < size), ids, size)
    rows = ops.expand_dims(ops.arange(ops.shape(ids)[0], dtype="int32"), 1)
    places = ops.stack([ops.broadcast_to(rows, ops.shape(ids)), ids], -1)
    places = ops.reshape(places, (-1, 2))
    marks = ops.zeros((ops.shape(ids)[0], size + 1), "int32")
    marks = ops.scatter_update(marks, places, ops.ones_like(places[:, 0]))
    return marks[:, :size] > 0


def _last(texts, index, count):
    """Take the `count` tokens before `index`, -1 before a text: `(rows, count)`."""
    padded = ops.pad(texts, [[0, 0], [count, 0]], constant_values=-1)
    return ops.slice(padded, [0, index], [ops.shape(texts)[0], count])


def _ends_of_ngrams(texts, index, count):
    """Find what made an n-gram of tokens such as the last, -1 elsewhere.

    Of a text 5 6 7 5 and n-grams of 2 the last token is 5, and 6 came after it: the
    windows 56, 67 and 75 begin with 5, 6 and 7, so the ends are 6, -1, -1.
    """
    windows = texts.shape[1] - count + 1
    last = _last(texts, index, count - 1)
    same = ops.arange(windows, dtype="int32") + count <= index
    same = ops.broadcast_to(same, ops.shape(texts[:, :windows]))
    for k in range(count - 1):
        same = same & (texts[:, k : k + windows] == last[:, k : k + 1])
    return ops.where(same, texts[:, count - 1 :], -1)


def _ends_of_words(texts, index, words):
    """Find the last tokens of words that a text has come to, -1 elsewhere."""
    count = len(words[0]) - 1
    ends = ops.expand_dims(ops.array([word[-1] for word in words], "int32"), 0)
    if not count:
        return ops.broadcast_to(ends, (ops.shape(texts)[0], len(words)))
    begun = ops.expand_dims(_last(texts, index, count), 1)
    begins = ops.expand_dims(ops.array([word[:-1] for word in words], "int32"), 0)
    return ops.where(ops.all(begun == begins, axis=-1), ends, -1)
