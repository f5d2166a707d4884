"""BERT's clean-up, and the first steps of a `tokenizer.json`, in the graph."""

import collections
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import flatbuffers
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.text_files.reading import WHITE_SPACE as SPACES
from keras_bertfam.text_files.reading import between_brackets
from keras_bertfam.tokenizers.texts import WHITE_SPACE, to_utf8, without_nul
from keras_bertfam.types import TFRagged, TFTensor

# How the normaliser encodes the result of a character: as the offset and the length of
# a part of a UTF-8 pool, in a unit of a Darts double array.
_CHANGED, _LENGTH_BITS = 1 << 30, 6
_LEAF, _HAS_LEAF, _OFFSET_BITS, _BLOCK = 1 << 31, 1 << 8, 10, 256
# The ranges of characters that can change; between them are ideographs.
_CODES = (
    *range(1, 0xD800),
    *range(0xE000, 0x20000),
    *range(0x2F800, 0x2FB00),
    *range(0xE0000, 0xE1000),
)


def clean_character(character: str, lowercase: bool) -> str:
    """Clean a character as BERT does before it splits words.

    The clean-up works on single characters, as in `transformers`: a capital sigma at
    the end of a word becomes "σ". The original code lower-cases whole words, and gives
    "ς".

    Args:
        character: str of one character.
        lowercase: bool. Whether to lower-case it and strip its accents.

    Returns:
        str: a space for white space; an empty string for U+FFFD, and for control,
        format characters, and those from U+E000 to U+F8FF for private use.
    """
    if character in "\t\n\r":
        return " "
    if character == "\ufffd" or _is_removed(character):
        return ""
    if character.isspace():
        return " "
    if not lowercase:
        return character
    decomposed = unicodedata.normalize("NFD", character.lower())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def _is_removed(character):
    # Signs of private fonts, as PDFs have them. Planes 15 and 16, with more of them,
    # would make the normaliser's model five times as large.
    private = "\ue000" <= character <= "\uf8ff"
    return private or unicodedata.category(character) in ("Cc", "Cf")


@functools.cache
def normalizer_model(lowercase: bool) -> np.ndarray:
    """Make a model for `tensorflow_text.FastBertNormalizer` that cleans as BERT does.

    Args:
        lowercase: bool. Whether it lower-cases and strips accents.

    Returns:
        uint8 NumPy array.
    """
    pool, encoded = bytearray(), {}
    for character in map(chr, _CODES):
        clean = clean_character(character, lowercase)
        if clean != character:
            part = clean.encode()
            at = len(pool) << _LENGTH_BITS
            encoded[character.encode()] = _CHANGED | at | len(part)
            pool += part
    builder = flatbuffers.Builder()
    pool = builder.CreateByteVector(bytes(pool))
    trie = builder.CreateNumpyVector(_double_array(encoded))
    builder.StartObject(4)
    builder.PrependBoolSlot(0, lowercase, False)
    builder.PrependUOffsetTRelativeSlot(1, trie, 0)
    builder.PrependInt32Slot(2, _CHANGED, 0)  # NUL becomes nothing
    builder.PrependUOffsetTRelativeSlot(3, pool, 0)
    builder.Finish(builder.EndObject())
    return np.frombuffer(bytes(builder.Output()), np.uint8)


def clean_texts(texts: TFTensor, lowercase: bool) -> TFTensor:
    """Do what `clean_character` does to strings. Works in a graph.

    Args:
        texts: string tensor, in UTF-8.
        lowercase: bool. Lower-case, and strip accents.

    Returns:
        String tensor.
    """
    model = tf.constant(normalizer_model(lowercase))
    normalizer = tf_text.FastBertNormalizer(model_buffer=model)
    # The normaliser fails on a single string.
    return tf.reshape(normalizer.normalize(tf.reshape(texts, [-1])), tf.shape(texts))


