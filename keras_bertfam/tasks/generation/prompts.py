"""What texts are written from, and what is given back: strings or rows of tokens."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.tasks.generation.defaults import as_ids
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.types import Model, Tokenizer

# Prompts are read in so many tokens at a time: lengths are few, and compiled once.
_STEP = 16
# Fills rows of stop tokens: no token, and not what `generation.UNWRITTEN` is.
_NO_STOP = -2


def padded_width(length: int, most: int | None) -> int:
    """Round a length up to one of few, so that few are compiled."""
    width = -(-length // _STEP) * _STEP
    return width if most is None else max(length, min(width, most))


def check_rows(
    rows: Sequence[Sequence[int]], vocabulary_size: int, most: int | None = None
) -> None:
    """Raise a `ValueError` for no texts, an empty or long one, or ids that are none.

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


def check_max_length(
    max_length: int, longest: int, most: int, by_settings: bool = False
) -> None:
    """Raise a `ValueError` unless there is room for a token, and positions for all.

    Args:
        max_length: int. Tokens of a text.
        longest: int. Tokens of the longest prompt.
        most: int. The positions, or the settings' `max_tokens`.
        by_settings: bool. Whether it is the latter.
    """
    whole = isinstance(max_length, int | np.integer)
    if not whole or not longest < max_length <= most:
        what = "`max_tokens` of the settings" if by_settings else "the positions"
        raise ValueError(
            f"`max_length` must be an integer of at least {longest + 1}, a token more "
            f"than the longest prompt, and at most {most}, {what}. "
            f"Received: max_length={max_length}."
        )


def words_as_ids(task: Model, settings: GenerationSettings) -> GenerationSettings:
    """Turn `bad_words` of settings into ids, by the task's tokenizer.

    Raises:
        ValueError: for strings without a preprocessor.
    """
    words = []
    for word in settings.bad_words:
        if isinstance(word, str):
            if task.preprocessor is None:
                raise ValueError(
                    "`bad_words` must be ids for a task without a preprocessor. "
                    f"Received: {word!r}."
                )
            word = np.asarray(task.preprocessor.tokenizer(word)).tolist()
        words.append(word)
    return settings.replace(bad_words=words) if words else settings


def stop_table(stop: Any, count: int) -> np.ndarray | None:
    """Make an int32 array `(count, most)` of ids that end texts, filled up with -2.

    If they are the same for all it has a single row.

    Args:
        stop: list of ids, a list of them for each row, or `None`.
        count: int, the rows.

    Raises:
        ValueError: for lists of another number than there are rows.
    """
    if not stop:
        return None
    rows = stop if isinstance(stop[0], list) else [stop]
    if rows is stop and len(rows) != count:
        raise ValueError(
            "`stop_token_ids` must be ids, or a sequence of them for each of the "
            f"{count} texts. Received: {len(rows)} sequences."
        )
    most = max(map(len, rows))
    return np.array([[*row, *[_NO_STOP] * (most - len(row))] for row in rows], "int32")


def stop_ids(task: Model, stop_token_ids: Any) -> list[Any] | None:
    """Find the ids to stop at, `None` for none.

    Args:
        task: a `LanguageModel`.
        stop_token_ids: sequence of ids, or of sequences of them, one for each row;
            `None`; or `"auto"` for those of the tokenizer, if there is one.

    Returns:
        List of ids, or of lists of them.
    """
    if isinstance(stop_token_ids, str):
        if stop_token_ids != "auto":
            raise ValueError(
                '`stop_token_ids` must be a sequence of ids, `None` or "auto". '
                f"Received: stop_token_ids={stop_token_ids!r}."
            )
        tokenizer = getattr(task.preprocessor, "tokenizer", None)
        end = getattr(tokenizer, "end_token_id", None)
        said = getattr(task, "generation", {}).get("eos_token_id")
        stop_token_ids = as_ids(end if said is None else said)
    if stop_token_ids is None:
        return None
    rows: list[Any] = [np.ndim(ids) for ids in stop_token_ids]
    if not any(rows):
        return list(map(int, stop_token_ids)) or None
    if not all(rows):
        raise ValueError(
            "`stop_token_ids` must be a sequence of ids, or of sequences of them. "
            f"Received: stop_token_ids={stop_token_ids!r}."
        )
    rows = [list(map(int, ids)) for ids in stop_token_ids]
    return rows if any(rows) else None


def as_prompts(inputs: Any) -> Any:
    """Turn all that is text into strings: bytes, and tensors of strings.

    Args:
        inputs: string, bytes, lists of them, ids, or tensors and arrays of either.

    Returns:
        A string, a list of strings, or what was given, if it is ids.
    """
    if isinstance(inputs, bytes):
        return inputs.decode("utf-8", "ignore")
    if isinstance(inputs, list | tuple):
        return [as_prompts(x) if _is_text(x) else x for x in inputs]
    if _is_text(inputs) and not isinstance(inputs, str):
        return as_prompts(np.asarray(inputs).tolist())
    return inputs


