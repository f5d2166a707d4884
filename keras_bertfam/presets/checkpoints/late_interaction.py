"""Reads folders of ColBERT; what folders say of queries' and passages' tokens.

Three libraries say it in three ways: ColBERT in its file `artifact.metadata`, PyLate in
keys of the whole folder, and sentence-transformers in those of its modules.
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

# Keys of the Transformer's file, and those that PyLate's folders have of the whole.
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
# What PyLate does, where its file says nothing.
_QUERY_LENGTH, _DOCUMENT_LENGTH = 32, 180


_COLBERT, METADATA = "HF_ColBERT", "artifact.metadata"
# The table of the projection, and its name in folders of sentence-transformers.
_LINEAR, _OURS = "linear.weight", "sentence_projection.weight"


def recognises(path: Path) -> bool:
    """Tell whether a path is a folder of ColBERT."""
    if not huggingface.recognises(path):
        return False
    try:
        config = reading.read_json(reading.file_in(path, huggingface.CONFIG))
    except CheckpointError:
        return False
    return config.get("architectures") == [_COLBERT]


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
        raise CheckpointError(f"There is no table {_LINEAR!r} in {os.fspath(path)!r}.")
    tensors[_OURS] = tensors.pop(_LINEAR)
    metadata, notes = {}, list(source.notes)
    if os.path.lexists(os.path.join(path, METADATA)):
        file = reading.file_in(path, METADATA)
        metadata = reading.read_json(file)
        notes += file_keys.COLBERT.notes(metadata, file)
    settings, skipped = _stanford_settings(metadata)
    markers = settings.pop("markers")
    given = preprocessor_arguments(settings, markers, skipped, 0, path)
    width = tensors[_OURS].shape[0]
    return dataclasses.replace(
        source,
        tensors=reading.Tensors(tensors),
        task_arguments={"LateInteraction": {"projection_dim": width}},
        preprocessor_arguments={"LateInteraction": given},
        notes=tuple(notes),
    )


def settings_of_pylate(whole: Mapping[str, Any]) -> Config:
    """Translate PyLate's settings of queries into those of sentence-transformers."""
    length = whole.get("query_length") or _QUERY_LENGTH
    expansion = None
    if whole.get("do_query_expansion", True):
        said = (whole[key] for key in _ATTENDED if whole.get(key) is not None)
        attend = next(said, False)
        expansion = {"strategy": "fixed", "attend": attend, "length": length}
    return {
        "document_length": whole.get("document_length") or _DOCUMENT_LENGTH,
        "query_length": length,
        "query_expansion": expansion,
    }


def preprocessor_arguments(
    lengths: Mapping[str, Any],
    prompts: Mapping[str, str],
    skipped: list[str] | None,
    longest: int,
    where: Path,
) -> Config:
    """Make arguments of a `LateInteractionPreprocessor`.

    Args:
        lengths: dict of the keys in `LENGTHS`, or fewer.
        prompts: dict of `query`, `document` and others: what stands before texts.
        skipped: words that aren't compared in passages.
        longest: int, the length of what has none.
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
        if length is not None and (type(length) is not int or length < 4):
            raise unfit(where, key, "an int of at least 4", length)
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
        or expansion.get("token") is not None  # which would be another than the mask
        or not isinstance(expansion.get("attend", False), bool)
    ):
        expected = "strategy='fixed', a length and, if wanted, attend=True"
        raise unfit(where, "query_expansion", expected, expansion)


def fit_to_vocabulary(given: Config, tokenizer: Tokenizer, notes: list[str]) -> Config:
    """Fit what `preprocessor_arguments` gives to the tokens that there are.

    Markers may be written with a space behind them, and words that aren't compared may
    be none of the vocabulary's.

    Args:
        given: dict.
        tokenizer: a tokenizer layer.
        notes: list that what is left out is added to.
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
        notes.append(f"Words that are no tokens, and so aren't skipped: {left}.")
    return given


def _stanford_settings(metadata):
    """Translate ColBERT's settings: those of PyLate with markers; what is skipped."""
    whole = {
        "query_length": metadata.get("query_maxlen"),
        "document_length": metadata.get("doc_maxlen") or 220,
        "attend_to_mask_tokens": metadata.get("attend_to_mask_tokens"),
    }
    markers = {
        "query": metadata.get("query_token_id") or "[unused0]",
        "document": metadata.get("doc_token_id") or "[unused1]",
    }
    masked = metadata.get("mask_punctuation", True)
    skipped = list(string.punctuation) if masked else []
    return {**settings_of_pylate(whole), "markers": markers}, skipped


def exported(preprocessor: Any) -> Config:
    """Say a `LateInteractionPreprocessor`'s settings by the keys of `PYLATE`."""
    rows = {kind: preprocessor.rows_of(kind) for kind in ("query", "passage")}
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
        # Which makes them tokens wherever the text goes on behind them.
        "query_prefix": markers["query"],
        "document_prefix": markers["passage"],
        "skiplist_words": [known[token] for token in rows["passage"].skipped],
    }
