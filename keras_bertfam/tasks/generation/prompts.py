"""Turn prompts into rows of tokens, and written tokens into the results."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.tasks.generation.defaults import as_ids
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tokenizers.pipeline_ops import tokenize_with_masks
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Model, Tokenizer

# Lengths of prompts are rounded up to multiples of this, so that few are compiled.
_STEP = 16
# Fills rows of stop tokens. It differs from every token and from `UNWRITTEN`.
_NO_STOP = -2


def padded_width(length: int, most: int | None) -> int:
    """Round a length up, so that few lengths are compiled."""
    width = -(-length // _STEP) * _STEP
    return width if most is None else max(length, min(width, most))


def check_rows(
    rows: Sequence[Sequence[int]], vocabulary_size: int, most: int | None = None
) -> None:
    """Raise a `ValueError` for no texts, an empty or too long one, or unknown ids.

    Args:
        rows: list of lists of ids.
        vocabulary_size: int.
        most: int or `None`. The number of positions.
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
                f"`inputs` must be prompts of at most {most} tokens, the number of "
                f"positions. Received: one of {len(row)} in row {number}."
            )
        if min(row) < 0 or max(row) >= vocabulary_size:
            raise ValueError(
                f"`inputs` must be ids in [0, vocabulary_size={vocabulary_size}). "
                f"Received ids from {min(row)} to {max(row)} in row {number}."
            )


def check_max_length(
    max_length: int, longest: int, most: int, by_settings: bool = False
) -> None:
    """Raise a `ValueError` if a length leaves no room for a token, or is too long.

    Args:
        max_length: int. Tokens of a text.
        longest: int. Tokens of the longest prompt.
        most: int. The number of positions, or the settings' `max_tokens`.
        by_settings: bool. Whether `most` comes from the settings.
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
    """Turn `bad_words` of settings into ids with the task's tokenizer.

    Raises:
        ValueError: for strings without a preprocessor, and for a forced token that
            isn't in the vocabulary.
    """
    size = task.backbone.vocabulary_size
    for name in ("forced_first_token", "forced_second_token", "forced_last_token"):
        token = getattr(settings, name)
        if token is not None and not 0 <= token < size:
            raise ValueError(
                f"`{name}` must be an id below vocabulary_size={size}. "
                f"Received: {token!r}."
            )
    words = []
    for word in settings.bad_words:
        if isinstance(word, str):
            if task.preprocessor is None:
                raise ValueError(
                    "`bad_words` must be ids for a task without a preprocessor. "
                    f"Received: {word!r}."
                )
            words += _spellings(word, task.preprocessor.tokenizer)
        else:
            words.append(word)
    return settings.replace(bad_words=words) if words else settings


def _spellings(word, tokenizer):
    """Give the ids of a word at the start of a text and behind a space, if they differ.

    For GPT-2 these are `cat` and `Ġcat`. Most other tokenizers have one spelling.
    """
    texts = [word] if word.startswith(" ") else [word, f" {word}"]
    found = [tuple(np.asarray(tokenizer(text)).tolist()) for text in texts]
    if not found[0]:
        raise ValueError(
            f"`bad_words` must be words that have tokens. Received: {word!r}."
        )
    return [*dict.fromkeys(found)]


def stop_table(stop: Any, count: int) -> np.ndarray | None:
    """Make an int32 array `(count, most)` of the ids that end texts, filled with -2.

    For example, stop ids `[[3], [4, 5]]` for two texts become `[[3, -2], [4, 5]]`. The
    array has a single row if the ids are the same for all texts.

    Args:
        stop: list of ids, a list of them for each row, or `None`.
        count: int, the rows.

    Raises:
        ValueError: for more or fewer lists than rows.
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
        stop_token_ids: an id, a sequence of ids, or of sequences of them, one for each
            row; `None`; or `"auto"` for the tokenizer's, if there is one.

    Returns:
        List of ids, or of lists of them.
    """
    if isinstance(stop_token_ids, str):
        if stop_token_ids != "auto":
            raise ValueError(
                '`stop_token_ids` must be an id, several, `None` or "auto". '
                f"Received: stop_token_ids={stop_token_ids!r}."
            )
        tokenizer = getattr(task.preprocessor, "tokenizer", None)
        end = getattr(tokenizer, "end_token_id", None)
        said = getattr(task, "generation", {}).get("eos_token_id")
        stop_token_ids = as_ids(end if said is None else said)
    if isinstance(stop_token_ids, int | np.integer):
        stop_token_ids = [int(stop_token_ids)]
    if stop_token_ids is None:
        return None
    rows: list[Any] = [np.ndim(ids) for ids in stop_token_ids]
    if any(np.min(ids, initial=0) < 0 for ids in stop_token_ids):
        raise ValueError(
            "`stop_token_ids` must have ids of at least 0, or be `None` if nothing "
            f"ends a text. Received: stop_token_ids={stop_token_ids!r}."
        )
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
    """Turn bytes, and tensors or arrays of strings, into strings.

    Args:
        inputs: string, bytes, lists of them, ids, or tensors and arrays of either.

    Returns:
        A string or a list of strings; ids are returned unchanged.
    """
    if isinstance(inputs, bytes):
        return inputs.decode("utf-8", "replace")  # as in graphs
    if isinstance(inputs, list | tuple):
        return [as_prompts(x) if _is_text(x) else x for x in inputs]
    if _is_text(inputs) and not isinstance(inputs, str):
        return as_prompts(np.asarray(inputs).tolist())
    return inputs


def _is_text(x):
    """Tell whether a value is a text, or a tensor or array of texts."""
    kind = getattr(x, "dtype", None)
    of_strings = kind is not None and (
        getattr(kind, "name", None) == "string" or getattr(kind, "kind", "") in "OSU"
    )
    return isinstance(x, str | bytes) or of_strings


def prompt_start_ids(preprocessor: Any) -> list[int]:
    """Give the ids before the tokens of a prompt that a task continues.

    They are the start token for a `CausalLM`, as in the rows that
    `CausalLMPreprocessor` makes of prompts, unless it ends texts, too, as GPT-2's does.
    A `RecurrentLM` has none, whose rows go on from one text to the next.
    """
    return [*getattr(preprocessor, "prompt_start_ids", ())]


def token_rows(
    task: Model, inputs: Any, specials: bool = False, start: Sequence[int] = ()
) -> tuple[list[list[int]], bool]:
    """Turn prompts into lists of ids, and tell whether they were strings.

    Args:
        task: a `LanguageModel`.
        inputs: what `as_prompts` gives: a string, a list of strings, or lists or an
            array of ids; for arrays with padding, a dict of `token_ids` and
            `padding_mask`.
        specials: bool. Whether strings are inputs of an encoder: they get the
            tokenizer's start and end tokens, and mask tokens in them stay single
            tokens.
        start: ids before the tokens of strings, without `specials`.

    Raises:
        ValueError: for strings without a preprocessor.
    """
    if isinstance(inputs, dict):
        if not {"token_ids", "padding_mask"} <= {*inputs}:
            raise ValueError(
                "`inputs` must have `token_ids` and `padding_mask` if it is a dict. "
                f"Received: {[*inputs]}."
            )
        ids, mask = (np.asarray(inputs[n]) for n in ("token_ids", "padding_mask"))
        if ids.ndim != 2 or ids.shape != mask.shape:
            raise ValueError(
                "`inputs` must have `token_ids` and `padding_mask` of the shape "
                f"`(batch, length)`. Received: {ids.shape} and {mask.shape}."
            )
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
        rows = (np.asarray(tokenizer(text)).tolist() for text in texts)
        return [[*start, *row] for row in rows], True
    first, end = special_ids(tokenizer)
    tokens = tokenize_with_masks(tokenizer, to_utf8(texts)).to_list()
    return [[*first, *row, *end] for row in tokens], True


def special_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Give the ids before and after an encoder's text: none or one on each side."""
    names = ("start_token_id", "end_token_id")
    start, end = (getattr(tokenizer, name, None) for name in names)
    if start == end:  # as for GPT-2, whose texts only end with it
        start = None
    return [start] if start is not None else [], [end] if end is not None else []


