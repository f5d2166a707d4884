"""Text as datasets of strings in UTF-8, and the words in it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.text_files.reading import WHITE_SPACE as WHITE_SPACE_CHARACTERS
from keras_bertfam.text_files.reading import between_brackets, check_head
from keras_bertfam.text_files.sources import Reading, Source, find_files
from keras_bertfam.types import Path, TFDataset, TFRagged, TFTensor

# All characters that UTF-8 can encode; surrogates aren't characters.
_UTF8 = r"[\x00-\x{D7FF}\x{E000}-\x{10FFFF}]*"
# White space, and white space within a line, for use between RE2's brackets.
WHITE_SPACE = between_brackets(WHITE_SPACE_CHARACTERS)
LINE_SPACE = between_brackets(WHITE_SPACE_CHARACTERS.replace("\n", ""))
# The units that a clean-up changes independently, for RE2: a letter with its marks,
# Hangul letters with a syllable before them, and the signs that SentencePiece reads as
# one quotation mark. The marks of half-width kana, U+FF9E and U+FF9F, aren't in
# `\p{M}`.
_HANGUL_LETTER = r"[\x{1100}-\x{11FF}\x{3131}-\x{318E}\x{FFA0}-\x{FFDC}]"
_HANGUL = rf"[\x{{AC00}}-\x{{D7A3}}]?{_HANGUL_LETTER}+"
CLUSTER = rf"``|''|{_HANGUL}|(?s:.)[\p{{M}}\x{{FF9E}}\x{{FF9F}}]*"

_BATCH, _BATCH_BYTES = 4096, 1 << 20


@as_written
def to_utf8(strings: TFTensor) -> TFTensor:
    """Replace bytes that aren't UTF-8 by U+FFFD, which BERT leaves out."""
    # A check takes a sixth of the time of rewriting, and few texts are broken.
    return tf.cond(
        tf.reduce_all(tf.strings.regex_full_match(strings, _UTF8)),
        lambda: tf.identity(strings),
        lambda: tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8"),
    )


def without_nul(texts: TFTensor) -> TFTensor:
    """Replace zero bytes by spaces; tokenizers other than BERT's stop at zero bytes."""
    return tf.strings.regex_replace(texts, r"\x00", " ")


def check_lines(tokens: Sequence[str]) -> None:
    """Raise a `ValueError` for a token that a file of a token per line can't have."""
    for token in tokens:
        if "\n" in token or token.endswith("\r"):
            raise ValueError(
                "`vocabulary` must have tokens without line ends, which its file has "
                f"between tokens. Received: {token!r}."
            )
    if tokens and not tokens[-1]:
        raise ValueError("`vocabulary` must not end with an empty token.")


class MixedDocuments:
    """Base of documents that differ from pass to pass, see `layers.sample_corpora`."""

    def of_pass(self, epoch: int | TFTensor, seed: int = 0) -> TFDataset:
        """Make the documents of a pass. Works in a graph.

        Args:
            epoch: int or int64 scalar. The number of the pass.
            seed: int. Decides the order.

        Returns:
            A `tf.data.Dataset` of scalar strings.
        """
        raise TypeError(f"{type(self).__name__} must define `of_pass`.")


def first_pass(documents: Any) -> Any:
    """Give the first pass of `MixedDocuments`; give other documents unchanged."""
    return documents.of_pass(0) if isinstance(documents, MixedDocuments) else documents


def check_documents(documents: TFDataset, name: str = "documents") -> TFDataset:
    """Check that `documents` are a dataset of single strings, and return them.

    Args:
        documents: what was given.
        name: str. The argument's name for the error.

    Raises:
        ValueError: for anything else.
    """
    spec: Any = getattr(documents, "element_spec", type(documents).__name__)
    strings = isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string
    if not strings or spec.shape.rank not in (0, None):
        raise ValueError(
            f"`{name}` must be a `tf.data.Dataset` of scalar strings, one document "
            "each, not in batches; `keras_bertfam.layers.read_documents` makes one "
            f"from files. Received: {spec}."
        )
    return documents


def text_sources(
    source: Path | Iterable[Path], reading: Reading, name: str = "source"
) -> list[Source]:
    """Find the files of paths and patterns, and check their beginnings.

    Args:
        source: a glob pattern, or a list of paths and patterns.
        reading: `Reading`.
        name: str. The argument's name for the error.

    Raises:
        FileNotFoundError: If there is no file, or one is missing.
        ValueError: for a file whose beginning doesn't fit its name and `reading`.
    """
    sources = find_files(source, name)
    for each in sources:
        check_head(each, reading)
    return sources


@as_written
def dataset_of(texts: Callable[[], Iterable[str]]) -> TFDataset:
    """Make a dataset of the texts that a function yields; each pass calls it again.

    A `ValueError` of the function becomes a `tf.errors.InvalidArgumentError` with its
    text.
    """

    def batches():
        batch, size = [], 0
        for text in texts():
            batch.append(text.encode())
            size += len(batch[-1])
            if size >= _BATCH_BYTES or len(batch) >= _BATCH:
                yield np.array(batch, object)
                batch, size = [], 0
        if batch:
            yield np.array(batch, object)

    # Texts come in batches: a call of Python for each text would take most of the time.
    spec = tf.TensorSpec([None], tf.string)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    return dataset.prefetch(1).unbatch()


CUT = "\x1f"
# Units that aren't words: a letter of a script without spaces, a punctuation mark, a
# line's end, and a run of white space.
_BORDER = (
    r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    rf"|[^\pL\pN\pM{LINE_SPACE}]|[{LINE_SPACE}]+)"
)


# Stands around the language of the text that follows, see `layers.mark_languages`.
LANGUAGE_MARK = "\x1e"
_MARKED = r"(?s)\x00?\x1e[^\x1e]+\x1e.*"


def has_languages(texts: TFTensor) -> TFTensor:
    """Tell which texts begin with a language, as `layers.mark_languages` gives them.

    A text that has the mark elsewhere is a plain text.
    """
    return tf.strings.regex_full_match(texts, _MARKED)


def without_languages(texts: TFTensor) -> TFTensor:
    """Remove the languages that `layers.mark_languages` has put into texts.

    The texts that it joined become paragraphs. Others stay as they are.
    """
    marked, mark = has_languages(texts), LANGUAGE_MARK

    def plain():
        first = rf"^(\x00?){mark}[^{mark}]+{mark}"
        parts = tf.strings.regex_replace(texts, first, r"\1")
        parts = tf.strings.regex_replace(parts, f"{mark}[^{mark}]*{mark}", "\n\n")
        return tf.where(marked, parts, texts)

    return tf.cond(tf.reduce_any(marked), plain, lambda: texts)


def split_units(texts: TFTensor) -> TFRagged:
    """Split texts into words, characters of scripts without spaces, and the rest.

    Args:
        texts: string tensor of shape `(batch,)`, in UTF-8.

    Returns:
        A string `tf.RaggedTensor` of shape `(batch, None)`. Joined, the units are the
        text without its separators U+001F.
    """
    units = tf.strings.split(
        tf.strings.regex_replace(texts, _BORDER, rf"{CUT}\1{CUT}"), CUT
    )
    return ragged.keep_in_rows(units, units.flat_values != "")


def units_of(texts: list[str]) -> list[list[str]]:
    """List the units of texts, see `split_units`."""
    with tf.device("CPU:0"):
        units = split_units(to_utf8(tf.constant(texts, tf.string)))
    return [[unit.decode() for unit in row] for row in units.to_list()]
