"""Text to read: paths of files, datasets of strings, UTF-8."""

import glob
import gzip
import os
import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.types import Path, TFDataset, TFTensor

# All that UTF-8 can encode: surrogates aren't characters.
_UTF8 = r"[\x00-\x{D7FF}\x{E000}-\x{10FFFF}]*"
# What Unicode calls white space, between brackets of RE2, whose `\s` is ASCII's.
WHITE_SPACE = r"\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
WHITE_SPACE += r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
# What a clean-up changes by itself, for RE2: a letter with its marks, the parts of
# Hangul's syllables, and what SentencePiece's models read as one quotation mark.
CLUSTER = r"``|''|[\x{1100}-\x{11FF}]+|(?s:.)\p{M}*"

# How files begin that are no text, or text that must be told of.
_GZIP = b"\x1f\x8b"
_OTHERS = {
    _GZIP: "gzip without the ending .gz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"PK\x03\x04": "a ZIP archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PAR1": "Parquet",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_HEAD = 1 << 16


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


def text_files(source: Path | Iterable[Path], name: str = "source") -> list[str]:
    """The paths of text files that exist.

    Args:
        source: a glob pattern, or a list of paths and patterns.
        name: str. The argument's name for the error.

    Returns:
        A sorted list of strings, each once, also where patterns overlap.

    Raises:
        FileNotFoundError: If there is no file, or one is missing.
        ValueError: for a file that begins with what isn't UTF-8 text in lines, which
            may be compressed by gzip.
    """
    given = [source] if isinstance(source, (str, os.PathLike)) else [*source]
    items = sorted(map(str, given))
    found = [_files_of(item) for item in items]
    paths = sorted({path for each in found for path in each})
    missing = [item for item, each in zip(items, found, strict=True) if not each]
    if missing or not paths:
        received = repr(source)
        if missing and given != [source]:
            received = f"{len(missing)} not found, such as {missing[0]!r}"
        raise FileNotFoundError(
            f"`{name}` must name existing text files, by a glob pattern or a list of "
            f"paths. Received: {received}."
        )
    for path in paths:
        _check_text(path, name)
    return paths


def _check_text(path, name):
    """Refuse what would be read as broken text, by how the file begins."""
    with open(path, "rb") as raw:
        start = raw.read(8)
    zipped = path.endswith(".gz")
    found = [kind for mark, kind in _OTHERS.items() if start.startswith(mark)]
    if zipped and not start.startswith(_GZIP):
        problem = "isn't gzip"
    elif found and not zipped:
        problem = f"begins as {found[0]}"
    else:
        with gzip.open(path) if zipped else open(path, "rb") as file:
            problem = _problem_of(file.read(_HEAD))
    if problem:
        raise ValueError(
            f"`{name}` must name files of UTF-8 text, which may be compressed as .gz; "
            f"`prepare` reads more formats. Received: {path!r}, which {problem}."
        )


def _problem_of(head):
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character that the end of what was read cuts is none.
        if not (len(head) == _HEAD and error.start > _HEAD - 4):
            return f"has byte {head[error.start]:#x} at byte {error.start}"
    if re.search(rb"\r(?!\n|\Z)", head):
        return "has lines that end with a carriage return alone"
    return None


@as_written
def text_lines(path: TFTensor) -> TFDataset:
    """Read the lines of a text file, which may be compressed as .gz.

    A byte-order mark at its start is none of the text.
    """
    zipped = tf.strings.regex_full_match(path, r"(?s:.*)\.gz")
    lines = tf.data.TextLineDataset(path, tf.where(zipped, "GZIP", ""))

    @as_written
    def unmarked(line):
        return tf.strings.regex_replace(line, r"^\x{feff}", "")

    return lines.take(1).map(unmarked).concatenate(lines.skip(1))


def _files_of(path_or_pattern):
    if os.path.isfile(path_or_pattern):
        return [path_or_pattern]
    return [*filter(os.path.isfile, glob.glob(path_or_pattern, recursive=True))]
