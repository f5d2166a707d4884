"""BERT's clean-up of text, as a model that `tensorflow_text`'s normaliser runs.

The model `tensorflow_text` comes with folds case by compatibility ("½" becomes "1⁄2",
"ß" "ss", "…" three full stops), and has spaces where BERT drops control characters.
"""

import collections
import functools
import unicodedata

import flatbuffers
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam.types import TFTensor

# How the normaliser encodes what a character becomes: the offset and the length of a
# part of a pool of UTF-8, in a unit of a Darts double array.
_CHANGED, _LENGTH_BITS = 1 << 30, 6
_LEAF, _HAS_LEAF, _OFFSET_BITS, _BLOCK = 1 << 31, 1 << 8, 10, 256
# Where characters are that change; what lies between are ideographs.
_CODES = (
    *range(1, 0xD800),
    *range(0xE000, 0x20000),
    *range(0x2F800, 0x2FB00),
    *range(0xE0000, 0xE1000),
)


def clean_character(character: str, lowercase: bool) -> str:
    """Give what BERT makes of a character before it splits words.

    It goes by single characters, as in `transformers`: a capital sigma at the end of a
    word becomes "σ". The original code lower-cases whole words, and has "ς".

    Args:
        character: str of one character.
        lowercase: bool. Lower-case it, and strip accents.

    Returns:
        str: a space for white space, the empty one for U+FFFD and other control and
        format characters.
    """
    if character in "\t\n\r":
        return " "
    if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf"):
        return ""
    if character.isspace():
        return " "
    if not lowercase:
        return character
    decomposed = unicodedata.normalize("NFD", character.lower())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


@functools.cache
def normalizer_model(lowercase: bool) -> np.ndarray:
    """Make a model for `tensorflow_text.FastBertNormalizer` that cleans as BERT does.

    Args:
        lowercase: bool. Lower-case, and strip accents.

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
    # It fails on a single string.
    return tf.reshape(normalizer.normalize(tf.reshape(texts, [-1])), tf.shape(texts))


def _double_array(values):
    """Make a Darts double array of a dict of byte strings, none the start of another.

    The children of a node have a block of 256 units for themselves, one for each byte.
    Values are in the units of the blocks that are left.
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
