"""Texts with their languages, and texts beside their translations."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.text_files.reading import CONTINUES, read_every_line
from keras_bertfam.text_files.sources import MAX_LINE_LENGTH, Part, Reading, Source
from keras_bertfam.tokenizers.texts import (
    LANGUAGE_MARK,
    dataset_of,
    has_languages,
    text_sources,
    to_utf8,
)
from keras_bertfam.types import Path, TFDataset, TFTensor


@as_written
def mark_languages(texts: Mapping[str, TFTensor]) -> TFTensor:
    """Say of which language texts are, and put a text's translation beside it.

    `MaskedLMPreprocessor.dataset(..., packing="translations")` reads what this gives:
    texts of one language for masked language modelling, and of two for translation
    language modelling. Everywhere else a pair is one text of two paragraphs. Use it
    with `Dataset.map`.

    Args:
        texts: dict of one or two names of languages to string tensors of one shape, in
            UTF-8.

    Returns:
        A string tensor of that shape.

    Raises:
        ValueError: for another number of languages, or one without a name.

    Example:

    ```python
    pairs = tf.data.Dataset.from_tensor_slices((["a cat"], ["eine Katze"]))
    documents = pairs.map(
        lambda en, de: keras_bertfam.layers.mark_languages({"en": en, "de": de}))
    ```

    Reference: [Conneau and Lample, 2019](https://arxiv.org/abs/1901.07291),
    sections 3.3 and 3.4.
    """
    names = checked_languages("texts", texts)
    if len(names) > 2:
        raise ValueError(
            "`texts` must be of one language, or of two that are translations of each "
            f"other. Received: {names}."
        )
    parts = []
    for name, values in texts.items():
        # A piece of a document begins with a zero byte.
        own = to_utf8(tf.reshape(tf.convert_to_tensor(values, tf.string), [-1]))
        own = tf.strings.regex_replace(own, f"^\\x00|{LANGUAGE_MARK}", " ")
        parts += [f"{LANGUAGE_MARK}{name}{LANGUAGE_MARK}", own]
    first = tf.convert_to_tensor(next(iter(texts.values())), tf.string)
    goes_on = tf.strings.substr(tf.reshape(first, [-1]), 0, 1) == CONTINUES
    joined = tf.strings.join([tf.where(goes_on, CONTINUES, ""), *parts])
    return tf.reshape(joined, tf.shape(first))


def checked_languages(name: str, languages: Any, kind: Any = Mapping) -> list[str]:
    """List names of languages, checked.

    Args:
        name: str, of the argument.
        languages: mapping from such names, or the names.
        kind: which of both, `Mapping` or `Sequence`.

    Raises:
        ValueError: for none, a name that is empty, has the mark or comes twice, or
            what isn't a name.
    """
    text = isinstance(languages, str | bytes)
    names = [*languages] if isinstance(languages, kind) and not text else []
    fit = all(isinstance(n, str) and n and LANGUAGE_MARK not in n for n in names)
    if not names or not fit or len({*names}) < len(names):
        raise ValueError(
            f"`{name}` must have names of languages, such as 'en', each once"
            f"{' and as keys' if kind is Mapping else ''}. "
            f"Received: {languages!r}."
        )
    return names


@checked
@as_written
def read_translations(
    files: Mapping[str, Path | Sequence[Path]],
    feature: str = "text",
    encoding: str = "utf-8",
    max_line_length: int = MAX_LINE_LENGTH,
) -> TFDataset:
    """Read sentences and their translations, which are as many lines of two files.

    Files are those of `read_documents`, in sorted order. The first line of a language
    is the translation of the other's first line, and so on. Where one of the two is
    blank, both are left out.

    Args:
        files: dict of two names of languages to a glob pattern, or a list of paths and
            patterns.
        feature: string. Field of JSON or column of Parquet, whose texts are lines.
            Defaults to `"text"`.
        encoding: string. That of text files and JSON. Defaults to `"utf-8"`.
        max_line_length: int. The most characters of a line. Defaults to 4,194,304.

    Returns:
        A `tf.data.Dataset` of scalar strings, which `mark_languages` has joined:
        `sample_corpora` mixes them with those of one language.

    Raises:
        FileNotFoundError: If no file matches.
        ValueError: for another number of languages, and as `read_documents`.
        tf.errors.InvalidArgumentError: while it is read, for files that have not as
            many lines, and as `read_documents`.

    Example:

    ```py
    pairs = keras_bertfam.layers.read_translations(
        {"en": "europarl.en", "is": "europarl.is"})
    ```

    Reference: [Conneau and Lample, 2019](https://arxiv.org/abs/1901.07291), section
    3.3.
    """
    names = checked_languages("files", files)
    if len(names) != 2:
        raise ValueError(
            "`files` must be of two languages, whose lines are translations of each "
            f"other. Received: {names}."
        )
    reading = Reading(feature, encoding=encoding, max_line_length=max_line_length)
    sources = [text_sources(files[name], reading, "files") for name in names]

    # Of as many files each one is the other's translation.
    alike = len(sources[0]) == len(sources[1])
    groups = [*zip(*sources, strict=True)] if alike else [sources]

    def pairs():
        for group in groups:
            yield from pairs_of(*(each if not alike else [each] for each in group))

    def pairs_of(*sides):
        columns = (lines_of(side, reading) for side in sides)
        for number, lines in enumerate(itertools.zip_longest(*columns)):
            for name, side, line in zip(names, sides, lines, strict=True):
                if line is None:
                    raise ValueError(
                        f"The files of {name!r} must have as many lines as their "
                        f"translations. Received: {number} in {side[-1].name!r}, fewer "
                        "than the other's."
                    )
            if all(lines):
                parts = zip(names, lines, strict=True)
                yield "".join(
                    f"{LANGUAGE_MARK}{name}{LANGUAGE_MARK}"
                    f"{line.replace(LANGUAGE_MARK, ' ')}"
                    for name, line in parts
                )

    return dataset_of(pairs)


def lines_of(sources: Iterable[Source], reading: Reading) -> Iterator[str]:
    """Read the lines of files one after the other, blank ones too."""
    for source in sources:
        yield from read_every_line(Part(source), reading)


def split_languages(documents: TFTensor) -> tuple[TFTensor, TFTensor, TFTensor]:
    """Take apart what `mark_languages` has joined. Works in a graph.

    Args:
        documents: string tensor of shape `(batch,)`. One that doesn't begin with a
            language is a plain text.

    Returns:
        Tensors of shape `(texts,)`: the texts; the names of their languages, empty
        where they have none; and the document of each, int64, ascending.
    """
    # "|en|a cat|de|ein Tier", with marks written as "|", is split into "", "en",
    # "a cat", "de" and "ein Tier", and what has no language is a single part.
    plain = tf.strings.regex_replace(documents, LANGUAGE_MARK, " ")
    documents = tf.where(has_languages(documents), documents, plain)
    parts = tf.strings.split(documents, LANGUAGE_MARK)
    document = ragged.row_ids(parts)
    number = tf.range(tf.size(document, tf.int64)) - tf.gather(
        parts.row_starts(), document
    )
    alone = tf.gather(parts.row_lengths(), document) == 1
    chosen = (number % 2 == 0) & ((number > 0) | alone)
    before = tf.concat([[""], parts.flat_values[:-1]], 0)[: tf.size(document)]
    languages = tf.where(alone, "", before)
    return tuple(
        ragged.keep(each, chosen) for each in (parts.flat_values, languages, document)
    )
