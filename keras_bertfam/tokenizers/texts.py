"""Text as datasets of strings, in UTF-8."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.text_files.reading import WHITE_SPACE as WHITE_SPACE_CHARACTERS
from keras_bertfam.text_files.reading import between_brackets, check_head
from keras_bertfam.text_files.sources import Reading, Source, find_files
from keras_bertfam.types import Path, TFDataset, TFTensor

# All that UTF-8 can encode: surrogates aren't characters.
_UTF8 = r"[\x00-\x{D7FF}\x{E000}-\x{10FFFF}]*"
# White space between brackets of RE2, and that within a line.
WHITE_SPACE = between_brackets(WHITE_SPACE_CHARACTERS)
LINE_SPACE = between_brackets(WHITE_SPACE_CHARACTERS.replace("\n", ""))
# What a clean-up changes by itself, for RE2: a letter with its marks, the parts of
# Hangul's syllables, and what SentencePiece's models read as one quotation mark.
CLUSTER = r"``|''|[\x{1100}-\x{11FF}]+|(?s:.)\p{M}*"

_BATCH, _BATCH_BYTES = 4096, 1 << 20


@as_written
def to_utf8(strings: TFTensor) -> TFTensor:
    """Replaces the bytes that aren't UTF-8 by U+FFFD, which BERT leaves out."""
    # To look takes a sixth of the time of rewriting, and text is seldom broken.
    return tf.cond(
        tf.reduce_all(tf.strings.regex_full_match(strings, _UTF8)),
        lambda: tf.identity(strings),
        lambda: tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8"),
    )


def without_nul(texts: TFTensor) -> TFTensor:
    """Spaces for zero bytes, which tokenizers other than BERT's take for the end."""
    return tf.strings.regex_replace(texts, r"\x00", " ")


def check_documents(documents: TFDataset, name: str = "documents") -> TFDataset:
    """Returns `documents` if they are a dataset of single strings.

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
            "each, not in batches; `keras_bertfam.layers.read_documents` makes one of "
            f"files. Received: {spec}."
        )
    return documents


def text_sources(
    source: Path | Iterable[Path], reading: Reading, name: str = "source"
) -> list[Source]:
    """The files that there are by paths and patterns, which begin as they should.

    Args:
        source: a glob pattern, or a list of paths and patterns.
        reading: `Reading`.
        name: str. The argument's name for the error.

    Raises:
        FileNotFoundError: If there is no file, or one is missing.
        ValueError: for a file that begins with something else than its name and
            `reading` say.
    """
    sources = find_files(source, name)
    for each in sources:
        check_head(each, reading)
    return sources


@as_written
def dataset_of(texts: Callable[[], Iterable[str]]) -> TFDataset:
    """A dataset of what a function iterates over, anew in each pass.

    Its errors are `tf.errors.InvalidArgumentError` with the text of a `ValueError`.
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

    # To ask Python for each text by itself would take most of the time.
    spec = tf.TensorSpec([None], tf.string)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    return dataset.prefetch(1).unbatch()
