"""Writes tokenizers as the JSON file that the library `tokenizers` reads."""

from typing import Any

from keras_bertfam.presets.tokenizer_formats import piece_pipelines
from keras_bertfam.presets.tokenizer_formats.piece_models import CONTROL
from keras_bertfam.presets.tokenizer_formats.tokenizer_keys import FLAGS
from keras_bertfam.presets.tokenizer_formats.tokenizer_pipelines import expected_rows
from keras_bertfam.types import Tokenizer

_ROLES = {"start": ("bos", "cls"), "end": ("eos", "sep"), "pad": ("pad",)}
_ROLES |= {"mask": ("mask",), "unk": ("unk",)}
# Layouts that number the texts of a row.
_WITH_SEGMENTS = ("bert", "xlnet")


def tokenizer_json(
    tokenizer: Tokenizer, layout: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the contents of `tokenizer.json` and `tokenizer_config.json`.

    Args:
        tokenizer: a tokenizer of word pieces, of byte-level BPE, or of SentencePiece.
        layout: str. The name of the layout of the tokenizer's family.

    Returns:
        A tuple of two dicts.
    """
    if hasattr(tokenizer, "proto"):
        return _pieces_json(tokenizer, layout)
    if getattr(tokenizer, "falls_back_to_bytes", False):
        return _gemma_json(tokenizer, layout)
    is_pairs = hasattr(tokenizer, "merges")
    vocabulary = {t: tokenizer.token_to_id(t) for t in tokenizer.get_vocabulary()}
    roles = {role: getattr(tokenizer, f"{role}_token", None) for role in _ROLES}
    if not is_pairs or "[UNK]" in vocabulary:
        roles["unk"] = "[UNK]"
    elif "<unk>" in vocabulary:
        roles["unk"] = "<unk>"
    own = {token for token in roles.values() if token in vocabulary}
    given = {token.content: token for token in tokenizer.added_tokens}
    runs = {t for t in vocabulary if is_pairs and not t.strip(" ")}
    mask = roles["mask"] if is_pairs else None
    added = [
        _added(name, number, given.get(name), name in own, name == mask)
        for name, number in vocabulary.items()
        if name in own or name in given or name in runs
    ]
    added.sort(key=lambda token: token["id"])
    listed = {token["content"] for token in added}
    if is_pairs:
        pairs = [merge.split(" ") for merge in tokenizer.merges]
        outside = listed - {
            symbol for pair in pairs for symbol in (*pair, "".join(pair))
        }
        model = {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            # Added tokens that merges make, or use, are the model's as well.
            "vocab": {k: n for k, n in vocabulary.items() if k not in outside},
            "merges": list(tokenizer.merges),
        }
        if getattr(tokenizer, "ignore_merges", False):
            model["ignore_merges"] = True
    else:
        model = {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.max_input_chars_per_word,
            # Added tokens that it has, too, or their ids would be others.
            "vocab": {k: vocabulary[k] for k in tokenizer.model_vocabulary()},
        }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    content = _content(
        added,
        _sequence(tokenizer.normalizer_steps(), "normalizers"),
        _sequence(tokenizer.pre_tokenizer_steps(), "pretokenizers"),
        _template(tokenizer, layout),
        _byte_level() if is_pairs else decoder,
        model,
    )
    return content, _config(roles, vocabulary, *_segments(layout))


def _segments(layout):
    return ["token_type_ids"] if layout in _WITH_SEGMENTS else []


def _content(added, normalizer, pre_tokenizer, post_processor, decoder, model):
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }


def _config(roles, vocabulary, *inputs):
    named = {
        f"{name}_token": token
        for role, token in roles.items()
        for name in _ROLES[role]
        if token in vocabulary
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", *inputs, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **named,
    }


def _gemma_json(tokenizer, layout):
    vocabulary = {t: tokenizer.token_to_id(t) for t in tokenizer.get_vocabulary()}
    roles = {role: getattr(tokenizer, f"{role}_token") for role in _ROLES}
    given = {token.content: token for token in tokenizer.added_tokens}
    own, mask = {*roles.values()}, roles["mask"]
    added = [
        _added(name, vocabulary[name], given.get(name), name in own, name == mask)
        for name in sorted({*own, *given}, key=vocabulary.__getitem__)
    ]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    content = _content(
        added,
        space,
        None,
        _template(tokenizer, layout),
        _sequence([back, {"type": "ByteFallback"}, {"type": "Fuse"}], "decoders"),
        {
            "type": "BPE",
            "dropout": None,
            "unk_token": roles["unk"],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {k: n for k, n in vocabulary.items() if k in tokenizer.vocabulary},
            "merges": [merge.split(" ") for merge in tokenizer.merges],
        },
    )
    return content, _config(roles, vocabulary)


def not_expressible(tokenizer: Tokenizer) -> list[str]:
    """List in phrases the features of a tokenizer that no pipeline has.

    Args:
        tokenizer: a tokenizer of SentencePiece.
    """
    found = piece_pipelines.not_expressible(piece_pipelines.parse(tokenizer.proto))
    cleans = len(tokenizer.clean_steps()) > 1
    if cleans and any(token.normalized for token in tokenizer.added_tokens):
        found.append("added tokens that are looked for after a clean-up")
    return found


def _pieces_json(tokenizer, layout):
    model = piece_pipelines.parse(tokenizer.proto)
    vocabulary = {token: k for k, token in enumerate(tokenizer.get_vocabulary())}
    roles = {role: getattr(tokenizer, f"{role}_token", None) for role in _ROLES}
    roles["unk"] = model.pieces[model.trainer_spec.unk_id].piece
    given = {token.content: token for token in tokenizer.added_tokens}
    own = {*roles.values()} & {*vocabulary}
    pipeline = piece_pipelines.pipeline_model(model)
    # Otherwise a control piece that stands alone would be found.
    if pipeline.get("ignore_merges"):
        own |= {piece.piece for piece in model.pieces if piece.type == CONTROL}
    added = [
        {**_added(name, vocabulary[name], given.get(name), name in own, False)}
        | {"normalized": False}  # if True, it would be found only behind a space
        for name in sorted({*own, *given}, key=vocabulary.__getitem__)
    ]
    content = _content(
        added,
        _sequence(
            piece_pipelines.normalizer_steps(model, tokenizer.clean_steps()),
            "normalizers",
        ),
        piece_pipelines.pre_tokenizer(model),
        _template(tokenizer, layout),
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        pipeline,
    )
    config = _config(roles, vocabulary, *_segments(layout))
    return content, {**config, "padding_side": "left" if layout == "xlnet" else "right"}


def added_tokens_decoder(tokenizer: Tokenizer) -> dict[str, Any]:
    """Make the `added_tokens_decoder` of a `tokenizer_config.json`: tokens by id."""
    return {
        str(tokenizer.token_to_id(token.content)): dict(vars(token))
        for token in tokenizer.added_tokens
    }


def _added(name, number, token, special, lstrip):
    """Make the entry of a special token, an added token, or a run of spaces."""
    flags: dict[str, Any] = dict.fromkeys(FLAGS, False)
    flags |= {"lstrip": lstrip, "normalized": not special, "special": special}
    if token is not None:
        flags |= {flag: getattr(token, flag) for flag in FLAGS}
        flags["special"] |= special
    return {"id": number, "content": name, **flags}


def _byte_level():
    flags = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"type": "ByteLevel", **flags}


def _sequence(steps, name):
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", name: steps}


def _template(tokenizer, layout):
    """Make the step that puts special tokens around texts; `None` if there are none."""
    single, pair = expected_rows(tokenizer, layout)
    if single == ["A"]:
        return None
    ends = {t for t in pair if t not in ("A", "B")}

    def places(tokens):
        found, number = [], 0
        for token in tokens:
            kind = "Sequence" if token in ("A", "B") else "SpecialToken"
            # XLNet's class token, which is the last one, belongs to no text.
            of_none = layout == "xlnet" and token == tokenizer.start_token
            segment = 2 if of_none else number
            found.append({kind: {"id": token, "type_id": segment}})
            if layout in _WITH_SEGMENTS and token == tokenizer.end_token:
                number = 1
        return found

    return {
        "type": "TemplateProcessing",
        "single": places(single),
        "pair": places(pair),
        "special_tokens": {
            name: {"id": name, "ids": [tokenizer.token_to_id(name)], "tokens": [name]}
            for name in sorted(ends)
        },
    }
