"""Tokenizers from the files that `transformers` writes, and back."""

import base64
import inspect
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import keras
import keras_hub

from keras_bertfam.presets import reading
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.piece_models import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    PieceModel,
)
from keras_bertfam.presets.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.tokenizer_json import byte_pair_json
from keras_bertfam.types import Config, Path, Tokenizer

# What `transformers` calls our classes, and the files that KerasHub writes for each.
_BYTE_PAIR = {"vocabulary.json": "vocab.json", "merges.txt": "merges.txt"}
_PIECES = {"vocabulary.spm": "spiece.model"}
_EXPORTS = {
    "BertTokenizer": {"vocabulary.txt": "vocab.txt"},
    "RobertaTokenizer": _BYTE_PAIR,
    "BartTokenizer": _BYTE_PAIR,
    "GPT2Tokenizer": _BYTE_PAIR,
    "GPTTokenizer": _BYTE_PAIR,
    "AlbertTokenizer": _PIECES,
    "XLNetTokenizer": _PIECES,
    "T5Tokenizer": _PIECES,
}
_BY_JSON = ("ModernBertTokenizer",)
_NO_PREFIX = ("GPTTokenizer", "ModernBertTokenizer")
_THEIR_NAMES = {"GPTTokenizer": "OpenAIGPTTokenizer"}
_NAMES = ("pad", "unk", "cls", "sep", "mask")


def load_tokenizer(source: CheckpointSource) -> Tokenizer:
    """The tokenizer of a checkpoint.

    Args:
        source: `CheckpointSource`.

    Returns:
        A tokenizer layer.

    Raises:
        CheckpointError: if there are no files of a tokenizer, or damaged ones.
    """
    files = source.tokenizer_files
    for names, load in _LOADERS.items():
        if all(name in files for name in names):
            paths = [files[name] for name in names]
            # The parsers of the tokenizers raise whatever TensorFlow raises.
            with reading.errors_of(paths[0], Exception):
                for path in paths:
                    reading.check_bytes(path)
                return load(source, *paths)
    raise CheckpointError(
        f"There is no tokenizer in {os.fspath(source.path)!r}. Expected: "
        f"{', or '.join(' and '.join(names) for names in _LOADERS)}."
    )


def _ours(name):
    """A tokenizer class of ours: it registers itself when it is defined."""
    return keras.saving.get_registered_object(f"keras_bertfam>{name}")


def _word_piece(source, path):
    vocabulary = reading.vocabulary_lines(path)
    # Unless it is said, a vocabulary with capitals keeps case. [CLS] isn't one.
    written = (token for token in vocabulary if not token.startswith("["))
    cased = any(token != token.lower() for token in written)
    config = {"do_lower_case": not cased, **source.tokenizer_config}
    return _bert_tokenizer(source, vocabulary, config)


def _bert_tokenizer(source, vocabulary, config, lowercase="do_lower_case"):
    lowercase = _flag(config, lowercase, True)
    accents = config.get("strip_accents")
    if accents not in (None, lowercase) or not _flag(
        config, "tokenize_chinese_chars", True
    ):
        raise CheckpointError(
            f"The tokenizer of {os.fspath(source.path)!r} must strip accents where it "
            f"lower-cases, and split Chinese characters. Received: {config}."
        )
    return _ours("BertTokenizer")(vocabulary, lowercase=lowercase)


def _flag(config, name, default):
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name!r} must be a bool. Received: {value!r}.")
    return value


