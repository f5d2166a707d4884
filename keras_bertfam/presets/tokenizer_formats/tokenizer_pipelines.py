"""The keys of a `tokenizer.json`: used, without a meaning here, or refused.

The file is a pipeline of the `tokenizers` library. A normalizer changes texts, a
pre-tokenizer splits them into words, a model splits words into tokens, a post-processor
puts special tokens around these, and a decoder turns ids into text.
`docs/checkpoints.md` has the table.
"""

import os
from collections.abc import Iterable
from typing import Any

from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.types import Path, Tokenizer

Content = dict[str, Any]

KINDS = {"WordPiece": "word_piece", "BPE": "byte_pair", "Unigram": "sentence_piece"}
# Sections that don't change the ids of a text. Here preprocessors set lengths of rows.
_NO_MEANING = ("version", "truncation", "padding")
_SECTIONS = ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")
# The keys of a model that are used, and the values that its other keys may have.
_MODELS: dict[str, tuple[tuple[str, ...], dict[str, tuple[Any, ...]]]] = {
    "WordPiece": (
        ("vocab", "max_input_chars_per_word"),
        {"unk_token": ("[UNK]",), "continuing_subword_prefix": ("##",)},
    ),
    "BPE": (
        ("vocab", "merges"),
        {
            "dropout": (None, 0, 0.0),
            "unk_token": (None, "<unk>", "[UNK]", "<|endoftext|>"),
            "continuing_subword_prefix": (None, ""),
            "end_of_word_suffix": (None, "", "</w>"),
            "fuse_unk": (False, True),
            "byte_fallback": (False, True),
            "ignore_merges": (False, True),
        },
    ),
    "Unigram": (("vocab", "unk_id"), {"byte_fallback": (False,)}),
}
_BYTE_LEVEL = ("add_prefix_space", "trim_offsets", "use_regex")
# Steps after the model, and their keys.
_AFTER: dict[str, dict[str, tuple[str, ...]]] = {
    "decoder": {
        "WordPiece": ("prefix", "cleanup"),
        "ByteLevel": _BYTE_LEVEL,
        "Metaspace": ("replacement", "add_prefix_space", "prepend_scheme", "split"),
        "BPEDecoder": ("suffix",),
        "Replace": ("pattern", "content"),
        "ByteFallback": (),
        "Fuse": (),
    },
    "post_processor": {
        "TemplateProcessing": ("single", "pair", "special_tokens"),
        "BertProcessing": ("sep", "cls"),
        "RobertaProcessing": ("sep", "cls", "trim_offsets", "add_prefix_space"),
        "ByteLevel": _BYTE_LEVEL,
    },
}
# Steps of Gemma's files. After the first one, there are no spaces to split texts at.
_GEMMA = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "invert": False}
_AT_SPACES["behavior"] = "MergedWithPrevious"
_BERT = {"clean_text": True, "handle_chinese_chars": True}
_METASPACE: dict[str, tuple[Any, ...]] = {
    "replacement": ("▁",),
    "add_prefix_space": (True,),
    "prepend_scheme": ("always", "first"),
    "split": (True, False),
    "str_rep": ("▁",),
}
# Steps that our tokenizers do before the SentencePiece model's own normalization.
_PIECE_NORMALIZERS = (
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Strip", "strip_left": False, "strip_right": True},
)


