"""Files and datasets as sources of text: their parts, and the parts' documents."""

import codecs
import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from keras_bertfam.text_files import reading as files
from keras_bertfam.text_files.parquet import row_groups
from keras_bertfam.text_files.reading import WHITE_SPACE, check_head
from keras_bertfam.text_files.sources import (
    Block,
    Part,
    Reading,
    Source,
    find_files,
    source_of,
)
from keras_bertfam.types import Path

# Parts of text are of about this many bytes: a 256th of all, between the two.
_LEAST, _MOST, _PARTS = 1 << 20, 1 << 26, 256
_END = rb"(?>\r\n|\r|\n)"
_BLANKS = b"|".join(
    re.escape(space.encode()) for space in WHITE_SPACE if space not in "\r\n"
)
_SEPARATORS = {
    "json": re.compile(rb"\n"),
    "text": re.compile(_END + rb"(?:" + _BLANKS + rb")*" + _END),
}
_CHUNK = 1 << 16


def find_sources(
    names: Path | Sequence[Path], reading: Reading, argument: str = "sources"
) -> list[Source]:
    """Find files and datasets by their names.

    Args:
        names: names or patterns of files, `"tfds:NAME"` and `"hf:NAME"`.
        reading: `Reading`.
        argument: name of the argument in error messages.

    Returns:
        A list of different `Source`s, sorted by name.

    Raises:
        FileNotFoundError: for a name or pattern without a file.
        ValueError: see `check_head`.
    """
    if isinstance(names, (str, os.PathLike)):
        names = [names]
    items = [os.fspath(name) for name in names]
    marks = tuple(f"{kind}:" for kind in DATASETS)
    datasets = sorted({item for item in items if item.startswith(marks)})
    files = [item for item in items if item not in datasets]
    found = [dataset_source(name, reading) for name in datasets]
    if files or not datasets:
        found += find_files(files, argument)
    for source in found:
        if source.kind not in DATASETS:
            check_head(source, reading)
    return sorted(found, key=lambda source: source.name)


def check_unchanged(source: Source) -> None:
    """Raise a `ValueError` for a file that has changed since it was found.

    Otherwise the text could be partly of the old file and partly of the new one.
    """
    if source.kind in ("tfds", "hf"):
        return
    now = source_of(source.name)
    if now != source:
        raise ValueError(
            f"{source.name} must stay as it is while it is read. Expected: "
            f"{source.bytes} bytes, as it was when all began. Received: {now.bytes}, "
            "changed since."
        )


