"""Parquet files, and datasets of TFDS and Hugging Face."""

import functools
from collections.abc import Iterator
from typing import Any

from keras_bertfam.corpora.preparing.parts import Part, Reading, Source

_EXAMPLES = 10_000  # in a part of a dataset whose size in bytes isn't known


def row_groups(source: Source, size: int) -> Iterator[Part]:
    """Parts of a Parquet file with about as many bytes."""
    metadata = _parquet_file(source).metadata
    start, weight = 0, 0
    for group in range(metadata.num_row_groups):
        weight += metadata.row_group(group).total_byte_size
        if weight >= size:
            yield Part(source, start, group + 1)
            start, weight = group + 1, 0
    if start < metadata.num_row_groups or not start:
        yield Part(source, start, metadata.num_row_groups)


def _parquet_file(source):
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow: pip install keras-bertfam[data]."
        ) from error
    try:
        return parquet.ParquetFile(source.name)
    except (ValueError, OSError) as error:  # pyarrow's errors are
        raise ValueError(f"{source.name} must be a Parquet file: {error}.") from error


def examples(source: Source, size: int, reading: Reading) -> list[Part]:
    """Parts of a dataset with about as many bytes."""
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
    """What there is to know of a dataset.

    Raises:
        ImportError: if its library isn't installed.
        ValueError: if it has no such split.
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
    """The feature's value in each example of a part of a dataset.

    Raises:
        ValueError: for a dataset without that feature.
    """
    name = part.source.name
    if name.startswith("tfds:"):
        builder, _ = _tfds_split(name, reading)
        names = [*builder.info.features]
        split = f"{reading.split}[{part.start}:{part.end}]"
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
        examples = iter(dataset.select(range(part.start, part.end)))
    for example in examples:
        yield example[reading.feature]


def parquet_values(part: Part, reading: Reading) -> Iterator[Any]:
    """The column's value in each row of a part of a Parquet file.

    Raises:
        ValueError: for a file without that column.
    """
    file = _parquet_file(part.source)
    names = file.schema_arrow.names
    if reading.feature not in names:
        raise ValueError(
            f"`feature` must be one of {sorted(names)} for {part.source.name}. "
            f"Received: {reading.feature!r}."
        )
    for group in range(part.start, part.end):
        try:
            rows = file.read_row_group(group, [reading.feature])[0].to_pylist()
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{part.source.name} is damaged, row group {group}: {error}."
            ) from error
        yield from rows
