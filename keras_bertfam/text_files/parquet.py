"""Columns of Parquet files."""

from collections.abc import Iterator
from typing import Any

from keras_bertfam.text_files.sources import Part, Reading, Source
from keras_bertfam.types import Path

_ROWS = 1024  # rows that are decoded at once


def row_groups(source: Source, size: int) -> Iterator[Part]:
    """Divide a Parquet file into parts of about `size` bytes."""
    metadata = open_parquet(source.name).metadata
    start, weight = 0, 0
    for group in range(metadata.num_row_groups):
        weight += metadata.row_group(group).total_byte_size
        if weight >= size:
            yield Part(source, start, group + 1)
            start, weight = group + 1, 0
    if start < metadata.num_row_groups or not start:
        yield Part(source, start, metadata.num_row_groups)


def check_column(source: Source, reading: Reading) -> None:
    """Raise a `ValueError` for a file that isn't Parquet, or lacks the column."""
    _with_column(source, reading)


def parquet_values(part: Part, reading: Reading) -> Iterator[Any]:
    """Read the column's value in each record of a part of a Parquet file.

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
    file = open_parquet(source.name)
    names = file.schema_arrow.names
    if reading.feature not in names:
        raise ValueError(
            f"`feature` must be one of {sorted(names)} for {source.name}. "
            f"Received: {reading.feature!r}."
        )
    return file


def read_columns(file: Any, columns: list[str], path: Path) -> list[dict[str, Any]]:
    """Read columns of a whole Parquet file.

    Args:
        file: the file that `open_parquet` gave.
        columns: list of the columns' names.
        path: path of the file, for errors.

    Returns:
        A list of dicts, one for each record.

    Raises:
        ValueError: for a damaged file.
    """
    from pyarrow import lib

    try:
        records: list[dict[str, Any]] = file.read(columns=columns).to_pylist()
    except (lib.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path!s} is damaged: {error}.") from error
    return records


def open_parquet(path: Path) -> Any:
    """Open a Parquet file; its values are read later, on demand.

    Args:
        path: path of the file.

    Returns:
        A `pyarrow.parquet.ParquetFile`.

    Raises:
        ImportError: if pyarrow isn't installed.
        ValueError: for another kind of file.
    """
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow: pip install keras-bertfam[data]."
        ) from error
    try:
        return parquet.ParquetFile(path)
    except (ValueError, OSError) as error:  # the bases of pyarrow's errors
        raise ValueError(f"{path!s} must be a Parquet file: {error}.") from error
