"""Turns SentencePiece models into pipelines of `tokenizers` that give the same ids.

The pipelines that `transformers` makes of these models split off user-defined symbols
before they split words, and give other ids for texts with such symbols. Here the whole
text goes through the model at once, and the symbols are pieces like others.
"""

import base64
import math
import re
from typing import Any

import sentencepiece

from keras_bertfam.presets.tokenizer_formats import charsmap
from keras_bertfam.presets.tokenizer_formats.charsmap import Step, replace
from keras_bertfam.presets.tokenizer_formats.piece_models import (
    BPE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    PieceModel,
)

_SPACE = "▁"
# The score of an unknown character is this much below that of the least likely piece.
_UNKNOWN_PENALTY = 10
_SENTINEL = re.compile(r"<extra_id_\d+>")


def parse(proto: bytes) -> Any:
    """Parse the content of a file as a `PieceModel`."""
    model = PieceModel()
    model.ParseFromString(proto)
    return model


def not_expressible(model: Any) -> list[str]:
    """List in phrases the features of a SentencePiece model that no pipeline has.

    Args:
        model: `PieceModel`.
    """
    kinds = {piece.type for piece in model.pieces}
    known = {p.piece for p in model.pieces if p.type in (NORMAL, USER_DEFINED)}
    parts = {c for p in model.pieces if p.type == NORMAL for c in p.piece}
    found = {
        "models other than unigram and BPE": model.trainer_spec.model_type
        not in (UNIGRAM, BPE),
        "unknown characters as bytes": model.trainer_spec.byte_fallback,
        "spaces at the ends of pieces": model.trainer_spec.treat_whitespace_as_suffix,
        "spaces that stay spaces": not model.normalizer_spec.escape_whitespaces,
        "pieces that are never used": kinds - {NORMAL, UNKNOWN, CONTROL, USER_DEFINED},
        "pieces of characters that are no pieces": parts - known,
        "a table of characters other than NFKC's": _steps_of_table(model) is None,
        "user-defined symbols that its own clean-up changes": _changed_symbols(model),
        "pieces that its own merges don't make": model.trainer_spec.model_type == BPE
        and any(len(symbol) > 1 for symbol in _symbols(model))
        and not _makes_all_pieces(model),
    }
    return [phrase for phrase, there in found.items() if there]


def normalizer_steps(model: Any, clean: list[Step]) -> list[Step]:
    """Make the steps that texts go through before they are split into pieces.

    Args:
        model: `PieceModel`.
        clean: list of the steps that come before the model's own steps.
    """
    spec = model.normalizer_spec
    steps = [*clean, *(_steps_of_table(model) or [])]
    if spec.remove_extra_whitespaces:
        steps += [replace(" {2,}", " ", "Regex"), replace(r"\A +", "", "Regex")]
    if spec.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": _SPACE})
    steps.append(replace(" ", _SPACE))
    if spec.remove_extra_whitespaces:
        steps.append(replace(rf"{_SPACE}+\z", "", "Regex"))
    sentinels = [s for s in _symbols(model) if _SENTINEL.fullmatch(s)]
    if sentinels and any(piece.piece == _SPACE for piece in model.pieces):
        steps.append(replace(f"{_SPACE}(?={_one_of(sentinels)})", "", "Regex"))
    if model.trainer_spec.model_type == UNIGRAM:
        steps += _broken_controls(model)
    return steps


def pre_tokenizer(model: Any) -> Step | None:
    """Make the step that splits texts at the symbols of a BPE model; else `None`."""
    symbols = _symbols(model)
    if model.trainer_spec.model_type != BPE or not symbols:
        return None
    pattern = {"Regex": _one_of(symbols)}
    return {
        "type": "Split",
        "pattern": pattern,
        "behavior": "Isolated",
        "invert": False,
    }


def pipeline_model(model: Any) -> dict[str, Any]:
    """Write a SentencePiece model as the model of a pipeline."""
    is_pairs = model.trainer_spec.model_type == BPE
    return _pairs(model) if is_pairs else _unigram(model)


def _unigram(model):
    scores = [p.score for p in model.pieces if p.type == NORMAL]
    least, most = min(scores, default=0.0), max(scores, default=0.0)

    def score(piece):
        if piece.type == USER_DEFINED:  # likelier than other pieces of the same text
            return len(piece.piece.encode()) * most - 0.1
        if piece.type != NORMAL:  # never found in texts: all other pieces are likelier
            return -(len(piece.piece) + 1) * (abs(least) + _UNKNOWN_PENALTY)
        return piece.score

    return {
        "type": "Unigram",
        "unk_id": model.trainer_spec.unk_id,
        "vocab": [[piece.piece, score(piece)] for piece in model.pieces],
        "byte_fallback": False,
    }