def _double_array(values):
    """Make a Darts double array from a dict of byte strings.

    No string may be the beginning of another. The children of a node have their own
    block of 256 units, one for each byte. Values are in units of the other blocks.
    """
    children = collections.defaultdict(set)
    for key in values:
        for length in range(len(key)):
            children[key[:length]].add(key[length])
    blocks = {node: _BLOCK * k for k, node in enumerate(children, start=1)}
    places = {
        node + bytes([byte]): blocks[node] + byte
        for node, bytes_ in children.items()
        for byte in bytes_
    }
    units = np.zeros(_BLOCK * (1 + len(blocks)), np.uint32)
    free = iter(sorted(set(range(1, len(units))) - set(places.values())))
    for node, place in {b"": 0, **places}.items():
        label = node[-1] if node else 0
        if node in values:
            target = next(free)
            units[target] = _LEAF | values[node]
            label |= _HAS_LEAF
        else:
            target = blocks[node]
        units[place] = label | (place ^ target) << _OFFSET_BITS
    return units


Step = dict[str, Any]

_SPACE = f"[{WHITE_SPACE}]"
_SIGN = r"[!-/:-@\[-`{-~\p{P}]"
# Unicode's word characters, circled letters among them.
_WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}"
_WORD += r"\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
# Chinese characters, as `tokenizers` defines them.
_CHINESE = r"[\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}"
_CHINESE += r"\x{2A700}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}]"

# How Llama 3 splits texts; no other pattern is known.
_LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_SPLIT: Step = {
    "type": "Split",
    "pattern": {"Regex": _LLAMA},
    "behavior": "Isolated",
    "invert": False,
}
_OTHERS = rf"[^{WHITE_SPACE}\p{{L}}\p{{N}}]"
# The same without looking ahead, for what `words_after_spaces` makes of a text: what is
# no space, with line ends after a sign; line ends and spaces before; and other spaces.
_LLAMA_PIECES = (
    rf"[^{WHITE_SPACE}]*{_OTHERS}[\r\n]+|[^{WHITE_SPACE}]+|"
    rf"[{WHITE_SPACE}]*[\r\n]+|[{WHITE_SPACE}]+"
)
_LLAMA_SPACES = f"[{between_brackets(SPACES.translate({10: None, 13: None}))}]+"
_LLAMA_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    rf" ?{_OTHERS}+[\r\n]*|[{WHITE_SPACE}]*[\r\n]+|[{WHITE_SPACE}]+"
)

_FLAG = (bool,)
# The keys of each step, and the types of their values.
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
# The only supported values of some keys.
_ONLY = {"behavior": "Isolated"}


def bert_step(lowercase: bool) -> Step:
    """Return BERT's clean-up as a step."""
    flags = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    return {"type": "BertNormalizer", **flags, "lowercase": lowercase}