def check_keys(content: Content, where: Path) -> str:
    """Check that all keys of a `tokenizer.json` outside its steps are known.

    Args:
        content: dict, the content of the file.
        where: path of the file.

    Returns:
        str, the type of its model.

    Raises:
        CheckpointError: for an unknown key or a value that isn't allowed. The message
            names the key.
    """
    for key in content:
        if key not in (*_NO_MEANING, *_SECTIONS, "model"):
            _refuse(where, key, content[key], "left out")
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind not in _MODELS:
        raise CheckpointError(
            f"The model in {os.fspath(where)!r} must be of one of the types "
            f"{', '.join(_MODELS)}. Received: {kind!r}."
        )
    used, others = _MODELS[kind]
    for key, value in content["model"].items():
        if key not in (*used, "type"):
            allowed = others.get(key, ())
            if not any(value is each or value == each for each in allowed):
                _refuse(where, f"{key} of the model", value, _one_of(allowed))
    for section, known in _AFTER.items():
        for step in steps_of(content, section):
            if step["type"] not in known:
                _refuse(where, section, step, _one_of(known))
            for key in step:
                if key not in ("type", *known[step["type"]]):
                    _refuse(where, f"{key} of the {section}", step[key], _one_of(()))
    return str(kind)


def steps_of(content: Content, name: str) -> list[Content]:
    """List the steps of a section of a pipeline, such as the `normalizer`.

    Args:
        content: dict, the content of the file.
        name: str. The section.

    Raises:
        ValueError: for a section that isn't made of steps.
    """
    step = content.get(name)
    inner = {
        "normalizer": "normalizers",
        "pre_tokenizer": "pretokenizers",
        "post_processor": "processors",
        "decoder": "decoders",
    }[name]
    if step is None:
        return []
    if not isinstance(step, dict) or not isinstance(step.get("type"), str):
        raise ValueError(f"the {name} must be null or an object with a type")
    if step["type"] != "Sequence":
        return [step]
    if {*step} != {"type", inner}:
        raise ValueError(
            f"a Sequence must have the key {inner}, and no others. Received: {[*step]}."
        )
    return [deep for each in step[inner] for deep in steps_of({name: each}, name)]


def word_piece_arguments(content: Content) -> Content:
    """Make the arguments of a `BertTokenizer` that does the steps of a pipeline.

    Args:
        content: dict, the content of the file.
    """
    normalizer = steps_of(content, "normalizer")
    words = steps_of(content, "pre_tokenizer")
    given: Content = {}
    longest = content["model"].get("max_input_chars_per_word", 100)
    if longest != 100:  # which is the class's own
        given["max_input_chars_per_word"] = longest
    if len(normalizer) == 1 and words == [{"type": "BertPreTokenizer"}]:
        step = {**normalizer[0]}
        lowercase = step.pop("lowercase", None)
        accents = step.pop("strip_accents", None)
        if step == {"type": "BertNormalizer", **_BERT} and accents in (None, lowercase):
            return {**given, "lowercase": lowercase}
    return {**given, "normalizer": normalizer, "pre_tokenizer": words}


def byte_pair_arguments(content: Content, name: str, where: Path) -> Content:
    """Make the arguments of a byte-pair tokenizer that does the steps of a pipeline.

    Args:
        content: dict, the content of the file.
        name: str. The tokenizer's class.
        where: path of the file.

    Raises:
        CheckpointError: for a step that such a tokenizer doesn't do. The message names
            the step.
    """
    normalizer = steps_of(content, "normalizer")
    words = steps_of(content, "pre_tokenizer")
    if name == "GemmaTokenizer":
        _check_gemma(content["model"], normalizer, words, where)
        return {}
    for key in ("byte_fallback", "fuse_unk"):
        if content["model"].get(key):
            _refuse(where, f"{key} of the model", True, f"False, as of a {name}")
    ends = content["model"].get("end_of_word_suffix") or ""
    if name == "GPTTokenizer":
        if content["model"].get("ignore_merges"):
            _refuse(where, "ignore_merges of the model", True, "False, as GPT's")
        asked = word_piece_arguments(content)
        if not asked.get("lowercase") or ends != "</w>":
            _refuse(
                where, "pipeline", [*normalizer, *words], "GPT's: lower-cased, </w>"
            )
        return {}
    if ends:
        _refuse(
            where, "end_of_word_suffix of the model", ends, "none of byte-level BPE"
        )
    if not words or words[-1].get("type") != "ByteLevel":
        _refuse(where, "pre_tokenizer", words, "one that ends with ByteLevel")
    for key in words[-1]:
        if key not in ("type", *_BYTE_LEVEL):
            _refuse(where, f"{key} of the pre_tokenizer", words[-1][key], _one_of(()))
    vocabulary = content["model"]["vocab"]
    lacks_bytes = sum(len(token) == 1 for token in vocabulary) < 256
    named = [token for token in ("<unk>", "[UNK]") if token in vocabulary]
    unknown = content["model"].get("unk_token")
    if lacks_bytes and named and unknown not in named:
        _refuse(where, "unk_token of the model", unknown, f"{named[0]!r}")
    if name == "ModernBertTokenizer":
        if normalizer != [{"type": "NFC"}]:
            _refuse(where, "normalizer", normalizer, f"NFC, as of a {name}")
        normalizer = []
    given: Content = {}
    if words[-1].get("add_prefix_space"):
        given["add_prefix_space"] = True
    if normalizer:
        given["normalizer"] = normalizer
    if len(words) > 1 or words[-1].get("use_regex") is False:
        given["pre_tokenizer"] = words
    if content["model"].get("ignore_merges"):
        given["ignore_merges"] = True
    if name == "EuroBertTokenizer":  # its defaults differ from these
        given = {"pre_tokenizer": words, "ignore_merges": False, **given}
    return given


