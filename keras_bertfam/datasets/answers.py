"""Answers in texts, in the forms that tables have them."""

from typing import Any

from keras_bertfam.metrics.squad import right_texts
from keras_bertfam.parsing import parse_json
from keras_bertfam.types import Config

_EXPECTED = (
    "answers: a text that is in the context, a dict of `text` and `answer_start` (in "
    "characters), or a list of either; an empty one for no answer"
)


def is_answers(value: Any) -> bool:
    """Tell whether a value is answers with places, which no other label is."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and "text" in first


def answers_in(value: Any, context: str) -> Config:
    """Convert answers to the form that SQuAD's readers have.

    Args:
        value: str, dict, a list of them, or one of these as JSON. A text without an
            `answer_start` is where the context has it first.
        context: str.

    Returns:
        Dict of the lists `text` and `answer_start`; empty ones for no answer.

    Raises:
        ValueError: for anything else, and for a text that isn't in the context.
    """
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        value = parse_json(value)
    pairs = [pair for part in _parts(value) for pair in _pairs(part, value)]
    found = []
    for text, start in pairs:
        start = context.find(text) if start is None else start
        if start < 0 or context[start : start + len(text)] != text:
            raise ValueError(f"Expected {_EXPECTED}. Received: {text!r}, not there.")
        found.append((text, int(start)))
    return {"text": [t for t, _ in found], "answer_start": [s for _, s in found]}


def _parts(value):
    return value if isinstance(value, list) else [value]


def _pairs(part, value):
    """Pair texts with places, leaving out what is no answer."""
    part = {"text": part} if isinstance(part, str) else part
    try:
        texts = _parts(part["text"])
        starts = _parts(part.get("answer_start", [None] * len(texts)))
        numbered = all(type(start) in (int, type(None)) for start in starts)
        if not numbered or len(starts) != len(texts):
            raise TypeError
        right = right_texts(part)
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"Expected {_EXPECTED}. Received: {value!r}.") from None
    return [pair for pair in zip(texts, starts, strict=True) if pair[0] in right]