def _byte_pair(source, vocabulary, merges):
    ids = reading.read_json(vocabulary, vocabulary=True)
    with open(merges, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    lines = [line for line in lines if line and not line.startswith("#version")]
    return _byte_pair_tokenizer(source, ids, lines)


def _check_ids(ids):
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("the ids of the vocabulary must be 0, 1, 2, ..., each once")


def _byte_pair_tokenizer(source, ids, merges, prefixed=False):
    _check_ids(ids)
    record = FAMILIES[source.family]
    # Encoders of other families may have RoBERTa's vocabulary, as DistilRoBERTa.
    own = record.tokenizer == "byte_pair"
    name = record.tokenizer_class if own else "RobertaTokenizer"
    cls = _ours(name) or getattr(keras_hub.tokenizers, name)
    if not _flag(source.tokenizer_config, "add_prefix_space", prefixed):
        return cls(ids, merges)
    if name in _NO_PREFIX:
        raise CheckpointError(
            f"The tokenizer of {os.fspath(source.path)!r} must add no space before a "
            f"text, as a {name}. Received: add_prefix_space=True."
        )
    return cls(ids, merges, add_prefix_space=True)


def _sentence_piece(source, path):
    return _sentence_piece_tokenizer(source, pathlib.Path(path).read_bytes())


def _sentence_piece_tokenizer(source, proto, stated=None):
    record = FAMILIES[source.family]
    if record.tokenizer != "sentence_piece":
        raise CheckpointError(
            f"The tokenizer of {os.fspath(source.path)!r} must be of the kind "
            f"{record.tokenizer!r}, as the family {record.name!r} has. Received: "
            "a SentencePiece model."
        )
    cls, given = _ours(record.tokenizer_class), {}
    config = {**source.tokenizer_config, **(stated or {})}
    if "do_lower_case" in config:  # each class has a default of its own
        given["lowercase"] = _flag(config, "do_lower_case", None)
    if "keep_accents" in config:
        given["keep_accents"] = _flag(config, "keep_accents", None)
    if "sentinels" in inspect.signature(cls).parameters:
        given = {}  # T5's clean-up is all in its model
        if "extra_ids" in config:
            given["sentinels"] = int(config["extra_ids"])
    return cls(proto, **given)


def _tokenizer_json(source, path):
    content = reading.read_json(path, vocabulary=True)
    model = content["model"]
    if model["type"] == "WordPiece":
        _check_ids(model["vocab"])
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        config = content["normalizer"] or {"lowercase": False}
        return _bert_tokenizer(source, tokens, config, "lowercase")
    if model["type"] == "BPE":
        pairs = (m if isinstance(m, str) else " ".join(m) for m in model["merges"])
        given = content.get("added_tokens") or []
        added = {each["content"]: each["id"] for each in given if "id" in each}
        ids, split = {**model["vocab"], **added}, steps_of(content, "pre_tokenizer")
        prefixed = any(step.get("add_prefix_space") for step in split)
        return _byte_pair_tokenizer(source, ids, list(pairs), prefixed)
    if model["type"] == "Unigram":
        done = {step["type"] for step in steps_of(content, "normalizer")}
        stated = {
            "do_lower_case": "Lowercase" in done,
            "keep_accents": "StripAccents" not in done,
        }
        return _sentence_piece_tokenizer(source, _proto(content), stated)
    raise ValueError(f"no tokenizer here is of the type {model['type']!r}")


def steps_of(content, name):
    """What a `tokenizer.json` does one after the other, as the `normalizer`."""
    step = content.get(name) or {}
    inner = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}[name]
    return step.get(inner, [step] if step else [])


def _proto(content):
    """A SentencePiece model from the JSON of its fast counterpart."""
    normalizers = steps_of(content, "normalizer")
    special = {token["content"]: token["special"] for token in content["added_tokens"]}
    proto = PieceModel()
    for index, (piece, score) in enumerate(content["model"]["vocab"]):
        kind = NORMAL
        if index == content["model"]["unk_id"]:
            kind = UNKNOWN
        elif piece in special:
            kind = CONTROL if special[piece] else USER_DEFINED
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.unk_id = content["model"]["unk_id"]
    for normalizer in normalizers:
        if normalizer["type"] == "Precompiled":
            table = base64.b64decode(normalizer["precompiled_charsmap"])
            proto.normalizer_spec.precompiled_charsmap = table
    return proto.SerializeToString()


_LOADERS: dict[tuple[str, ...], Callable[..., Tokenizer]] = {
    ("vocab.txt",): _word_piece,
    ("vocab.json", "merges.txt"): _byte_pair,
    ("spiece.model",): _sentence_piece,
    ("tokenizer.json",): _tokenizer_json,
}


def export_tokenizer(tokenizer: Tokenizer, folder: Path) -> dict[str, int]:
    """Write the files from which `transformers` makes the same tokenizer.

    Args:
        tokenizer: a tokenizer that `load_tokenizer` gives, or KerasHub's class of
            that name.
        folder: path of a folder that is there.

    Returns:
        dict of the ids of special tokens, as a config of `transformers` has them.

    Raises:
        ValueError: for a tokenizer that `transformers` doesn't have.
    """
    names = [base.__name__ for base in type(tokenizer).__mro__]
    name = next((name for name in names if name in (*_EXPORTS, *_BY_JSON)), None)
    if name is None:
        raise ValueError(
            f"`transformers` has no {type(tokenizer).__name__}. Expected one of "
            f"{', '.join((*_EXPORTS, *_BY_JSON))}."
        )
    if name in _BY_JSON:
        return _export_json(tokenizer, folder)
    with tempfile.TemporaryDirectory() as assets:
        tokenizer.save_assets(assets)
        for ours, theirs in _EXPORTS[name].items():
            shutil.copy(os.path.join(assets, ours), os.path.join(folder, theirs))
    config: Config = {"tokenizer_class": _THEIR_NAMES.get(name, name)}
    settings = tokenizer.get_config()
    for ours, theirs in (("lowercase", "do_lower_case"), ("keep_accents",) * 2):
        if ours in settings:
            config[theirs] = settings[ours]
    if name == "T5Tokenizer":
        config["extra_ids"] = 0  # the model has them
    _write_json(folder, "tokenizer_config.json", config)
    return _special_ids(tokenizer)


def _special_ids(tokenizer):
    ids = {"pad_token_id": "pad", "bos_token_id": "start", "eos_token_id": "end"}
    special = {key: getattr(tokenizer, f"{n}_token_id") for key, n in ids.items()}
    return {key: int(value) for key, value in special.items() if value is not None}


def _export_json(tokenizer, folder):
    content, config = byte_pair_json(tokenizer)
    _write_json(folder, "tokenizer.json", content)
    _write_json(folder, "tokenizer_config.json", config)
    return _special_ids(tokenizer)


def _write_json(folder, name, content):
    text = json.dumps(content, indent=2, ensure_ascii=False)
    pathlib.Path(folder, name).write_text(text + "\n", "utf-8")
