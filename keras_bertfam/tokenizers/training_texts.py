"""Texts, or words and their counts, prepared for learning a vocabulary."""

import collections
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.text_files.reading import read_lines
from keras_bertfam.text_files.sources import Part, Reading
from keras_bertfam.tokenizers.texts import (
    WHITE_SPACE,
    check_documents,
    dataset_of,
    first_pass,
    text_sources,
    to_utf8,
    without_languages,
    without_nul,
)
from keras_bertfam.types import Path, TFDataset, TFTensor

_WORDS_AT_ONCE = 4096


def recount(
    counts: Mapping[str, int],
    split: Callable[[list[str]], Iterable[Iterable[bytes | str]]],
) -> dict[str, int]:
    """Count how often the parts of words occur.

    Args:
        counts: words and how often they occur.
        split: function of a list of words that gives the parts of each.

    Returns:
        A dict of parts and their counts.

    Raises:
        TypeError: for words that aren't strings, or counts that aren't ints.
        ValueError: for a count that isn't positive.
    """
    words = iter(counts)
    new: collections.Counter[str] = collections.Counter()
    while batch := [*itertools.islice(words, _WORDS_AT_ONCE)]:
        for word in batch:
            _check_count(word, counts[word])
        for word, parts in zip(batch, split(batch), strict=True):
            for part in parts:
                text = part.decode() if isinstance(part, bytes) else part
                new[text] += counts[word]
    return dict(new)


def _check_count(word, count):
    if not isinstance(word, str) or not isinstance(count, int):
        raise TypeError(
            "`documents`, if a dict, must map words to their counts. Received: "
            f"{word!r}: {count!r}."
        )
    if count < 1:
        raise ValueError(
            "`documents`, if a dict, must have positive counts. Received: "
            f"{word!r}: {count}."
        )


# SentencePiece leaves out texts of more than 4,192 bytes.
_PART = re.compile(r".{1,1000}(?!\S)|.{1,1000}")
_LINE_END = f"[{WHITE_SPACE}]*\n[{WHITE_SPACE}]*"
_NO_WORD = "`documents` must have at least one word. Received: none."
_Clean = Callable[[TFTensor], TFTensor]


def one_line(texts: TFTensor) -> TFTensor:
    """Replace line ends in strings by spaces."""
    return tf.strings.regex_replace(without_nul(to_utf8(texts)), _LINE_END, " ")


def read_texts(documents: TFDataset | Path | Sequence[Path]) -> TFDataset:
    """Give a checked dataset of strings, from a dataset or from the lines of files."""
    if isinstance(documents, (str, os.PathLike, list, tuple)):
        reading = Reading()
        sources = text_sources(documents, reading, "documents")
        documents = dataset_of(
            lambda: (
                line for source in sources for line in read_lines(Part(source), reading)
            )
        )
    return check_documents(first_pass(documents))


@as_written
def clean_batches(documents: TFDataset, clean: _Clean) -> TFDataset:
    """Clean documents, several at once."""

    def plain(texts):
        return clean(without_languages(texts))

    return documents.batch(64).map(plain, num_parallel_calls=tf.data.AUTOTUNE)


def text_parts(documents: TFDataset, clean: _Clean) -> Iterator[str]:
    """Clean documents, and yield their lines in parts of at most 1,000 characters."""
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
    """Yield the pieces that words have after a space."""
    texts = clean(tf.constant([f" {word}" for word in words])).numpy()
    for text in texts:
        yield [piece for piece, _ in splitter.pre_tokenize_str(text.decode())]


def counted_lines(counts: Mapping[str, int], clean: _Clean) -> Iterator[str]:
    """Yield lines of a cleaned word, a tab and its count."""
    cleaned = recount(counts, lambda words: clean(words).numpy()[:, None])
    lines = [f"{word}\t{count}" for word, count in cleaned.items() if word.strip()]
    if not lines:
        raise ValueError(_NO_WORD)
    return iter(lines)
