"""Words of texts, and characters of scripts that have no spaces."""

import tensorflow as tf

from keras_bertfam.tokenizers.texts import LINE_SPACE, to_utf8
from keras_bertfam.types import TFRagged, TFTensor

CUT = "\x1f"
# What stands by itself: a letter of a script without spaces, a mark of
# punctuation, a line's end, and white space, all else being words.
_BORDER = (
    r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    rf"|[^\pL\pN\pM{LINE_SPACE}]|[{LINE_SPACE}]+)"
)


def split_units(texts: TFTensor) -> TFRagged:
    """Split texts into words, characters of scripts without spaces, and the rest.

    Args:
        texts: string tensor of shape `(batch,)`, in UTF-8.

    Returns:
        A string `tf.RaggedTensor` of shape `(batch, None)`, which joined is the text,
        less its separators U+001F.
    """
    units = tf.strings.split(
        tf.strings.regex_replace(texts, _BORDER, rf"{CUT}\1{CUT}"), CUT
    )
    return tf.ragged.boolean_mask(units, units != "")


def units_of(texts: list[str]) -> list[list[str]]:
    """List what `split_units` makes of texts."""
    with tf.device("CPU:0"):
        units = split_units(to_utf8(tf.constant(texts, tf.string)))
    return [[unit.decode() for unit in row] for row in units.to_list()]
