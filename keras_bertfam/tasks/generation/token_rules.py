"""Apply rules to the next token: penalties, forced and forbidden tokens."""

import itertools
from typing import Any

from keras import ops

from keras_bertfam.tasks.generation.compiled_kinds import is_known_as
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.types import Tensor

# The score of a forbidden token. It is finite, so that sums of it aren't NaN.
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
    """Change the scores of the next token according to the settings.

    Args:
        scores: float tensor `(rows, vocabulary)`: logits or log-probabilities.
        texts: int32 tensor `(rows, length)`. Tokens from `index` on aren't read.
        index: int32 scalar, the position of the next token.
        starts: int32 tensor `(rows,)`, how many tokens each text began with.
        stop: int32 tensor `(rows, count)`, the ids that end each row's text, filled up
            with negative numbers; or `None`.
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
    if settings.forced_second_token is not None:
        begins = ops.expand_dims((starts == index) & (starts == 1), 1)
        scores = _forced(scores, begins, settings.forced_second_token)
    if settings.forced_first_token is not None:  # also if a model's own is another
        begins = ops.expand_dims(starts == index, 1)
        scores = _forced(scores, begins, settings.forced_first_token)
    if settings.forced_last_token is not None:
        most = texts.shape[1] if limits is None else ops.expand_dims(limits, 1)
        ends = index == most - 1
        scores = _forced(scores, ends, settings.forced_last_token)
    return scores


def _forced(scores, where, token):
    """Give the score 0 to one token that has to come, and forbid the others."""
    place = ops.arange(scores.shape[-1], dtype="int32") == token
    only = ops.cast(ops.where(place, 0.0, BANNED), scores.dtype)
    return ops.where(where, ops.expand_dims(only, 0), scores)


def _marked(ids, size):
    """Mark which of the ids below `size` are in a row: bool `(rows, size)`.

    For `[[2, -1, 0]]` and 4 the result is `[[True, False, True, False]]`. Numbers that
    aren't ids go to an extra column, which is cut off.
    """
    ids = ops.where((ids >= 0) & (ids < size), ids, size)
    rows = ops.expand_dims(ops.arange(ops.shape(ids)[0], dtype="int32"), 1)
    places = ops.stack([ops.broadcast_to(rows, ops.shape(ids)), ids], -1)
    places = ops.reshape(places, (-1, 2))
    marks = ops.zeros((ops.shape(ids)[0], size + 1), "int32")
    marks = ops.scatter_update(marks, places, ops.ones_like(places[:, 0]))
    return marks[:, :size] > 0


def _last(texts, index, count):
    """Take the `count` tokens before `index`, `(rows, count)`; -1 before a start."""
    padded = ops.pad(texts, [[0, 0], [count, 0]], constant_values=-1)
    return ops.slice(padded, [0, index], [ops.shape(texts)[0], count])


def _ends_of_ngrams(texts, index, count):
    """Find the tokens that would repeat an n-gram of the text; -1 elsewhere.

    For the text 5 6 7 5 and n-grams of 2, a 6 would repeat 5 6, since the last token is
    5. The windows 56, 67 and 75 begin with 5, 6 and 7. Only the first begins with the
    last token, so the result is 6, -1, -1.
    """
    windows = texts.shape[1] - count + 1
    last = _last(texts, index, count - 1)
    same = ops.arange(windows, dtype="int32") + count <= index
    same = ops.broadcast_to(same, ops.shape(texts[:, :windows]))
    for k in range(count - 1):
        same = same & (texts[:, k : k + windows] == last[:, k : k + 1])
    return ops.where(same, texts[:, count - 1 :], -1)


def _ends_of_words(texts, index, words):
    """Find the tokens that would complete one of the words; -1 elsewhere."""
    count = len(words[0]) - 1
    ends = ops.expand_dims(ops.array([word[-1] for word in words], "int32"), 0)
    if not count:
        return ops.broadcast_to(ends, (ops.shape(texts)[0], len(words)))
    begun = ops.expand_dims(_last(texts, index, count), 1)
    begins = ops.expand_dims(ops.array([word[:-1] for word in words], "int32"), 0)
    return ops.where(ops.all(begun == begins, axis=-1), ends, -1)
