"""Reads folders of ColBERT, and settings of rows of queries and passages.

Three libraries write these settings in three places: ColBERT in `artifact.metadata`,
PyLate in `config_sentence_transformers.json`, and sentence-transformers in the configs
of its modules.
"""

import dataclasses
import os
import string
from collections.abc import Mapping
from typing import Any

from keras_bertfam.presets.checkpoints import file_keys, huggingface, reading
from keras_bertfam.presets.checkpoints.source import (
    CheckpointError,
    CheckpointSource,
    unfit,
)
from keras_bertfam.types import Config, Path, Tokenizer

# Keys of `sentence_bert_config.json`, and of PyLate's
# `config_sentence_transformers.json`.
LENGTHS = ("document_length", "query_length", "query_expansion")
_ATTENDED = ("attend_to_expansion_tokens", "attend_to_mask_tokens")
PYLATE = (
    *LENGTHS,
    "query_prefix",
    "document_prefix",
    "do_query_expansion",
    *_ATTENDED,
    "skiplist_words",
)
_EXPANSION = ("strategy", "attend", "token", "length")
# PyLate's defaults.
_QUERY_LENGTH, _DOCUMENT_LENGTH = 32, 180


_COLBERT, METADATA = "HF_ColBERT", "artifact.metadata"
# The projection's matrix, and its name in folders of sentence-transformers.
_LINEAR, _OURS = "linear.weight", "sentence_projection.weight"


def recognises(path: Path) -> bool:
    """Tell whether a path is a folder of ColBERT."""
    return bool(huggingface.config_of(path).get("architectures") == [_COLBERT])


def open_source(path: Path) -> CheckpointSource:
    """Open the checkpoint in a folder of ColBERT.

    Args:
        path: path of a folder.

    Returns:
        `CheckpointSource`, with the arguments of a `LateInteraction`.

    Raises:
        CheckpointError: for missing or damaged files, and keys and values that no task
            here has.
    """
    config = reading.read_json(reading.file_in(path, huggingface.CONFIG))
    del config["architectures"]
    source = huggingface.open_source(path, config=config)
    tensors = dict(source.tensors)
    if _LINEAR not in tensors:
        raise CheckpointError(
            f"{os.fspath(path)!r} must have the projection {_LINEAR!r} of ColBERT. "
            "Received: no tensor of this name."
        )
    tensors[_OURS] = tensors.pop(_LINEAR)
    metadata, notes = {}, list(source.notes)
    if os.path.lexists(os.path.join(path, METADATA)):
        file = reading.file_in(path, METADATA)
        metadata = reading.read_json(file)
        notes += file_keys.COLBERT.notes(metadata, file)
    given = stanford_arguments(metadata, os.path.join(path, METADATA))
    width = tensors[_OURS].shape[0]
    return dataclasses.replace(
        source,
        tensors=reading.Tensors(tensors),
        task_arguments={"LateInteraction": {"projection_dim": width}},
        preprocessor_arguments={"LateInteraction": given},
        notes=tuple(notes),
    )


def settings_of_pylate(whole: Mapping[str, Any], where: Path) -> Config:
    """Translate PyLate's settings of queries into those of sentence-transformers.

    Args:
        whole: dict with any of the keys in `PYLATE`.
        where: path of the file, for messages.
    """
    length = whole.get("query_length")
    settings = {
        "document_length": _or(whole.get("document_length"), _DOCUMENT_LENGTH),
        "query_length": _or(length, _QUERY_LENGTH),
    }
    if "query_expansion" in whole:
        return {**settings, "query_expansion": whole["query_expansion"]}
    said = (key for key in _ATTENDED if whole.get(key) is not None)
    attend = _flag(whole, next(said, _ATTENDED[0]), False, where)
    expansion = {"strategy": "fixed", "attend": attend}
    expansion["length"] = settings["query_length"]
    filled = _flag(whole, "do_query_expansion", True, where)
    return {**settings, "query_expansion": expansion if filled else None}


def _or(value, default):
    return default if value is None else value


def _flag(content, key, default, where):
    value = _or(content.get(key), default)
    if not isinstance(value, bool):
        raise unfit(where, key, "true or false", value)
    return value


def preprocessor_arguments(
    lengths: Mapping[str, Any],
    prompts: Mapping[str, str],
    skipped: list[str] | None,
    longest: int,
    where: Path,
) -> Config:
    """Make arguments of a `LateInteractionPreprocessor`.

    Args:
        lengths: dict with any of the keys in `LENGTHS`.
        prompts: dict from `query`, `document` and other names to the strings before
            texts.
        skipped: list of words that aren't compared in passages, or `None`.
        longest: int, the length of rows without a length in `lengths`.
        where: path of the folder, for messages.

    Raises:
        CheckpointError: for a value that no preprocessor here has.
    """
    expansion = lengths.get("query_expansion")
    query_length = lengths.get("query_length")
    if expansion is not None:
        _check_expansion(expansion, where)
        query_length = expansion.get("length", 0)
    if not isinstance(skipped, list | None) or not all(
        isinstance(word, str) for word in skipped or ()
    ):
        raise unfit(where, "skiplist_words", "a list of strings", skipped)
    named = ("document", "passage", "corpus")
    before = next((prompts[name] for name in named if name in prompts), "")
    for key, length in (
        ("document_length", lengths.get("document_length")),
        ("query_length", query_length),
    ):
        check_length({key: length}, key, where)
    return {
        "sequence_length": lengths.get("document_length") or longest,
        "query_length": query_length or longest,
        "query_marker": prompts.get("query", ""),
        "passage_marker": before,
        "fill_queries": expansion is not None,
        "attend_to_filling": bool(expansion and expansion.get("attend")),
        "skipped_tokens": list(skipped or ()),
    }


