"""Reads tokenizers from files of `transformers`, and writes such files."""

import base64
import inspect
import itertools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import keras

from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.checkpoints.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.converting.report import warn
from keras_bertfam.presets.families import (
    FAMILIES,
    family_of_tokenizer,
    transformers_tables,
)
from keras_bertfam.presets.tokenizer_formats import (
    piece_pipelines,
    tokenizer_keys,
    tokenizer_pipelines,
)
from keras_bertfam.presets.tokenizer_formats.piece_models import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    PieceModel,
)
from keras_bertfam.presets.tokenizer_formats.tokenizer_json import (
    added_tokens_decoder,
    not_expressible,
    tokenizer_json,
)
from keras_bertfam.presets.tokenizer_formats.tokenizer_keys import (
    check_added_ids,
    differing_tokens,
    new_tokens,
    read_added_tokens,
)
from keras_bertfam.types import Config, Path, Tokenizer

# The files that KerasHub writes for each class, and their names in `transformers`.
_BYTE_PAIR = {"vocabulary.json": "vocab.json", "merges.txt": "merges.txt"}
_PIECES = {"vocabulary.spm": "spiece.model"}
_PIECES_OF_FAIRSEQ = {"vocabulary.spm": "sentencepiece.bpe.model"}
_EXPORTS = {
    "BertTokenizer": {"vocabulary.txt": "vocab.txt"},
    "MPNetTokenizer": {"vocabulary.txt": "vocab.txt"},
    "RobertaTokenizer": _BYTE_PAIR,
    "BartTokenizer": _BYTE_PAIR,
    "DebertaTokenizer": _BYTE_PAIR,
    "GPT2Tokenizer": _BYTE_PAIR,
    "GPTTokenizer": _BYTE_PAIR,
    "AlbertTokenizer": _PIECES,
    "XLNetTokenizer": _PIECES,
    "T5Tokenizer": _PIECES,
    "CamembertTokenizer": _PIECES_OF_FAIRSEQ,
    "XLMRobertaTokenizer": _PIECES_OF_FAIRSEQ,
    "DebertaV2Tokenizer": {"vocabulary.spm": "spm.model"},
}
_BY_JSON = ("ModernBertTokenizer", "EuroBertTokenizer", "GemmaTokenizer")
_JSON = "tokenizer.json"
# Settings that only a `tokenizer.json` can have, and what they mostly are.
_IN_JSON_ONLY: Config = {
    "normalizer": None,
    "pre_tokenizer": None,
    "ignore_merges": False,
    "max_input_chars_per_word": 100,
}
# Settings of a `tokenizer_config.json`; `transformers` has no name for the last two.
_FLAGS: Config = {"add_prefix_space": False, "special_tokens_in_strings": False}
_FLAGS |= {"split_number_commas": True}
_THEIR_NAMES = {"GPTTokenizer": "OpenAIGPTTokenizer"}


def load_tokenizer(source: CheckpointSource) -> Tokenizer:
    """Load the tokenizer of a checkpoint.

    Args:
        source: `CheckpointSource`.

    Returns:
        A tokenizer layer.

    Raises:
        CheckpointError: if files are missing or damaged, or ask for something that no
            tokenizer here does.
    """
    if refused := refusal(source):
        raise CheckpointError(refused)
    files = source.tokenizer_files
    for names, load in _LOADERS.items():
        if all(name in files for name in names):
            paths = [files[name] for name in names]
            # The parsers of the tokenizers raise whatever TensorFlow raises.
            with reading.errors_of(paths[0], Exception):
                for path in paths:
                    reading.check_bytes(path)
                added = read_added_tokens(source)
                tokenizer = load(source, added, *paths)
                check_added_ids(added, tokenizer)
                tokenizer_keys.check_stated(source, tokenizer)
                return tokenizer
    raise CheckpointError(
        f"There is no tokenizer in {os.fspath(source.path)!r}. Expected: "
        f"{', or '.join(' and '.join(names) for names in _LOADERS)}."
    )