def first_token_ids(task: Model) -> list[int]:
    """Give the ids with which a `TextToText` begins texts, as in its training targets.

    A preprocessor that was given such an id decides. Otherwise the task's `generation`
    does. Without a preprocessor they are those of the family's checkpoints.
    """
    said = as_ids(getattr(task, "generation", {}).get("decoder_start_token_id"))
    told = getattr(task.preprocessor, "decoder_start_token_id", None)
    if said is not None and told is None:
        return said
    layout = getattr(task.preprocessor, "layout", None)
    if layout is None:
        return list(task.backbone.record.start_token_ids)
    return [layout.decoder_start_token_id]


def checked_start(task: Model, start_token_ids: Sequence[int] | None) -> list[int]:
    """Give the ids with which texts begin: given ones, or `first_token_ids`.

    Raises:
        ValueError: for none, or ids outside of the vocabulary.
    """
    if start_token_ids is None:
        return first_token_ids(task)
    start, size = list(start_token_ids), task.backbone.vocabulary_size
    if not start or not all(0 <= token < size for token in start):
        raise ValueError(
            "`start_token_ids` must be one id at least, below vocabulary_size="
            f"{size}. Received: {start}."
        )
    return start


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
        specials: bool. Whether texts have start tokens, which are then cut off.
    """
    tokenizer = task.preprocessor.tokenizer
    kept = [row[:-1] if row and row[-1] in (stop or ()) else row for row in rows]
    unsaid = special_ids(tokenizer)[0] if specials else []
    # An embedding table may have more rows than there are tokens.
    size = tokenizer.vocabulary_size()
    kept = [[i for i in row if i < size and i not in unsaid] for row in kept]
    texts = [tokenizer.detokenize(list(row)) for row in kept]
    # Some tokenizers return tensors instead of strings.
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
    """Make the result of `generate` from the texts that were written.

    Args:
        task: a `LanguageModel`.
        found: for each row, its texts as pairs of ids and a score.
        stop: list of ids, a list of them for each row, or `None`.
        settings: `GenerationSettings`, or `None` for the usual ones.
        single: bool. Whether one string was given.
        strings: bool. Whether strings were given.
        first: int, how many first tokens of each text are left out.
        specials: bool, see `as_texts`.

    Returns:
        A text for each row: a list of ids, or a string. With `num_return_sequences`
        above 1, a list of texts for each row. With `return_scores`, a tuple of the
        texts and as many scores.
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