def check_steps(
    steps: Iterable[Step], known: dict[str, dict[str, Any]], name: str
) -> tuple[Step, ...]:
    """Check that all steps and all of their keys are known, and return the steps.

    Args:
        steps: the user's steps.
        known: `NORMALIZERS` or `PRE_TOKENIZERS`.
        name: str. The argument's name for the error.

    Raises:
        ValueError: for an unknown step or key, which the error names.
    """
    steps = tuple(steps)
    for step in steps:
        kind = step.get("type") if isinstance(step, dict) else None
        if step == LLAMA_SPLIT and known is PRE_TOKENIZERS:
            continue
        if kind not in known:
            raise ValueError(
                f"`{name}` must have steps of the types {', '.join(known)}. "
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
                    f"`{name}` must have known keys and values. Received: "
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
        steps: steps of the types in `NORMALIZERS`.

    Returns:
        String tensor of shape `(batch,)`.
    """
    texts = without_nul(to_utf8(texts))
    for step in steps:
        texts = _NORMALIZE[step["type"]](texts, step)
    return texts


def split_by(texts: TFTensor, steps: Iterable[Step]) -> tuple[TFRagged, TFRagged]:
    """Do the steps of a pre-tokenizer. Works in a graph.

    `ByteLevel` is skipped, since byte-level models do it themselves.

    Args:
        texts: string tensor of shape `(batch,)`.
        steps: steps of the types in `PRE_TOKENIZERS`.

    Returns:
        A tuple of ragged tensors of shape `(batch, None)`: words, and the byte, int64,
        where each begins.
    """
    words = ragged.from_lengths(texts, tf.ones_like(texts, tf.int64))
    starts = words.with_flat_values(tf.zeros(tf.size(texts), tf.int64))
    for step in steps:
        if step == LLAMA_SPLIT:
            words, starts = _split_as_llama(words, starts)
            continue
        for pattern, kept in _patterns(step):
            pieces, places, _ = ragged.split_at(words.flat_values, pattern, kept)
            first = tf.gather(starts.flat_values, ragged.row_ids(pieces))
            places = places.with_flat_values(places.flat_values + first)
            words, starts = (
                ragged.merge_inner(words.with_flat_values(x)) for x in (pieces, places)
            )
    return words, starts


def _split_as_llama(words, starts):
    """Split words, and tell where the parts begin."""
    pieces = words_after_spaces(
        words.flat_values, _LLAMA_PIECES, _LLAMA_SPACES, _LLAMA_WORDS
    )
    sizes = tf.cast(tf.strings.length(pieces.flat_values), tf.int64)
    ends = tf.cumsum(sizes)
    # What is before a word, less what is before its parts.
    before = tf.gather(tf.pad(ends, [[1, 0]]), pieces.row_starts())
    moved = tf.gather(starts.flat_values - before, ragged.row_ids(pieces))
    places = pieces.with_flat_values(ends - sizes + moved)
    return tuple(
        ragged.merge_inner(words.with_flat_values(x)) for x in (pieces, places)
    )


@as_written
def words_after_spaces(
    texts: TFTensor, pattern: str, spaces: str, words: str
) -> TFRagged:
    """Split texts, where a space belongs to the word after it. Works in a graph.

    It is what published expressions do by looking ahead, which RE2 can't: they end
    with `\\s+(?!\\S)|\\s+`.

    Args:
        texts: string tensor of shape `(batch,)`, in UTF-8.
        pattern: str. Pieces of texts, which words don't cross.
        spaces: str. The pieces whose last character goes to the piece that follows.
        words: str. The words of pieces.

    Returns:
        Ragged string tensor of shape `(batch, None)`, whose words joined are the text.
    """
    # "a   b" is split into "a", "   ", "b". The last space goes to what follows:
    # "a", "  ", " b".
    pieces, _, _ = ragged.split_at(texts, pattern, pattern)
    flat = pieces.flat_values
    rows = ragged.row_ids(pieces)
    # Nothing follows the last piece of a row; an empty row has none.
    follows = tf.concat([rows[1:] == rows[:-1], tf.zeros(tf.size(rows[:1]), bool)], 0)
    gives = follows & tf.strings.regex_full_match(flat, spaces)
    last = tf.where(gives, tf.strings.substr(flat, -1, 1, unit="UTF8_CHAR"), "")
    left = tf.strings.length(flat) - tf.strings.length(last)
    given = tf.concat([tf.fill([tf.size(rows[:1])], ""), last[:-1]], 0)
    flat = tf.strings.join([given, tf.strings.substr(flat, tf.zeros_like(left), left)])
    kept = ragged.keep_in_rows(pieces.with_flat_values(flat), flat != "")
    found, _, _ = ragged.split_at(kept.flat_values, words, words)
    return ragged.merge_inner(kept.with_flat_values(found))


def _patterns(step):
    """List pairs of patterns for a step: where to split, and which parts to keep."""
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
    # Character by character: TensorFlow would give another sigma at a word's end.
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
