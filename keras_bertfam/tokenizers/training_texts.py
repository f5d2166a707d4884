"""Text as the learners of vocabularies take it."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.text_files.reading import read_lines
from keras_bertfam.text_files.sources import Part, Reading
from keras_bertfam.tokenizers.texts import (
    WHITE_SPACE,
    check_documents,
    dataset_of,
    text_sources,
    to_utf8,
    without_nul,
)
from keras_bertfam.tokenizers.word_counts import recount
from keras_bertfam.types import Path, TFDataset, TFTensor

# SentencePiece leaves out texts of more bytes than 4,192.
_PART = re.compile(r".{1,1000}(?!\S)|.{1,1000}")
_LINE_END = f"[{WHITE_SPACE}]*\n[{WHITE_SPACE}]*"
_NO_WORD = "`documents` must have at least one word. Received: none."
_Clean = Callable[[TFTensor], TFTensor]


def one_line(texts: TFTensor) -> TFTensor:
    """Strings whose lines' ends are spaces."""
    return tf.strings.regex_replace(without_nul(to_utf8(texts)), _LINE_END, " ")


def read_texts(documents: TFDataset | Sequence[Path]) -> TFDataset:
    """Lines of files, or a dataset, as a checked dataset of strings."""
    if isinstance(documents, (list, tuple)):
        reading = Reading()
        sources = text_sources(documents, reading, "documents")
        documents = dataset_of(
            lambda: (
                line for source in sources for line in read_lines(Part(source), reading)
            )
        )
    return check_documents(documents)


@as_written
def clean_batches(documents: TFDataset, clean: _Clean) -> TFDataset:
    """Cleaned documents, several at once."""
    return documents.batch(64).map(clean, num_parallel_calls=tf.data.AUTOTUNE)


def text_parts(documents: TFDataset, clean: _Clean) -> Iterator[str]:
    """The lines of cleaned documents, in parts of at most 1,000 characters."""
    batches = clean_batches(documents, clean).as_numpy_iterator()
    texts = itertools.chain.from_iterable(batches)
    cut = (part for text in texts for part in _PART.findall(text.decode()))
    parts = filter(str.strip, cut)
    first = next(parts, None)
    if first is None:
        raise ValueError(_NO_WORD)
    return itertools.chain([first], parts)


def pieces_after_space(
    words: list[str], clean: _Clean, splitter: Any
) -> Iterator[list[str]]:
    """The pieces of words that stand after a space."""
    texts = clean(tf.constant([f" {word}" for word in words])).numpy()
    for text in texts:
        yield [piece for piece, _ in splitter.pre_tokenize_str(text.decode())]


def counted_lines(counts: Mapping[str, int], clean: _Clean) -> Iterator[str]:
    """Cleaned words, and after a tab their counts."""
    cleaned = recount(counts, lambda words: clean(words).numpy()[:, None])
    lines = [f"{word}\t{count}" for word, count in cleaned.items() if word.strip()]
    if not lines:
        raise ValueError(_NO_WORD)
    return iter(lines)
