"""Steps of a `tokenizer.json`, before the model: what they do to texts, in the graph.

A step is a dict with the names and keys of the `tokenizers` library, such as
`{"type": "NFC"}` or `{"type": "Digits", "individual_digits": True}`.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam.tokenizers.bert_normalization import clean_texts
from keras_bertfam.tokenizers.texts import WHITE_SPACE, to_utf8
from keras_bertfam.types import TFRagged, TFTensor

Step = dict[str, Any]

_SPACE = f"[{WHITE_SPACE}]"
_SIGN = r"[!-/:-@\[-`{-~\p{P}]"
# Unicode's word characters, circled letters among them.
_WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}"
_WORD += r"\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
# Chinese characters as `tokenizers` has them.
_CHINESE = r"[\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}"
_CHINESE += r"\x{2A700}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}]"

_FLAG = (bool,)
# The keys of each step, and of what type their values are.
NORMALIZERS: dict[str, dict[str, Any]] = {
    **{form: {} for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "Lowercase": {},
    "StripAccents": {},
    "Strip": {"strip_left": _FLAG, "strip_right": _FLAG},
    "Prepend": {"prepend": (str,)},
    "Replace": {"pattern": (dict,), "content": (str,)},
    "BertNormalizer": {
        "clean_text": _FLAG,
        "handle_chinese_chars": _FLAG,
        "strip_accents": (bool, type(None)),
        "lowercase": _FLAG,
    },
}
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "BertPreTokenizer": {},
    "Whitespace": {},
    "WhitespaceSplit": {},
    "Punctuation": {"behavior": (str,)},
    "Digits": {"individual_digits": _FLAG},
    "ByteLevel": {
        "add_prefix_space": _FLAG,
        "trim_offsets": _FLAG,
        "use_regex": _FLAG,
    },
}
# Values that keys must have.
_ONLY = {"behavior": "Isolated"}


def bert_step(lowercase: bool) -> Step:
    """Return BERT's clean-up as a step."""
    flags = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    return {"type": "BertNormalizer", **flags, "lowercase": lowercase}


def check_steps(
    steps: Iterable[Step], known: dict[str, dict[str, Any]], name: str
) -> tuple[Step, ...]:
    """Return steps if all of them, and all of their keys, are known.

    Args:
        steps: what was given.
        known: `NORMALIZERS` or `PRE_TOKENIZERS`.
        name: str. The argument's name for the error.

    Raises:
        ValueError: naming the step or key.
    """
    steps = tuple(steps)
    for step in steps:
        kind = step.get("type") if isinstance(step, dict) else None
        if kind not in known:
            raise ValueError(
                f"`{name}` must be of steps of the types {', '.join(known)}. "
                f"Received: {kind if kind is not None else step!r}."
            )
        keys = known[kind]
        for key, value in step.items():
            if key == "type":
                continue
            fits = isinstance(value, keys.get(key, ()))
            if key == "pattern":
                fits = (
                    fits and [*value] == ["String"] and isinstance(value["String"], str)
                )
            if not fits or value != _ONLY.get(key, value):
                raise ValueError(
                    f"`{name}` must have steps that are known. Received: "
                    f"{key}={value!r} of {kind}."
                )
        missing = keys.keys() - step.keys() - {"behavior", "trim_offsets", "use_regex"}
        if missing:
            raise ValueError(f"`{name}` must have {min(missing)!r} in its {kind}.")
    return steps


def normalize(texts: TFTensor, steps: Iterable[Step]) -> TFTensor:
    """Do the steps of a normalizer. Works in a graph.

    Args:
        texts: string tensor of shape `(batch,)`.
        steps: those of `NORMALIZERS`.

    Returns:
        String tensor of shape `(batch,)`.
    """
    texts = to_utf8(texts)
    for step in steps:
        texts = _NORMALIZE[step["type"]](texts, step)
    return texts


def split_by(texts: TFTensor, steps: Iterable[Step]) -> tuple[TFRagged, TFRagged]:
    """Do the steps of a pre-tokenizer. Works in a graph.

    `ByteLevel` isn't done: it belongs to a model of bytes.

    Args:
        texts: string tensor of shape `(batch,)`.
        steps: those of `PRE_TOKENIZERS`.

    Returns:
        A tuple of ragged tensors of shape `(batch, None)`: words, and the byte, int64,
        where each begins.
    """
    words = tf.RaggedTensor.from_uniform_row_length(texts, 1)
    starts = words.with_flat_values(tf.zeros(tf.size(texts), tf.int64))
    for step in steps:
        for pattern, kept in _patterns(step):
            pieces, places, _ = tf_text.regex_split_with_offsets(
                words.flat_values, pattern, kept
            )
            first = tf.gather(starts.flat_values, pieces.value_rowids())
            places = places.with_flat_values(places.flat_values + first)
            words, starts = (
                words.with_flat_values(x).merge_dims(1, 2) for x in (pieces, places)
            )
    return words, starts


def _patterns(step):
    """List what a step splits at, and what of that is kept, one after the other."""
    digits = r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
    return {
        "BertPreTokenizer": [(_SPACE, ""), (_SIGN, _SIGN)],
        "Whitespace": [(_SPACE, ""), (f"[{_WORD}]+", f"[{_WORD}]+")],
        "WhitespaceSplit": [(_SPACE, "")],
        "Punctuation": [(_SIGN, _SIGN)],
        "Digits": [(digits, digits)],
        "ByteLevel": [],
    }[step["type"]]


def lowercases(steps: Iterable[Step]) -> bool:
    """Tell whether any of the steps of a normalizer lower-cases."""
    return any(step["type"] == "Lowercase" or step.get("lowercase") for step in steps)


def _form(texts, step):
    return tf_text.normalize_utf8(texts, step["type"])


def _lowercase(texts, step):
    # By characters: TensorFlow has another small sigma for the end of a word.
    texts = tf.strings.regex_replace(texts, "Σ", "σ")
    return tf.strings.lower(texts, "utf-8")


def _strip_accents(texts, step):
    return tf.strings.regex_replace(texts, r"\p{M}", "")


def _strip(texts, step):
    if step["strip_left"]:
        texts = tf.strings.regex_replace(texts, f"^{_SPACE}+", "")
    if step["strip_right"]:
        texts = tf.strings.regex_replace(texts, f"{_SPACE}+$", "")
    return texts


def _prepend(texts, step):
    return tf.where(texts == "", texts, tf.strings.join([step["prepend"], texts]))


def _replace(texts, step):
    content = step["content"].replace("\\", "\\\\")
    return tf.strings.regex_replace(
        texts, re.escape(step["pattern"]["String"]), content
    )


def _bert(texts, step):
    if step["clean_text"]:
        texts = clean_texts(texts, lowercase=False)
    if step["handle_chinese_chars"]:
        texts = tf.strings.regex_replace(texts, f"({_CHINESE})", r" \1 ")
    strips = step["strip_accents"]
    if step["lowercase"] if strips is None else strips:
        texts = tf_text.normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
    return _lowercase(texts, step) if step["lowercase"] else texts


_NORMALIZE: dict[str, Callable[[TFTensor, Step], TFTensor]] = {
    **{form: _form for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "Lowercase": _lowercase,
    "StripAccents": _strip_accents,
    "Strip": _strip,
    "Prepend": _prepend,
    "Replace": _replace,
    "BertNormalizer": _bert,
}