def _check_expansion(expansion, where):
    known = isinstance(expansion, dict) and {*expansion} <= {*_EXPANSION}
    if (
        not known
        or expansion.get("strategy") != "fixed"
        or expansion.get("token") is not None  # a filler other than the mask token
        or not isinstance(expansion.get("attend", False), bool)
    ):
        expected = "strategy='fixed', a length and, if wanted, attend=True"
        raise unfit(where, "query_expansion", expected, expansion)


def fit_to_vocabulary(given: Config, tokenizer: Tokenizer, notes: list[str]) -> Config:
    """Fit markers and skipped words to the tokens of a vocabulary.

    Markers may be written with a space behind them; the space is dropped. Skipped words
    that the vocabulary lacks are left out.

    Args:
        given: dict, the result of `preprocessor_arguments`.
        tokenizer: a tokenizer layer.
        notes: list to which a sentence on the words that are left out is added.
    """
    known = set(tokenizer.get_vocabulary())
    given = dict(given)
    for name in ("query_marker", "passage_marker"):
        marker = given[name]
        if marker not in known and marker.strip() in known:
            given[name] = marker.strip()
    left = [word for word in given["skipped_tokens"] if word not in known]
    given["skipped_tokens"] = [x for x in given["skipped_tokens"] if x in known]
    if left:
        notes.append(f"Words that aren't skipped, as they are no tokens: {left}.")
    return given


def stanford_arguments(metadata: Mapping[str, Any], where: Path) -> Config:
    """Make arguments of a `LateInteractionPreprocessor` from ColBERT's settings.

    Args:
        metadata: dict, the content of `artifact.metadata`.
        where: path of the file, for messages.
    """
    for key in ("query_maxlen", "doc_maxlen"):
        check_length(metadata, key, where)
    whole = {
        "query_length": metadata.get("query_maxlen"),
        "document_length": _or(metadata.get("doc_maxlen"), 220),
        "attend_to_mask_tokens": metadata.get("attend_to_mask_tokens"),
    }
    markers = {}
    for role, key, usual in (
        ("query", "query_token_id", "[unused0]"),
        ("document", "doc_token_id", "[unused1]"),
    ):
        markers[role] = _or(metadata.get(key), usual)
        if not isinstance(markers[role], str):
            raise unfit(where, key, "a token", markers[role])
    masked = _flag(metadata, "mask_punctuation", True, where)
    skipped = list(string.punctuation) if masked else []
    settings = settings_of_pylate(whole, where)
    return preprocessor_arguments(settings, markers, skipped, 0, where)


def check_length(content: Mapping[str, Any], key: str, where: Path) -> None:
    """Raise a `CheckpointError` for a length of rows that no preprocessor has."""
    length = content.get(key)
    if length is not None and (type(length) is not int or length < 4):
        raise unfit(where, key, "an int of at least 4", length)


def exported(preprocessor: Any) -> Config:
    """Write a `LateInteractionPreprocessor`'s settings by the keys of `PYLATE`.

    Raises:
        ValueError: for markers in rows that end with the start token.
    """
    rows = {kind: preprocessor.rows_of(kind) for kind in ("query", "passage")}
    marked = any(row.marker is not None for row in rows.values())
    if marked and preprocessor.start_last:
        raise ValueError(
            "`query_marker` and `passage_marker` must be '' to export rows that end "
            "with the start token, since sentence-transformers puts markers before "
            f"texts. Received: {preprocessor.markers}."
        )
    known = preprocessor.tokenizer.get_vocabulary()
    markers = {
        kind: "" if row.marker is None else known[row.marker]
        for kind, row in rows.items()
    }
    expansion = None
    if rows["query"].filler is not None:
        attend = rows["query"].attended
        expansion = {"strategy": "fixed", "attend": attend}
        expansion["length"] = preprocessor.query_length
    return {
        "document_length": preprocessor.sequence_length,
        "query_length": preprocessor.query_length,
        "query_expansion": expansion,
        "prompts": {"query": markers["query"], "document": markers["passage"]},
        # As prefixes they stay tokens of their own, whatever text follows.
        "query_prefix": markers["query"],
        "document_prefix": markers["passage"],
        "skiplist_words": [known[token] for token in rows["passage"].skipped],
    }
