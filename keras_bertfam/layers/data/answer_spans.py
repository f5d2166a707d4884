"""Where answers are in passages, by their strings, and what spans of tokens say."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.types import TFRagged


def answer_spans(
    passage: bytes, bounds: np.ndarray, answers: list[bytes], max_length: int
) -> list[tuple[int, int]]:
    """Find the spans of tokens that are one of the answers.

    Case and how much white space there is make no difference; an answer is made of
    whole words.

    Args:
        passage: bytes in UTF-8.
        bounds: int array `(tokens, 2)`, the bytes where each token starts and ends, of
            a part of the passage from its beginning.
        answers: list of bytes.
        max_length: int. The most tokens of a span.

    Returns:
        A list of the first and last tokens of each.
    """
    text = passage.decode()
    at = np.cumsum([0, *(len(char.encode()) for char in text)])
    found = []
    for answer in answers:
        for match in _pattern(answer).finditer(text):
            begin, end = at[match.start()], at[match.end()]
            first = int(np.sum(bounds[:, 1] <= begin))
            last = int(np.sum(bounds[:, 0] < end)) - 1
            # A passage may be cut in the middle of an answer.
            if first <= last < first + max_length and bounds[last, 1] >= end:
                found.append((first, last))
    return found


@functools.lru_cache(maxsize=1024)
def _pattern(answer):
    words = answer.decode().split()
    if not words:
        return re.compile("(?!)")  # which is nowhere
    before, after = (
        r"\b" if re.match(r"\w", char) else "" for char in (words[0][0], words[-1][-1])
    )
    inside = r"\s+".join(map(re.escape, words))
    return re.compile(before + inside + after, re.IGNORECASE)


def span_targets(
    passages: np.ndarray,
    bounds: np.ndarray,
    splits: np.ndarray,
    first: np.ndarray,
    answers: np.ndarray,
    answer_splits: np.ndarray,
    shape: tuple[int, int, int],
) -> np.ndarray:
    """Mark which spans of rows are answers.

    Args:
        passages: array of bytes `(rows,)`, the same number of them for each question.
        bounds: int array `(tokens of all rows, 2)`, see `answer_spans`.
        splits: int array `(rows + 1,)`, where the tokens of each row begin.
        first: int array `(rows,)`, the place in the row of its passage's first token.
        answers: array of bytes `(answers of all questions,)`.
        answer_splits: int array `(questions + 1,)`.
        shape: tuple of the passages of a question, and of the tokens of rows and spans.

    Returns:
        bool array `(questions, *shape)`, as `SpanScores` gives scores.
    """
    count, length, width = shape
    targets = np.zeros((len(passages), length, width), bool)
    for row, passage in enumerate(passages):
        question = row // count
        own = answers[answer_splits[question] : answer_splits[question + 1]].tolist()
        tokens = bounds[splits[row] : splits[row + 1]]
        for begin, end in answer_spans(passage, tokens, own, width):
            targets[row, first[row] + begin, end - begin] = True
    return targets.reshape(-1, *shape)


def as_characters(passage: bytes, begin: int, end: int) -> tuple[int, int]:
    """Convert byte positions to positions of the characters that hold the bytes."""
    follows = np.frombuffer(passage, np.uint8) >> 6 == 0b10
    in_the_middle = begin < len(passage) and bool(follows[begin])
    start = int(np.sum(~follows[:begin])) - in_the_middle
    return start, int(np.sum(~follows[:end]))


def as_answers(y: Any, count: int) -> TFRagged:
    """Convert answers, in one of the forms that users give, to strings.

    Args:
        y: a list with a string, a list of strings, or SQuAD's dict with a list `text`
            for each question; one of these alone for one question; or string tensors.
        count: int. How many questions.

    Returns:
        Ragged string tensor `(count, None)`.

    Raises:
        ValueError: for anything else, or a question without an answer.
    """
    if tf.is_tensor(y):
        return _as_ragged(y)
    if isinstance(y, (str, Mapping)):
        y = [y]
    if not hasattr(y, "__len__") or len(y) != count:
        raise ValueError(
            f"`y` must be a list of the answers to {count} questions. Received: {y!r}."
        )
    return tf.ragged.constant([_answers(v, k) for k, v in enumerate(y)], tf.string)


def _as_ragged(y):
    """Convert answers, one or several to a row, to a ragged tensor `(batch, None)`."""
    if isinstance(y, tf.RaggedTensor):
        return y
    y = y if y.shape.rank == 2 else tf.reshape(y, [-1, 1])
    return tf.RaggedTensor.from_tensor(y)


def _answers(value, number):
    """List the answers to a question as strings."""
    texts = value.get("text") if isinstance(value, Mapping) else value
    texts = [texts] if isinstance(texts, (str, bytes)) else texts
    texts = texts.tolist() if isinstance(texts, np.ndarray) else texts
    strings = isinstance(texts, (list, tuple)) and all(
        isinstance(text, (str, bytes)) and text.strip() for text in texts
    )
    if not strings or not texts:
        raise ValueError(
            "`y` must have a string or a list of strings for each question, its "
            f"answers, of which none is empty. Received: {value!r}, of question "
            f"{number}."
        )
    return list(texts)