def _check_gemma(model, normalizer, words, where):
    """Raise a `CheckpointError` for a pipeline that isn't Gemma's."""
    for key, value in (("byte_fallback", True), ("unk_token", "<unk>")):
        if model.get(key) != value:
            _refuse(where, f"{key} of the model", model.get(key), repr(value))
    for key in ("ignore_merges", "end_of_word_suffix"):
        if model.get(key):
            _refuse(where, f"{key} of the model", model[key], "left out, as Gemma's")
    if normalizer != [_GEMMA]:
        _refuse(where, "normalizer", normalizer, "▁ for each space, as Gemma's")
    if words not in ([], [_AT_SPACES]):
        _refuse(where, "pre_tokenizer", words, "none, as Gemma's")


def piece_arguments(content: Content, where: Path) -> Content:
    """Read the settings of SentencePiece's clean-up, by their names in `transformers`.

    Args:
        content: dict, the content of the file.
        where: path of the file.

    Raises:
        CheckpointError: for a step that such a tokenizer doesn't do. The message names
            the step.
    """
    normalizer = steps_of(content, "normalizer")
    for step in normalizer:
        plain = {"type": step["type"]}
        if step["type"] == "Precompiled":
            if {*step} != {"type", "precompiled_charsmap"}:
                _refuse(where, "Precompiled", [*step], "a precompiled_charsmap")
        elif step not in _PIECE_NORMALIZERS and (
            step != plain or step["type"] not in ("Lowercase", "NFKD", "StripAccents")
        ):
            _refuse(where, "normalizer", step, "a step of ALBERT's, XLNet's or T5's")
    for step in steps_of(content, "pre_tokenizer"):
        keys = {key: value for key, value in step.items() if key != "type"}
        fits = step["type"] == "WhitespaceSplit" and not keys
        if step["type"] == "Metaspace":
            fits = all(value in _METASPACE.get(key, ()) for key, value in keys.items())
            tokens = content.get("added_tokens") or ()
            found = [token["content"] for token in tokens if not token["special"]]
            if keys.get("prepend_scheme") == "first" and found:
                # The text after such a token would begin without a space.
                _refuse(
                    where, "prepend_scheme", "first", f"'always', with {found[0]!r}"
                )
        if not fits:
            _refuse(where, "pre_tokenizer", step, "Metaspace with ▁ before each word")
    if not _joins_spaces(content):
        _refuse(where, "normalizer", normalizer, "a step that joins runs of spaces")
    done = {step["type"] for step in normalizer}
    if ("NFKD" in done) != ("StripAccents" in done):
        _refuse(where, "normalizer", sorted(done), "NFKD and StripAccents, or neither")
    return {
        "do_lower_case": "Lowercase" in done,
        "keep_accents": "StripAccents" not in done,
    }


