"""Columns of Parquet files."""

from collections.abc import Iterator
from typing import Any

from keras_bertfam.text_files.parts import Part, Reading, Source

_ROWS = 1024  # decoded at once


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


def check_column(source: Source, reading: Reading) -> None:
    """Raises a `ValueError` for a file without the column, or another kind of file."""
    _with_column(source, reading)


def parquet_values(part: Part, reading: Reading) -> Iterator[Any]:
    """The column's value in each row of a part of a Parquet file.

    Raises:
        ValueError: for a file without that column.
    """
    file = _with_column(part.source, reading)
    end = file.num_row_groups if part.end < 0 else part.end
    for group in range(part.start, end):
        try:
            for rows in file.iter_batches(_ROWS, [group], [reading.feature]):
                yield from rows[0].to_pylist()
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{part.source.name} is damaged, row group {group}: {error}."
            ) from error


def _with_column(source, reading):
    file = _parquet_file(source)
    names = file.schema_arrow.names
    if reading.feature not in names:
        raise ValueError(
            f"`feature` must be one of {sorted(names)} for {source.name}. "
            f"Received: {reading.feature!r}."
        )
    return file


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