def _pairs(model):
    ids = {piece.piece: number for number, piece in enumerate(model.pieces)}
    made = sorted((p for p in model.pieces if p.type == NORMAL), key=lambda p: -p.score)
    known = {piece.piece for piece in made}
    splits = ((p.piece[:k], p.piece[k:]) for p in made for k in range(1, len(p.piece)))
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.pieces[model.trainer_spec.unk_id].piece,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": False,
        "ignore_merges": any(len(symbol) > 1 for symbol in _symbols(model)),
        "vocab": ids,
        "merges": [[a, b] for a, b in splits if a in known and b in known],
    }


def _symbols(model):
    return [piece.piece for piece in model.pieces if piece.type == USER_DEFINED]


def _one_of(texts):
    """Make a pattern that finds the longest of some texts."""
    return "|".join(map(re.escape, sorted(texts, key=lambda text: (-len(text), text))))


def _steps_of_table(model):
    table = model.normalizer_spec.precompiled_charsmap
    return charsmap.steps(table) if table else []


def _changed_symbols(model):
    table = model.normalizer_spec.precompiled_charsmap
    known = charsmap.rules(table) if table else {}
    return [s for s in _symbols(model) if any(c in known for c in (*s, s))]


def _broken_controls(model):
    """Make steps that keep control pieces such as `<s>` from being found in texts.

    A control piece of known characters isn't found, since its score is low. If one of
    its characters is unknown, the unknown token's score is as low. So a second unknown
    character is put behind the first one. Both become one token.
    """
    known = {p.piece for p in model.pieces if p.type in (NORMAL, USER_DEFINED)}
    unknown = next(chr(k) for k in range(0x10FE00, 0x10FF00) if chr(k) not in known)
    steps = []
    for piece in model.pieces:
        if piece.type in (NORMAL, USER_DEFINED):
            continue
        place = next((k for k, c in enumerate(piece.piece) if c not in known), None)
        if place is not None:
            first, rest = piece.piece[: place + 1], piece.piece[place + 1 :]
            steps.append(replace(piece.piece, first + unknown + rest))
    return steps


def _makes_all_pieces(model):
    """Tell whether the model makes one piece of the text of each of its pieces."""
    plain = PieceModel()
    plain.CopyFrom(model)
    plain.normalizer_spec.precompiled_charsmap = b""
    plain.normalizer_spec.add_dummy_prefix = False
    plain.normalizer_spec.remove_extra_whitespaces = False
    known = sentencepiece.SentencePieceProcessor(model_proto=plain.SerializeToString())
    pieces = [piece.piece for piece in model.pieces if piece.type == NORMAL]
    made = known.Encode(pieces, out_type=str)
    return all(parts == [piece] for parts, piece in zip(made, pieces, strict=True))


def proto_of(content: dict[str, Any], clean: list[Step]) -> bytes | None:
    """Rebuild the SentencePiece model from which this module made a pipeline.

    Its user-defined symbols, apart from T5's sentinels, become normal pieces with the
    same scores.

    Args:
        content: dict, a `tokenizer.json`.
        clean: list of the steps that come before the model's own steps.

    Returns:
        bytes, or `None` for a pipeline that this module didn't make.
    """
    steps = (content.get("normalizer") or {}).get("normalizers", [])
    pieces, unknown = content["model"]["vocab"], content["model"]["unk_id"]
    tables = [x["precompiled_charsmap"] for x in steps if "precompiled_charsmap" in x]
    model = PieceModel()
    model.trainer_spec.unk_id = unknown
    spec = model.normalizer_spec
    if tables:
        spec.precompiled_charsmap = base64.b64decode(tables[0])
    spec.add_dummy_prefix = {"type": "Prepend", "prepend": _SPACE} in steps
    spec.remove_extra_whitespaces = replace(" {2,}", " ", "Regex") in steps
    name, score = pieces[unknown]
    rate = -score / (len(name) + 1)
    for number, (piece, score) in enumerate(pieces):
        kind = NORMAL
        if _SENTINEL.fullmatch(piece):
            kind = USER_DEFINED
        elif number == unknown:
            kind = UNKNOWN
        elif math.isclose(-score / (len(piece) + 1), rate):
            kind = CONTROL
        model.pieces.add(piece=piece, score=score, type=kind)
    if _steps_of_table(model) is None or normalizer_steps(model, clean) != steps:
        return None
    proto: bytes = model.SerializeToString()
    return proto