def check_layout(
    content: Content, tokenizer: Tokenizer, layouts: tuple[str, ...], where: Path
) -> None:
    """Check that a post-processor puts special tokens where a family's rows have them.

    Args:
        content: dict, the content of the file.
        tokenizer: the tokenizer that was made of it.
        layouts: the name of the family's layout, and names of others that its files
            may have.
        where: path of the file.

    Raises:
        CheckpointError: for other places or tokens.
    """
    steps = steps_of(content, "post_processor")
    # ByteLevel changes offsets only.
    steps = [step for step in steps if step["type"] != "ByteLevel"]
    if not steps:
        return
    layouts += _ALSO.get(layouts[0], ())
    known = [expected_rows(tokenizer, layout) for layout in layouts]
    found = [_places(step) for step in steps]
    if found not in [[each] for each in known] or any(
        tokenizer.token_to_id(token) != number
        for step in steps
        for token, number in _special_ids(step).items()
    ):
        wanted = " and ".join(" ".join(places) for places in known[0])
        _refuse(where, "post_processor", steps, f"rows of {wanted}")


# Other layouts in files, by the family's layout: texts without an end token, or each
# text with both tokens.
_ALSO = {"mmbert": ("eurobert_start", "gemma")}


def expected_rows(tokenizer: Tokenizer, layout: str) -> tuple[list[str], list[str]]:
    """Give a family's rows of one text, A, and of two texts, A and B, as tokens.

    Args:
        tokenizer: a tokenizer layer.
        layout: str. The name of the family's layout.
    """
    start, end = tokenizer.start_token, tokenizer.end_token
    return {
        "bert": ([start, "A", end], [start, "A", end, "B", end]),
        "roberta": ([start, "A", end], [start, "A", end, end, "B", end]),
        "t5": (["A", end], ["A", end, "B", end]),
        "xlnet": (["A", end, start], ["A", end, "B", end, start]),
        "eurobert": ([start, "A", end], [start, "A", end, "B", end]),
        "eurobert_start": ([start, "A"], [start, "A", start, "B"]),  # Llama 3's
        "mmbert": ([start, "A", end], [start, "A", end, "B", end]),
        "gemma": ([start, "A", end], [start, "A", end, start, "B", end]),
    }.get(layout, (["A"], ["A", "B"]))


def _places(step):
    """Read the tokens around one text and two from a post-processor."""
    if step["type"] in ("BertProcessing", "RobertaProcessing"):
        start, end = step["cls"][0], step["sep"][0]
        double = [end] if step["type"] == "RobertaProcessing" else []
        return [start, "A", end], [start, "A", end, *double, "B", end]
    if step["type"] != "TemplateProcessing":
        return step["type"]
    return tuple(
        [each["id"] for part in step[name] for each in part.values()]
        for name in ("single", "pair")
    )


def _special_ids(step):
    if step["type"] == "TemplateProcessing":
        return {
            token: number
            for each in step["special_tokens"].values()
            for token, number in zip(each["tokens"], each["ids"], strict=True)
        }
    return {step["cls"][0]: step["cls"][1], step["sep"][0]: step["sep"][1]}


def _one_of(values: Iterable[Any]) -> str:
    listed = ", ".join(map(repr, values))
    return f"one of {listed}" if listed else "left out"


def _refuse(where, name, value, expected):
    raise CheckpointError(
        f"The {name} in {os.fspath(where)!r} must be {expected}, since tokenizers here "
        f"do nothing else. Received: {value!r}."
    )


def _joins_spaces(content):
    """Tell whether runs of spaces become one before the text is split."""
    steps = [*steps_of(content, "normalizer"), *steps_of(content, "pre_tokenizer")]
    return any(
        step["type"] == "WhitespaceSplit"
        or (step["type"] == "Replace" and step["pattern"] == {"Regex": " {2,}"})
        for step in steps
    )
