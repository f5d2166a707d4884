"""What the files beside a vocabulary say: settings, special tokens and added tokens.

Added tokens are in `tokenizer.json`, in `tokenizer_config.json`
(`added_tokens_decoder`, `additional_special_tokens`), in `special_tokens_map.json` and
in `added_tokens.json`, by the release that wrote them. Where two files disagree, the
first of these counts.
"""

import os
from collections.abc import Mapping
from typing import Any

from keras_bertfam.presets import file_keys, reading
from keras_bertfam.presets.added_tokens import MAP
from keras_bertfam.presets.report import warn
from keras_bertfam.presets.source import CheckpointError, CheckpointSource
from keras_bertfam.types import Tokenizer

CONFIG = "tokenizer_config.json"
# What `transformers` calls settings, and what our classes do. Padding is masked, and
# any token will do for it.
_OURS = {
    "do_lower_case": ("lowercase",),
    "keep_accents": ("keep_accents",),
    "cls_token": ("cls_token", "start_token"),
    "sep_token": ("sep_token", "end_token"),
    "mask_token": ("mask_token",),
}
# Names for the first and the last token of a text, of which one must be ours.
_ENDS = {
    "start_token": ("bos_token", "cls_token"),
    "end_token": ("eos_token", "sep_token"),
}


def check_stated(source: CheckpointSource, tokenizer: Tokenizer) -> None:
    """Account for each key of the files beside a vocabulary.

    A warning names keys that aren't known.

    Args:
        source: what the tokenizer was made of.
        tokenizer: the tokenizer.

    Raises:
        CheckpointError: naming the file that says what the tokenizer isn't.
    """
    folder = os.path.dirname(next(iter(source.tokenizer_files.values())))
    where = os.path.join(folder, CONFIG)
    beside = os.path.join(folder, MAP)
    notes = file_keys.TOKENIZER_CONFIG.notes(source.tokenizer_config, where)
    _check_special_tokens(source, source.tokenizer_config, where, tokenizer)
    if os.path.isfile(beside):
        content = reading.read_json(reading.file_in(folder, MAP), vocabulary=True)
        notes += file_keys.SPECIAL_TOKENS_MAP.notes(content, beside)
        _check_special_tokens(source, content, beside, tokenizer)
    if notes:
        warn(f"{os.fspath(source.path)!r} has a tokenizer. {' '.join(notes)}")


def _check_special_tokens(
    source: CheckpointSource, config: Mapping[str, Any], where: str, tokenizer: Any
) -> None:
    for name, ours in _OURS.items():
        found = (getattr(tokenizer, each, None) for each in ours)
        value = next((each for each in found if each is not None), None)
        said = _content(config.get(name))
        if said is not None and value not in (None, said):
            raise _contradiction(source, where, tokenizer, name, value, said)
    for end, names in _ENDS.items():
        value = getattr(tokenizer, end, None)
        stated = {name: _content(config.get(name)) for name in names}
        stated = {name: token for name, token in stated.items() if token is not None}
        if value is not None and stated and value not in stated.values():
            name, token = next(iter(stated.items()))
            raise _contradiction(source, where, tokenizer, name, value, token)


def _contradiction(source, where, tokenizer, name, value, said):
    return CheckpointError(
        f"{where!r} must have {name}={value!r}, as the {type(tokenizer).__name__} of "
        f"{os.fspath(source.path)!r} has. Received: {said!r}."
    )


def _content(token):
    """Give the text of a special token, which may be an object with more about it."""
    return token.get("content") if isinstance(token, dict) else token