def make_blocks(sources: Iterable[Source], reading: Reading) -> list[Block]:
    """Divide sources into blocks of parts; blocks have about equal sizes.

    Args:
        sources: `Source`s.
        reading: `Reading`.

    Returns:
        A list of tuples of `Part`s. It depends on the sources only.
    """
    sources = [*sources]
    total = sum(source.bytes for source in sources)
    size = min(max(total // _PARTS, _LEAST), _MOST)
    blocks: list[Block] = []
    small: list[Part] = []
    weight = 0
    for source in sources:
        parts = [*_parts(source, size, reading)]
        if len(parts) > 1:
            blocks += [(part,) for part in parts]
            continue
        if small and weight + source.bytes > size:
            blocks.append(tuple(small))
            small, weight = [], 0
        small += parts
        weight += source.bytes
    return blocks + [tuple(small)] if small else blocks


def _parts(source, size, reading):
    if source.kind == "parquet":
        return row_groups(source, size)
    if source.kind in DATASETS:
        return dataset_parts(source, size, reading)
    whole = source.kind == "text" and reading.one_per_file
    # Bytes of lines' ends can be within characters of other encodings.
    other = codecs.lookup(reading.encoding).name != "utf-8"
    if whole or other or source.compressed or source.bytes <= size:
        return [Part(source)]
    return _byte_ranges(source, size)


def _byte_ranges(source, size):
    """Divide a file into parts that end with a document."""
    with open(source.name, "rb") as file:
        start = 0
        while start < source.bytes:
            end = _next_document(file, start + size, _SEPARATORS[source.kind])
            end = source.bytes if end is None else end
            yield Part(source, start, end)
            start = end


def _next_document(file, at, separator):
    """Find the first separator from `at` on; give the begin of the next document."""
    file.seek(at)
    before = b""
    while chunk := file.read(_CHUNK):
        text = before + chunk
        if found := separator.search(text):
            return at + found.end()
        # A separator may begin with the last line break of this chunk.
        before = text[max(text.rfind(b"\n"), text.rfind(b"\r")) :][-_CHUNK:]
        at += len(text) - len(before)
    return None


DATASETS = ("tfds", "hf")  # kinds of sources, and the prefixes of their names
_EXAMPLES = 10_000  # in a part of a dataset of unknown size in bytes


def dataset_parts(source: Source, size: int, reading: Reading) -> list[Part]:
    """Divide a dataset into parts of about `size` bytes."""
    count = _dataset_length(source.name, reading)
    step = _EXAMPLES
    if source.bytes:
        step = max(1, size * count // source.bytes)
    return [Part(source, k, min(k + step, count)) for k in range(0, count, step)]


@functools.lru_cache(maxsize=2)
def _tfds_split(name, reading):
    import tensorflow_datasets as tfds

    builder = tfds.builder(name.removeprefix("tfds:"))
    builder.download_and_prepare()
    if reading.split not in builder.info.splits:
        raise ValueError(
            f"`split` must be one of {sorted(builder.info.splits)} for {name}. "
            f"Received: {reading.split!r}."
        )
    return builder, builder.info.splits[reading.split]


@functools.lru_cache(maxsize=2)
def _hf_dataset(name, reading):
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            "Hugging Face's datasets need their library: pip install datasets."
        ) from error
    return datasets.load_dataset(name.removeprefix("hf:"), split=reading.split)


def dataset_source(name: str, reading: Reading) -> Source:
    """Describe a dataset as a source.

    Raises:
        ImportError: if the dataset's library isn't installed.
        ValueError: if the dataset has no such split.
    """
    if name.startswith("tfds:"):
        builder, split = _tfds_split(name, reading)
        return Source(name, "tfds", int(split.num_bytes), builder.info.full_name)
    dataset = _hf_dataset(name, reading)
    size = int(dataset.info.dataset_size or 0)
    return Source(name, "hf", size, str(dataset._fingerprint))


def _dataset_length(name, reading):
    if name.startswith("tfds:"):
        return int(_tfds_split(name, reading)[1].num_examples)
    return len(_hf_dataset(name, reading))


def dataset_examples(part: Part, reading: Reading) -> Iterator[Any]:
    """Read the feature's value in each example of a part of a dataset.

    Raises:
        ValueError: for a dataset without that feature.
    """
    name = part.source.name
    end = _dataset_length(name, reading) if part.end < 0 else part.end
    if name.startswith("tfds:"):
        builder, _ = _tfds_split(name, reading)
        names = [*builder.info.features]
        split = f"{reading.split}[{part.start}:{end}]"
    else:
        dataset = _hf_dataset(name, reading)
        names = dataset.column_names
    if reading.feature not in names:
        raise ValueError(
            f"`feature` must be one of {sorted(names)} for {name}. "
            f"Received: {reading.feature!r}."
        )
    if name.startswith("tfds:"):
        examples = builder.as_dataset(split=split).as_numpy_iterator()
    else:
        examples = iter(dataset.select(range(part.start, end)))
    for example in examples:
        yield example[reading.feature]


def read_documents(part: Part, reading: Reading) -> Iterator[str]:
    """Read the documents of a part of a file or a dataset.

    Args:
        part: `Part`.
        reading: `Reading`.

    Yields:
        Non-empty strings.

    Raises:
        OSError: if a file can't be read.
        ValueError: as `text_files.reading.read_documents`.
    """
    if part.source.kind not in DATASETS:
        yield from files.read_documents(part, reading)
        return
    examples = dataset_examples(part, reading)
    for row, value in enumerate(examples, part.start):
        if text := files.tidy_text(value, part, reading, f"row {row}"):
            yield text