def _is_text(x):
    """Tell whether it is text, or a tensor or an array of texts."""
    kind = getattr(x, "dtype", None)
    of_strings = kind is not None and (
        getattr(kind, "name", None) == "string" or getattr(kind, "kind", "") in "OSU"
    )
    return isinstance(x, str | bytes) or of_strings


def token_rows(
    task: Model, inputs: Any, specials: bool = False
) -> tuple[list[list[int]], bool]:
    """Turn prompts into lists of ids, and tell whether they were strings.

    Args:
        task: a `LanguageModel`.
        inputs: what `as_prompts` gives: string, list of strings, or lists or an array
            of ids; of arrays with padding a dict of `token_ids` and `padding_mask`.
        specials: bool. Whether strings are what an encoder reads: mask tokens in them
            are single tokens, and they get the tokenizer's start and end tokens.

    Raises:
        ValueError: for strings without a preprocessor.
    """
    if isinstance(inputs, dict):
        if not {"token_ids", "padding_mask"} <= {*inputs}:
            raise ValueError(
                "`inputs` must have `token_ids` and `padding_mask`, if it is a dict. "
                f"Received: {[*inputs]}."
            )
        ids, mask = (np.asarray(inputs[n]) for n in ("token_ids", "padding_mask"))
        inputs = [row[kept > 0] for row, kept in zip(ids, mask, strict=True)]
    if not hasattr(inputs, "__iter__"):
        raise ValueError(
            f"`inputs` must be strings, or rows of integers. Received: {inputs!r}."
        )
    texts = [inputs] if isinstance(inputs, str) else list(inputs)
    strange = [k for k, text in enumerate(texts) if not isinstance(text, str)]
    if 0 < len(strange) < len(texts):
        raise ValueError(
            "`inputs` must be all strings, or all rows of integers. Received: "
            f"{texts[strange[0]]!r} in row {strange[0]}, beside strings."
        )
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
    """Tokenise a text as `tokenize_with_masks` does in a graph."""
    mask = getattr(tokenizer, "mask_token", None)
    if mask is None:
        return np.asarray(tokenizer(text)).tolist()
    if mask.startswith("<"):
        text = re.sub(f" *{mask}", mask, text)
    first, *others = (np.asarray(tokenizer(part)).tolist() for part in text.split(mask))
    return [*first, *(i for row in others for i in (tokenizer.mask_token_id, *row))]


def special_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Give the ids before and after a text that an encoder reads, none or one each."""
    names = ("start_token_id", "end_token_id")
    start, end = (getattr(tokenizer, name, None) for name in names)
    if start == end:  # as GPT-2's: texts only end with it
        start = None
    return [start] if start is not None else [], [end] if end is not None else []


def first_token_ids(task: Model) -> list[int]:
    """Give what a `TextToText` begins texts with, as targets are laid out.

    Unless the preprocessor was told, what the task's `generation` says comes first.
    Without a preprocessor it is what the family's checkpoints begin with.
    """
    said = as_ids(getattr(task, "generation", {}).get("decoder_start_token_id"))
    told = getattr(task.preprocessor, "decoder_start_token_id", None)
    if said is not None and told is None:
        return said
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
    """Turn ids into strings, without stop tokens at the end.

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


def as_answer(
    task: Model,
    found: Sequence[Any],
    stop: Any,
    settings: GenerationSettings | None,
    single: bool,
    strings: bool,
    first: int = 0,
    specials: bool = False,
) -> Any:
    """Make what `generate` returns of the texts that were written.

    Args:
        task: a `LanguageModel`.
        found: for each row its texts, as pairs of ids and a score.
        stop: list of ids, a list of them for each row, or `None`.
        settings: `GenerationSettings`, or `None` for the usual ones.
        single: bool. Whether one string was given.
        strings: bool. Whether strings were given.
        first: int, how many tokens of each text aren't given back.
        specials: bool, see `as_texts`.

    Returns:
        A text for each row; with `num_return_sequences` above 1 a list of them; and
        with `return_scores` a tuple of that and as many scores. A text is a list of
        ids, or a string.
    """
    settings = settings or GenerationSettings()
    texts: list[Any] = [[ids[first:] for ids, _ in row] for row in found]
    if strings:
        stops = stop if stop and isinstance(stop[0], list) else [stop] * len(texts)
        pairs = zip(texts, stops, strict=True)
        texts = [as_texts(task, rows, ends, specials) for rows, ends in pairs]
    scores: list[Any] = [[score for _, score in row] for row in found]
    if settings.num_return_sequences == 1:
        texts, scores = ([row[0] for row in part] for part in (texts, scores))
    if single:
        texts, scores = texts[0], scores[0]
    return (texts, scores) if settings.return_scores else texts
