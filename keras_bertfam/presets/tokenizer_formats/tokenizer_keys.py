"""Reads the files beside a vocabulary: settings, special tokens and added tokens.

Depending on the release that wrote them, added tokens are in `tokenizer.json`, in
`tokenizer_config.json` (`added_tokens_decoder`, `additional_special_tokens`), in
`special_tokens_map.json` or in `added_tokens.json`. If two files disagree, the first
one in this order counts.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from keras_bertfam.presets.checkpoints import file_keys, reading
from keras_bertfam.presets.checkpoints.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.converting.report import warn
from keras_bertfam.types import Tokenizer

CONFIG = "tokenizer_config.json"
# Names of settings in `transformers`, and attributes of our classes. The padding token
# isn't among them: padding is masked, so it may be any token.
_OURS = {
    "do_lower_case": ("lowercase",),
    "keep_accents": ("keep_accents",),
    "cls_token": ("cls_token", "start_token"),
    "sep_token": ("sep_token", "end_token"),
    "mask_token": ("mask_token",),
}
# The first and the last token of a text have two names in `transformers`. The token of
# one of these names must be ours.
_ENDS = {
    "start_token": ("bos_token", "cls_token"),
    "end_token": ("eos_token", "sep_token"),
}


def check_stated(source: CheckpointSource, tokenizer: Tokenizer) -> None:
    """Check that a tokenizer agrees with the files beside its vocabulary.

    A warning names keys that aren't known.

    Args:
        source: the source that the tokenizer was made of.
        tokenizer: the tokenizer.

    Raises:
        CheckpointError: for a file that disagrees. The message names the file.
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
        f"{where!r} must have {name}={value!r}, like the {type(tokenizer).__name__} of "
        f"{os.fspath(source.path)!r}. Received: {said!r}."
    )


def _content(token):
    """Give the text of a special token, which may be a string or an object."""
    return token.get("content") if isinstance(token, dict) else token


Added = dict[str, Any]

ADDED, MAP = "added_tokens.json", "special_tokens_map.json"
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
_EXTRA = ("additional_special_tokens", "extra_special_tokens")


def read_added_tokens(source: CheckpointSource) -> list[Added]:
    """List the added tokens in a tokenizer's files, special tokens included.

    Args:
        source: `CheckpointSource`.

    Returns:
        List of dicts with `content`, the `FLAGS` and `where` (the path of a file that
        lists the token). If a file gives the `id`, they have it, too. The list is in
        the order of the ids.

    Raises:
        CheckpointError: for unknown keys, and for a token with two ids.
    """
    found: dict[str, Added] = {}
    for token, where in _listed(source):
        content = token["content"]
        if "id" in found.get(content, {}) and "id" in token:
            if found[content]["id"] != token["id"]:
                raise CheckpointError(
                    f"{os.fspath(where)!r} must give {content!r} the id "
                    f"{found[content]['id']}, as other files do. "
                    f"Received: {token['id']}."
                )
        found[content] = {"where": where, **token, **found.get(content, {})}
    return sorted(found.values(), key=lambda token: token.get("id", float("inf")))


def _listed(source: CheckpointSource) -> Iterator[tuple[Added, str]]:
    """Yield each token that a file lists, with the path of the file."""
    files = source.tokenizer_files
    folder = os.path.dirname(next(iter(files.values())))
    if "tokenizer.json" in files:
        where = files["tokenizer.json"]
        content = reading.read_json(where, vocabulary=True)
        for token in content.get("added_tokens") or ():
            yield _checked(token, (*FLAGS, "id"), where), where
    where, config = (
        os.path.join(folder, "tokenizer_config.json"),
        source.tokenizer_config,
    )
    for number, token in (config.get("added_tokens_decoder") or {}).items():
        token = _checked(token, (*FLAGS, "__type"), where)
        token.pop("__type", None)
        yield {**token, "id": int(number)}, where
    beside = _beside(folder, MAP)
    for name in _EXTRA:
        for content, path in ((config, where), (beside, os.path.join(folder, MAP))):
            listed = content.get(name) or ()
            for token in listed.values() if isinstance(listed, dict) else listed:
                if isinstance(token, str):
                    token = {"content": token}
                token = _checked(token, (*FLAGS, "__type"), path)
                token.pop("__type", None)
                yield {**_flags(True), **token, "special": True}, path
    for content, number in _beside(folder, ADDED).items():
        where = os.path.join(folder, ADDED)
        if type(number) is not int:
            raise CheckpointError(
                f"{where!r} must give {content!r} an id. Received: {number!r}."
            )
        token = {"content": content, "id": number, **_flags(False)}
        yield _checked(token, (*FLAGS, "id"), where), where


def _flags(special):
    """Give the flags of a token that a file lists without flags."""
    return {
        **dict.fromkeys(FLAGS, False),
        "special": special,
        "normalized": not special,
    }


def _checked(token, keys, where):
    fits = isinstance(token, dict) and isinstance(token.get("content"), str)
    if not fits or not {*token} <= {"content", *keys}:
        raise CheckpointError(
            f"An added token in {os.fspath(where)!r} must be an object of content, "
            f"{', '.join(keys)}. Received: {token!r}."
        )
    return dict(token)


def _beside(folder, name):
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return {}
    return reading.read_json(reading.file_in(folder, name), vocabulary=True)


def new_tokens(added: list[Added], known: Collection[str]) -> list[Added]:
    """List the arguments of the added tokens that aren't among known tokens.

    Returns:
        List of dicts of the arguments of `tokenizers.AddedToken`.
    """
    return [
        {key: token[key] for key in ("content", *FLAGS) if key in token}
        for token in added
        if token["content"] not in known
    ]


def differing_tokens(added: list[Added], tokenizer: Tokenizer) -> list[Added]:
    """List the arguments of the added tokens that a tokenizer wouldn't find itself.

    Some tokenizers find their special tokens in texts. Tokens that they find in the way
    that the flags in the files describe are left out.
    """
    own = {
        token: token == getattr(tokenizer, "mask_token", None)
        for token in tokenizer.unsplittable_tokens
    }
    if getattr(tokenizer, "finds_runs_of_spaces", False):
        own |= {t["content"]: False for t in added if not t["content"].strip(" ")}
    kept = [
        token
        for token in added
        if own.get(token["content"]) is not token.get("lstrip", False)
        or token.get("rstrip")
        or token.get("single_word")
    ]
    return new_tokens(kept, ())


def check_added_ids(added: list[Added], tokenizer: Tokenizer) -> None:
    """Check that added tokens have the same ids in a tokenizer and in its files.

    Raises:
        CheckpointError: for a token with another id. The message names the token.
    """
    for token in added:
        content, number = token["content"], token.get("id")
        own = tokenizer.token_to_id(content)
        if number is not None and number != own:
            raise CheckpointError(
                f"The added token {content!r} in {os.fspath(token['where'])!r} must "
                f"have the id {own}: its id in the vocabulary, or the next free one. "
                f"Received: {number!r}."
            )