def _has_own_settings(source):
    """Tell whether settings of a class override the steps of a `tokenizer.json`.

    In `transformers`, classes of a family do this. The generic ones read the file as it
    is; so is a file without a `tokenizer_config.json` read here.
    """
    said = source.tokenizer_config.get("tokenizer_class")
    if not source.tokenizer_config:
        return False
    if said is None:
        return FAMILIES[source.family].tokenizer_class not in _BY_JSON
    return said not in ("PreTrainedTokenizerFast", "TokenizersBackend")


def refusal(source: CheckpointSource) -> str | None:
    """Say why a checkpoint's tokenizer isn't read; give `None` if it is."""
    table = transformers_tables().get(source.family)
    if table is None or table.no_tokenizer is None or not source.tokenizer_files:
        return None
    said = source.tokenizer_config.get("tokenizer_class")
    if said not in (None, f"{table.title}Tokenizer"):
        return None  # another family's, by its class
    return (
        f"The tokenizer in {os.fspath(source.path)!r} isn't supported. "
        f"{table.no_tokenizer}"
    )


def _ours(name):
    """Find one of our tokenizer classes by name, among those registered with Keras."""
    return keras.saving.get_registered_object(f"keras_bertfam>{name}")


def _word_piece(source, added, path):
    vocabulary = reading.vocabulary_lines(path)
    # By default, case is kept if tokens other than [CLS] and the like have capitals.
    written = (token for token in vocabulary if not token.startswith("["))
    cased = any(token != token.lower() for token in written)
    config = {"do_lower_case": not cased, **source.tokenizer_config}
    given = tokenizer_pipelines.word_piece_arguments(
        {
            "normalizer": _bert_normalizer(config),
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {
                "max_input_chars_per_word": config.get("max_input_chars_per_word", 100)
            },
        }
    )
    return _word_piece_tokenizer(source, vocabulary, added, given, path)


def _bert_normalizer(config):
    """Make BERT's clean-up of the flags in a `tokenizer_config.json`."""
    accents = config.get("strip_accents")
    if accents is not None:
        accents = _flag(config, "strip_accents", None)
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": _flag(config, "tokenize_chinese_chars", True),
        "strip_accents": accents,
        "lowercase": _flag(config, "do_lower_case", True),
    }


def _word_piece_tokenizer(source, vocabulary, added, given, path):
    cls = _word_piece_class(source)
    if _flag(source.tokenizer_config, "special_tokens_in_strings", False):
        given["special_tokens_in_strings"] = True
    # Texts with the strings of special tokens don't get their ids by default.
    new = new_tokens(added, cls.required_tokens)
    try:
        return cls(vocabulary, added_tokens=new, **given)
    except ValueError as error:
        raise CheckpointError(
            f"The vocabulary in {os.fspath(path)!r} isn't supported. {error}"
        ) from error


def _word_piece_class(source):
    """Find the WordPiece class that the files name, or else the family's."""
    records = (r for r in FAMILIES.values() if r.tokenizer == "word_piece")
    names = {record.tokenizer_class for record in records}
    said = str(source.tokenizer_config.get("tokenizer_class")).removesuffix("Fast")
    own = FAMILIES[source.family].tokenizer_class
    return _ours(next((n for n in (said, own) if n in names), "BertTokenizer"))


def _flag(config, name, default):
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name!r} must be a bool. Received: {value!r}.")
    return value


