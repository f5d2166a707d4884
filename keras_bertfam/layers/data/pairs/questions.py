"""Questions with windows of their contexts, and the places of answers in them."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.pairs.segments import Layout, lay_out
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer


def make_windows(
    questions: TFRagged,
    contexts: TFRagged,
    tokenizer: Tokenizer,
    layout: Layout,
    sequence_length: int,
    stride: int,
) -> dict[str, TFTensor]:
    """Lay questions and windows of their contexts out in rows.

    A window begins `stride` tokens after the window before it. If rows hold fewer than
    `stride` tokens of a context, it begins where the window before it ended. The last
    window reaches the context's end.

    Args:
        questions: ragged int32 tensor `(batch, None)`.
        contexts: ragged int32 tensor `(batch, None)`.
        tokenizer: its `start_token_id` and `end_token_id` are used.
        layout: a `Layout`. With `start_last`, the context comes first.
        sequence_length: int. The most tokens in a row.
        stride: int.

    Returns:
        A dict of tensors with a row for each window, in the order of the examples.
        Four are ragged: `token_ids` and `segment_ids`, int32; `span_mask`, bool, true
        for tokens of the context; and `start_mask`, bool, true for tokens that have no
        more context around them in another window. Five are int32 `(windows,)`:
        `example`, the example's number; `first`, the place of the window's first token
        in the context; `size`, the window's number of tokens; `context_at`, the place
        of its first token in the row; and `cls_position`.
    """
    # Example: question 9, context 11 12 13 14 15, rows of 7, a stride of 2:
    # token_ids       1  9  2 11 12 13  2 |  1  9  2 13 14 15  2
    # first = 0, 2; context_at = 3, 3. The token 13 has as much context in both windows;
    # its `start_mask` is true in the first.
    lengths = tf.cast(contexts.row_lengths(), tf.int32)
    budget = sequence_length - layout.specials(2)
    budget -= tf.cast(questions.row_lengths(), tf.int32)
    step = tf.minimum(stride, budget)
    beyond = tf.maximum(lengths - budget, 0)
    counts = 1 + (beyond + step - 1) // step
    example = tf.repeat(tf.range(tf.size(counts)), counts)
    number = tf.ragged.range(counts).flat_values
    budget, step, length, count = (
        tf.gather(x, example) for x in (budget, step, lengths, counts)
    )
    first = number * step
    size = tf.minimum(budget, length - first)
    begin = first + tf.cast(tf.gather(contexts.row_starts(), example), tf.int32)
    places = tf.ragged.range(begin, begin + size)
    flat = tf.gather(contexts.flat_values, places.flat_values)
    segments = [tf.gather(questions, example), places.with_flat_values(flat)]
    if layout.start_last:
        segments = segments[::-1]
        context_at = tf.zeros_like(first)
    else:
        asked = tf.cast(segments[0].row_lengths(), tf.int32)
        context_at = layout.first + asked + layout.separators
    row = lay_out(segments, tokenizer, layout)
    lengths = tf.cast(row["token_ids"].row_lengths(), tf.int32)
    window = {"first": first, "size": size, "context_at": context_at}
    span_mask, start_mask = _masks(
        row["token_ids"],
        window,
        {"number": number, "count": count, "step": step, "budget": budget},
        length,
        overlaps=-(-sequence_length // stride),
    )
    return {
        **row,
        **window,
        "span_mask": span_mask,
        "start_mask": start_mask,
        "example": example,
        "cls_position": lengths - 1 if layout.start_last else tf.zeros_like(first),
    }


def _masks(token_ids, window, series, length, overlaps):
    """Tell which tokens of rows are of the context, and have most context here.

    A token's context is the number of the window's tokens before or after it, whichever
    is less, plus a hundredth of the window's size.
    """
    rows = token_ids.value_rowids()
    place = tf.cast(tf.ragged.range(token_ids.row_lengths()).flat_values, tf.int32)

    def of_row(x):
        return tf.gather(x, rows)

    first, size, at = (of_row(window[k]) for k in ("first", "size", "context_at"))
    inside = (place >= at) & (place < at + size)
    token = first + place - at

    def context(first, size):
        left, right = token - first, first + size - 1 - token
        score = tf.cast(tf.minimum(left, right), tf.float32)
        return score + 0.01 * tf.cast(size, tf.float32)

    number, count, step, budget = map(of_row, series.values())
    here, most, length = context(first, size), inside, of_row(length)
    for offset in range(-overlaps, overlaps + 1):
        other = first + offset * step
        there = tf.minimum(budget, length - other)
        reaches = (token >= other) & (token < other + there)
        reaches &= (number + offset >= 0) & (number + offset < count)
        # Among windows with equal context the first counts.
        score = context(other, there)
        better = score > here if offset > 0 else score >= here
        if offset:
            most &= ~(reaches & better)
    return token_ids.with_flat_values(inside), token_ids.with_flat_values(most)


def join_answers(
    spans: dict[str, TFTensor],
    windows: dict[str, TFTensor],
    offsets: tuple[TFRagged, TFRagged],
    contexts: TFTensor,
    count: int,
) -> dict[str, TFTensor]:
    """Choose the best answers of each question, over its windows.

    Args:
        spans: dict of the task's outputs for windows: `starts` and `ends`, int
            `(windows, spans)`, `scores`, float of that shape, and `no_answer`,
            float `(windows,)`.
        windows: what `make_windows` returned.
        offsets: tuple of two ragged int32 tensors `(batch, None)`, the bytes where
            the tokens of the contexts start and end.
        contexts: string tensor `(batch,)`.
        count: int. Number of answers to a question.

    Returns:
        A dict of `text`, string `(batch, count)`; `start` and `end`, int32 of that
        shape, in characters of the context; `score`, float32 of that shape, the
        greatest first; `no_answer`, float32 `(batch,)`. A missing answer has the text
        `""`, and -1 as `start` and `end`.
    """
    batch = tf.size(contexts)
    shift = (windows["first"] - windows["context_at"])[:, None]

    def by_example(x, fill):
        width = tf.shape(x)[1]
        owner = tf.repeat(windows["example"], width)
        rows = tf.RaggedTensor.from_value_rowids(
            tf.reshape(x, [-1]), owner, nrows=batch
        )
        dense = rows.to_tensor(fill)
        return tf.pad(dense, [[0, 0], [0, count]], constant_values=fill)

    scores, index = tf.math.top_k(by_example(spans["scores"], -3e30), count)
    found = scores > -1e29
    texts = tf.repeat(contexts[:, None], count, axis=1)
    bounds = []
    for name, place in zip(("starts", "ends"), offsets, strict=True):
        tokens = by_example(tf.cast(spans[name], tf.int32) + shift, 0)
        tokens = tf.where(found, tf.gather(tokens, index, batch_dims=1), 0)
        padded = tf.pad(place.to_tensor(), [[0, 0], [0, 1]])
        bounds.append(tf.gather(padded, tokens, batch_dims=1))
    start, end = _in_characters(texts, *bounds)
    text = tf.strings.substr(texts, start, end - start, "UTF8_CHAR")
    return {
        "text": tf.where(found, text, ""),
        "start": tf.where(found, start, -1),
        "end": tf.where(found, end, -1),
        "score": scores,
        "no_answer": tf.math.segment_min(spans["no_answer"], windows["example"]),
    }


def _in_characters(texts, begin, end):
    """Convert byte positions to positions of the characters that hold the bytes."""
    nothing = tf.zeros_like(begin)

    def count(start, length):
        # A character that is cut counts by its first byte.
        part = tf.strings.substr(texts, start, length)
        return tf.strings.length(part, "UTF8_CHAR")

    in_the_middle = (count(begin, nothing + 1) == 0) & (begin < end)
    start = count(nothing, begin) - tf.cast(in_the_middle, tf.int32)
    return start, count(nothing, end)


def answer_spans(
    passage: bytes, bounds: np.ndarray, answers: list[bytes], max_length: int
) -> list[tuple[int, int]]:
    """Find the spans of tokens that are one of the answers.

    Case and the amount of white space make no difference. An answer consists of whole
    words.

    Args:
        passage: bytes in UTF-8.
        bounds: int array `(tokens, 2)`, the bytes where each token starts and ends. The
            tokens can end before the passage does.
        answers: list of bytes.
        max_length: int. The most tokens of a span.

    Returns:
        A list with the first and last token of each span.
    """
    text = passage.decode()
    at = np.cumsum([0, *(len(char.encode()) for char in text)])
    found = []
    for answer in answers:
        for match in answer_pattern(answer).finditer(text):
            begin, end = at[match.start()], at[match.end()]
            first = int(np.sum(bounds[:, 1] <= begin))
            last = int(np.sum(bounds[:, 0] < end)) - 1
            # The tokens may end in the middle of an answer.
            if first <= last < first + max_length and bounds[last, 1] >= end:
                found.append((first, last))
    return found


@functools.lru_cache(maxsize=1024)
def answer_pattern(answer: bytes) -> re.Pattern[str]:
    """Make a pattern of an answer's whole words, in any case and with any white space.

    Args:
        answer: bytes in UTF-8.
    """
    words = answer.decode().split()
    if not words:
        return re.compile("(?!)")  # matches nowhere
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
        passages: array of bytes `(rows,)`; each question has equally many.
        bounds: int array `(tokens of all rows, 2)`, see `answer_spans`.
        splits: int array `(rows + 1,)`, where the tokens of each row begin.
        first: int array `(rows,)`, the place of the passage's first token in its row.
        answers: array of bytes `(answers of all questions,)`.
        answer_splits: int array `(questions + 1,)`, where the answers of each question
            begin.
        shape: tuple of three ints: passages of a question, tokens of a row, and most
            tokens of a span.

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
        y: a list with an element for each question: a string, a list of strings, or
            SQuAD's dict with a list `text`. A single such element for one question. Or
            string tensors.
        count: int. Number of questions.

    Returns:
        Ragged string tensor `(count, None)`.

    Raises:
        ValueError: for anything else, or a question without an answer.
    """
    if tf.is_tensor(y):
        y = as_ragged(y)
        check_answers(y)
        return y
    if isinstance(y, (str, Mapping)):
        y = [y]
    if not hasattr(y, "__len__") or len(y) != count:
        raise ValueError(
            f"`y` must be a list of the answers to {count} questions. Received: {y!r}."
        )
    return tf.ragged.constant([_answers(v, k) for k, v in enumerate(y)], tf.string)


def check_answers(y: TFTensor) -> None:
    """Refuse questions without an answer, and empty answers. Works in a graph.

    Args:
        y: string tensor `(batch, None)`.
    """
    texts = y.flat_values if isinstance(y, tf.RaggedTensor) else y
    some = tf.ones_like(texts, tf.int32)
    some = tf.reduce_sum(y.with_values(some) if texts is not y else some, 1)
    right = tf.reduce_all(tf.strings.strip(texts) != "") & tf.reduce_all(some > 0)
    said = "`y` must have the answers to each question, none of them empty. Received: "
    if not tf.executing_eagerly():
        tf.debugging.Assert(right, [said, texts])
    elif not right:
        raise ValueError(f"{said}{y}.")


def as_ragged(y: TFTensor) -> TFRagged:
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
            "`y` must have the answers to each question: a string or a list of "
            f"strings, none of them empty. Received: {value!r}, for question {number}."
        )
    return list(texts)
