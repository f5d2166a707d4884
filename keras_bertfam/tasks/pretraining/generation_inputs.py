"""What texts are written from: prompts as rows of tokens, and what they may be."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.types import Model, Tokenizer

# Prompts are read in so many tokens at a time: lengths are few, and compiled once.
_STEP = 16


def padded_width(length: int, most: int | None) -> int:
    """The next of the few lengths of what is read, so that few are compiled."""
    width = -(-length // _STEP) * _STEP
    return width if most is None else max(length, min(width, most))


def check_rows(
    rows: Sequence[Sequence[int]], vocabulary_size: int, most: int | None = None
) -> None:
    """Raises a `ValueError` for no texts, an empty or long one, or ids that are none.

    Args:
        rows: list of lists of ids.
        vocabulary_size: int.
        most: int or `None`. How many tokens there are positions for.
    """
    if not rows or not all(map(len, rows)):
        empty = next((k for k, row in enumerate(rows) if not len(row)), None)
        raise ValueError(
            "`inputs` must be prompts of at least one token. Received: "
            + ("none." if empty is None else f"an empty one in row {empty}.")
        )
    for number, row in enumerate(rows):
        if most is not None and len(row) > most:
            raise ValueError(
                f"`inputs` must be prompts of at most {most} tokens, for the positions "
                f"there are. Received: one of {len(row)} in row {number}."
            )
        if min(row) < 0 or max(row) >= vocabulary_size:
            raise ValueError(
                f"`inputs` must be ids in [0, vocabulary_size={vocabulary_size}). "
                f"Received ids from {min(row)} to {max(row)} in row {number}."
            )


def check_max_length(max_length: int, longest: int, positions: int | None) -> None:
    """Raises a `ValueError` unless there is room for a token, and positions for all.

    Args:
        max_length: int. Tokens of a text.
        longest: int. Tokens of the longest prompt.
        positions: int or `None`, for any number.
    """
    whole = isinstance(max_length, int | np.integer)
    beyond = positions is not None and whole and max_length > positions
    if not whole or max_length <= longest or beyond:
        most = "" if positions is None else f" and at most {positions}, the positions"
        raise ValueError(
            f"`max_length` must be an integer of at least {longest + 1}, a token more "
            f"than the longest prompt{most}. Received: max_length={max_length}."
        )


def stop_ids(task: Model, stop_token_ids: Any) -> list[int] | None:
    """The ids to stop at, `None` for none.

    Args:
        task: a `LanguageModel`.
        stop_token_ids: sequence of ids, `None`, or `"auto"` for those of the tokenizer,
            if there is one.
    """
    if isinstance(stop_token_ids, str):
        if stop_token_ids != "auto":
            raise ValueError(
                '`stop_token_ids` must be a sequence of ids, `None` or "auto". '
                f"Received: stop_token_ids={stop_token_ids!r}."
            )
        tokenizer = getattr(task.preprocessor, "tokenizer", None)
        end = getattr(tokenizer, "end_token_id", None)
        stop_token_ids = None if end is None else [end]
    return None if stop_token_ids is None else list(map(int, stop_token_ids)) or None


def token_rows(
    task: Model, inputs: Any, specials: bool = False
) -> tuple[list[list[int]], bool]:
    """Prompts as lists of ids, and whether they were strings.

    Args:
        task: a `LanguageModel`.
        inputs: string, list of strings, or lists or an array of ids; of arrays with
            padding a dict of `token_ids` and `padding_mask`.
        specials: bool. Whether strings are what an encoder reads: mask tokens in them
            are single tokens, and they get the tokenizer's start and end tokens.

    Raises:
        ValueError: for strings without a preprocessor.
    """
    if isinstance(inputs, dict):
        ids, mask = (np.asarray(inputs[n]) for n in ("token_ids", "padding_mask"))
        inputs = [row[kept > 0] for row, kept in zip(ids, mask, strict=True)]
    texts = [inputs] if isinstance(inputs, str) else list(inputs)
    if not texts or not all(isinstance(text, str) for text in texts):
        return [_integers(row, number) for number, row in enumerate(texts)], False
    if task.preprocessor is None:
        raise ValueError(
            "`inputs` must be ids for a task without a preprocessor. Received: strings."
        )
    tokenizer = task.preprocessor.tokenizer
    if not specials:
        return [np.asarray(tokenizer(text)).tolist() for text in texts], True
    start, end = special_ids(tokenizer)
    return [[*start, *_with_masks(tokenizer, text), *end] for text in texts], True


def _with_masks(tokenizer, text):
    """The ids of a text, as `tokenize_with_masks` gives them in a graph."""
    mask = getattr(tokenizer, "mask_token", None)
    if mask is None:
        return np.asarray(tokenizer(text)).tolist()
    if mask.startswith("<"):
        text = re.sub(f" *{mask}", mask, text)
    first, *others = (np.asarray(tokenizer(part)).tolist() for part in text.split(mask))
    return [*first, *(i for row in others for i in (tokenizer.mask_token_id, *row))]


def special_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids before and after a text that an encoder reads, none or one each."""
    names = ("start_token_id", "end_token_id")
    start, end = (getattr(tokenizer, name, None) for name in names)
    if start == end:  # as GPT-2's: texts only end with it
        start = None
    return [start] if start is not None else [], [end] if end is not None else []


def begun_ids(task: Model) -> list[int]:
    """What a `TextToText` begins texts with: as the preprocessor lays out targets.

    Without a preprocessor it is what the family's checkpoints begin with.
    """
    layout = getattr(task.preprocessor, "layout", None)
    if layout is None:
        return list(task.backbone.record.start_token_ids)
    return [layout.decoder_start_token_id]


def _integers(row, number):
    array = np.asarray(row)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            "`inputs` must be strings, or rows of integers. Received: an array of the "
            f"shape {array.shape} and of {array.dtype} in row {number}."
        )
    return array.tolist()


def as_texts(
    task: Model, rows: Sequence[Sequence[int]], stop: Any, specials: bool = False
) -> list[str]:
    """Ids as strings, without stop tokens at the end.

    Args:
        task: a `LanguageModel`.
        rows: list of lists of ids.
        stop: list of ids, or `None`.
        specials: bool. Whether texts have start tokens, which are left out.
    """
    tokenizer = task.preprocessor.tokenizer
    kept = [row[:-1] if row and row[-1] in (stop or ()) else row for row in rows]
    unsaid = special_ids(tokenizer)[0] if specials else []
    # A table may have more rows than there are tokens.
    size = tokenizer.vocabulary_size()
    kept = [[i for i in row if i < size and i not in unsaid] for row in kept]
    texts = [tokenizer.detokenize(list(row)) for row in kept]
    # Not every tokenizer makes strings of its tensors.
    return [
        text if isinstance(text, str) else text.numpy().decode("utf-8", "ignore")
        for text in texts
    ]