def _byte_pair(source, added, vocabulary, merges):
    ids = reading.read_json(vocabulary, vocabulary=True)
    if not all(isinstance(number, int) for number in ids.values()):
        raise ValueError("the ids of the vocabulary must be ints")
    with reading.errors_of(merges, ValueError), open(merges, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
        _check_merges(ids, lines)
    lines = [line for line in lines if line and not line.startswith("#version")]
    given = {}
    if _flag(source.tokenizer_config, "add_prefix_space", False):
        given["add_prefix_space"] = True
    return _byte_pair_tokenizer(source, added, ids, lines, given)


def _check_merges(ids, lines):
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#version"):
            continue
        parts = line.split(" ")
        unknown = [part for part in (*parts, "".join(parts)) if part not in ids]
        if len(parts) != 2 or unknown:
            raise ValueError(
                f"line {number} must have two tokens of the vocabulary with a space "
                f"between them, which joined are a token, too. Received: {line!r}."
            )


def _check_ids(ids):
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("the ids of the vocabulary must be 0, 1, 2, ..., each once")


def _byte_pair_class(source):
    record = FAMILIES[source.family]
    # Encoders of other families, such as DistilRoBERTa, may have RoBERTa's vocabulary.
    own = record.tokenizer == "byte_pair"
    return _ours(record.tokenizer_class if own else "RobertaTokenizer")


def _byte_pair_tokenizer(source, added, ids, merges, given, cls=None):
    ids = {**ids, **{token["content"]: token["id"] for token in added if "id" in token}}
    _check_ids(ids)
    cls = cls or _byte_pair_class(source)
    if given.get("add_prefix_space") and cls.__name__ == "GPTTokenizer":
        raise CheckpointError(
            f"The tokenizer of {os.fspath(source.path)!r} must add no space before a "
            f"text, as a {cls.__name__}. Received: add_prefix_space=True."
        )
    plain = cls(ids, merges)
    new = differing_tokens(added, plain)
    return cls(ids, merges, added_tokens=new, **given) if new or given else plain


def _sentence_piece(source, added, path):
    proto = pathlib.Path(path).read_bytes()
    tokenizer = _sentence_piece_tokenizer(source, added, proto)
    if _JSON in source.tokenizer_files:
        _check_pieces(tokenizer, path, source.tokenizer_files[_JSON])
    return tokenizer


def _check_pieces(tokenizer, path, other):
    """Check that a SentencePiece model has the pieces of a `tokenizer.json` beside it.

    `transformers` reads the second one, and so must get the same ids.
    """
    model = reading.read_json(other, vocabulary=True).get("model") or {}
    if model.get("type") != "Unigram":
        return
    ours, theirs = tokenizer.get_vocabulary(), (piece for piece, _ in model["vocab"])
    for index, (mine, piece) in enumerate(zip(ours, theirs, strict=False)):
        if mine != piece:
            raise CheckpointError(
                f"{os.fspath(path)!r} and {os.fspath(other)!r} must have the same "
                f"pieces; remove the one that isn't the model's. Received for the id "
                f"{index}: {mine!r} and {piece!r}."
            )


def _sentence_piece_tokenizer(source, added, proto, stated=None):
    record = FAMILIES[source.family]
    if record.tokenizer != "sentence_piece":
        raise CheckpointError(
            f"The tokenizer of {os.fspath(source.path)!r} must be of the kind "
            f"{record.tokenizer!r}, as in the family {record.name!r}. Received: "
            "a SentencePiece model."
        )
    cls, given = _ours(record.tokenizer_class), {}
    config = {**source.tokenizer_config, **(stated or {})}
    if "do_lower_case" in config:  # else the class's default counts
        given["lowercase"] = _flag(config, "do_lower_case", None)
    if "keep_accents" in config:
        given["keep_accents"] = _flag(config, "keep_accents", None)
    arguments = inspect.signature(cls).parameters
    if "lowercase" not in arguments:  # the SentencePiece model does all of its clean-up
        if given.get("lowercase") or given.get("keep_accents") is False:
            raise CheckpointError(
                f"The tokenizer of {os.fspath(source.path)!r} must keep case and "
                f"accents, as a {cls.__name__}. Received: "
                f"do_lower_case={given.get('lowercase')}, "
                f"keep_accents={given.get('keep_accents')}."
            )
        given = {}
    if "lowercase" in arguments and "split_number_commas" in config:
        given["split_number_commas"] = _flag(config, "split_number_commas", None)
    if "sentinels" in arguments and "extra_ids" in config:
        given["sentinels"] = int(config["extra_ids"])
    # The model finds its own pieces in texts.
    known = cls(proto, **given)
    new = new_tokens(added, {*known.get_vocabulary()})
    return cls(proto, added_tokens=new, **given) if new else known


def _tokenizer_json(source, added, path):
    content = reading.read_json(path, vocabulary=True)
    kind = tokenizer_pipelines.check_keys(content, path)
    model, own_settings = content["model"], _has_own_settings(source)
    if kind == "WordPiece":
        _check_ids(model["vocab"])
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        is_berts = (content.get("normalizer") or {}).get("type") == "BertNormalizer"
        if is_berts and own_settings and "do_lower_case" in source.tokenizer_config:
            normalizer = _bert_normalizer(source.tokenizer_config)
            content = {**content, "normalizer": normalizer}
        given = tokenizer_pipelines.word_piece_arguments(content)
        tokenizer = _word_piece_tokenizer(source, tokens, added, given, path)
    elif kind == "BPE":
        pairs = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        # ModernBERT's encoders may have Gemma's vocabulary, such as mmBERT.
        falls_back = model.get("byte_fallback")
        cls = _ours("GemmaTokenizer") if falls_back else _byte_pair_class(source)
        given = tokenizer_pipelines.byte_pair_arguments(content, cls.__name__, path)
        if own_settings or "add_prefix_space" in source.tokenizer_config:
            given.pop("add_prefix_space", None)
            if _flag(source.tokenizer_config, "add_prefix_space", False):
                given["add_prefix_space"] = True
        ids = model["vocab"]
        tokenizer = _byte_pair_tokenizer(source, added, ids, pairs, given, cls)
    else:
        own = _own_pipeline(source, content)
        stated, proto = own or (
            tokenizer_pipelines.piece_arguments(content, path),
            _proto(content),
        )
        tokenizer = _sentence_piece_tokenizer(source, added, proto, stated)
        pieces = [piece for piece, _ in model["vocab"]]
        if tokenizer.get_vocabulary()[: len(pieces)] != pieces:
            raise ValueError(
                f"the pieces must be in the order that a {type(tokenizer).__name__} has"
            )
    record = FAMILIES[source.family]
    if record.tokenizer_class != type(tokenizer).__name__:
        record = family_of_tokenizer(tokenizer) or FAMILIES["bert"]
    table = record.transformers
    layouts = record.layout.name, *(table.other_layouts if table else ())
    tokenizer_pipelines.check_layout(content, tokenizer, layouts, path)
    return tokenizer


def _own_pipeline(source, content):
    """Read the clean-up and model of a pipeline of `piece_pipelines`; else `None`."""
    record = FAMILIES[source.family]
    if record.tokenizer != "sentence_piece":
        return None
    cls = _ours(record.tokenizer_class)
    names = ("lowercase", "keep_accents")
    flags = [{}]
    if "lowercase" in inspect.signature(cls).parameters:
        flags = [
            dict(zip(names, pair, strict=True))
            for pair in itertools.product((True, False), repeat=2)
        ]
    for given in flags:
        proto = piece_pipelines.proto_of(content, cls(**given).clean_steps())
        if proto is not None:
            stated = {"do_lower_case": given.get("lowercase", False)}
            return {**stated, "keep_accents": given.get("keep_accents", True)}, proto
    return None


def _proto(content):
    """Rebuild a SentencePiece model from the JSON that `transformers` made of it."""
    normalizers = tokenizer_pipelines.steps_of(content, "normalizer")
    # T5's sentinels are special, but are found in texts.
    special = {
        token["content"]: token["special"] and not token["content"].startswith("<extra")
        for token in content.get("added_tokens") or ()
    }
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


# As in `transformers`, a `tokenizer.json` comes first. But a SentencePiece model has
# normalization that a pipeline may not express.
_LOADERS: dict[tuple[str, ...], Callable[..., Tokenizer]] = {
    ("spiece.model",): _sentence_piece,
    (_JSON,): _tokenizer_json,
    ("vocab.txt",): _word_piece,
    ("vocab.json", "merges.txt"): _byte_pair,
}


def export_tokenizer(
    tokenizer: Tokenizer, folder: Path, longest: int | None = None
) -> dict[str, int]:
    """Write the files from which `transformers` makes the same tokenizer.

    Args:
        tokenizer: a tokenizer of a class that `load_tokenizer` returns, or of
            KerasHub's class of the same name.
        folder: path of an existing folder.
        longest: int. The length to which `transformers` truncates rows, the positions
            of the model; `None` for any.

    Returns:
        dict of the ids of special tokens, by their keys in a config of `transformers`.

    Raises:
        ValueError: for a tokenizer of a class that `transformers` lacks.
    """
    names = [base.__name__ for base in type(tokenizer).__mro__]
    name = next((name for name in names if name in (*_EXPORTS, *_BY_JSON)), None)
    if name is None:
        raise ValueError(
            f"`transformers` has no {type(tokenizer).__name__}. Expected one of "
            f"{', '.join((*_EXPORTS, *_BY_JSON))}."
        )
    settings = tokenizer.get_config()
    config: Config = _unusual(settings, _FLAGS)
    if name in _BY_JSON or _unusual(settings, _IN_JSON_ONLY):
        content, found = tokenizer_json(tokenizer, _layout(tokenizer))
        _write_json(folder, "tokenizer.json", content)
        return _export_config(tokenizer, folder, {**found, **config}, longest)
    with tempfile.TemporaryDirectory() as assets:
        tokenizer.save_assets(assets)
        for ours, theirs in _EXPORTS[name].items():
            shutil.copy(os.path.join(assets, ours), os.path.join(folder, theirs))
    config["tokenizer_class"] = _THEIR_NAMES.get(name, name)
    for ours, theirs in (("lowercase", "do_lower_case"), ("keep_accents",) * 2):
        if ours in settings:
            config[theirs] = settings[ours]
    if _EXPORTS[name] is _BYTE_PAIR and getattr(tokenizer, "mask_token", None):
        # Otherwise the space before a mask would be a token.
        flags: Config = {"lstrip": True, "rstrip": False, "single_word": False}
        flags |= {"normalized": False, "special": True, "__type": "AddedToken"}
        config["mask_token"] = {"content": tokenizer.mask_token, **flags}
    if name == "T5Tokenizer":
        config["extra_ids"] = 0  # the SentencePiece model has the sentinels
    if hasattr(tokenizer, "proto_in_own_order"):
        [file] = _EXPORTS[name].values()
        pathlib.Path(folder, file).write_bytes(tokenizer.proto_in_own_order())
    if getattr(tokenizer, "added_tokens", ()):
        config["added_tokens_decoder"] = added_tokens_decoder(tokenizer)
    if hasattr(tokenizer, "clean_steps"):
        config |= _export_pieces(tokenizer, folder)
    return _export_config(tokenizer, folder, config, longest)


def _unusual(settings, usual):
    """Give the settings that differ from the usual ones; some may be absent."""
    return {
        key: settings[key]
        for key, value in usual.items()
        if settings.get(key, value) != value
    }


def _export_config(tokenizer, folder, config, longest):
    """Write `tokenizer_config.json`, and return the ids of special tokens."""
    limit = {} if longest is None else {"model_max_length": longest}
    _write_json(folder, "tokenizer_config.json", {**config, **limit})
    ids = {"pad_token_id": "pad", "bos_token_id": "start", "eos_token_id": "end"}
    special = {key: getattr(tokenizer, f"{n}_token_id") for key, n in ids.items()}
    return {key: int(value) for key, value in special.items() if value is not None}


def _export_pieces(tokenizer, folder):
    """Write the `tokenizer.json` of a SentencePiece model, and return its config."""
    if lacking := not_expressible(tokenizer):
        warn(
            "No `tokenizer.json` was written, as it can't express features of this "
            f"{type(tokenizer).__name__}: {', '.join(lacking)}. `transformers` reads "
            "the SentencePiece model instead and may give other ids."
        )
        return {}
    if commas := tokenizer.split_commas():
        warn(
            "The `tokenizer.json` can't express that the comma behind a number is a "
            f"token of its own (split_number_commas=True), as in {commas[0]!r}. In "
            "`transformers`, texts with such numbers get SentencePiece's ids."
        )
    content, config = tokenizer_json(tokenizer, _layout(tokenizer))
    _write_json(folder, "tokenizer.json", content)
    return config


def _layout(tokenizer):
    """Name the layout of the first family whose tokenizers have this class."""
    family = family_of_tokenizer(tokenizer)
    return (family or FAMILIES["bert"]).layout.name


def _write_json(folder, name, content):
    text = json.dumps(content, indent=2, ensure_ascii=False)
    pathlib.Path(folder, name).write_text(text + "\n", "utf-8")
