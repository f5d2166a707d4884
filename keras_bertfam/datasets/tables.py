"""Read tables: files by their suffix, and other libraries' objects."""

import contextlib
import csv
import dataclasses
import difflib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from keras_bertfam.datasets import files
from keras_bertfam.text_files.parquet import open_parquet, read_columns
from keras_bertfam.text_files.sources import compression_of, suffix_of
from keras_bertfam.types import Path


@dataclasses.dataclass
class Table:
    """Hold the records of a table, with the wanted columns.

    Attributes:
        name: str, the table's name in errors.
        records: list of dicts from columns to values; `None` for a missing value.
        place: function from a record's number to a description of its place, for
            errors.
        label_names: the classes if the table itself has them, or `None`. Its labels
            are their numbers then.
    """

    name: str
    records: list[dict[str, Any]]
    place: Callable[[int], str]
    label_names: Sequence[str] | None = None


@dataclasses.dataclass
class TableRequest:
    """Hold the columns wanted from a table, and how to read its files.

    Attributes:
        text: names of the columns with the inputs.
        label: name of the labels' column, or `None`.
        split: the part of a `datasets.DatasetDict`.
        tagging: whether text files have one word a line.
        delimiter, header, quoting: see `load_examples`.
        delimiters: set of the delimiters that were inferred.
        optional: names of columns that are read if they are there.
    """

    text: Sequence[str] = ()
    label: str | None = None
    split: str = "train"
    tagging: bool = False
    delimiter: str | None = None
    header: Sequence[str] = ()
    quoting: bool = True
    delimiters: set[str] = dataclasses.field(default_factory=set)
    optional: Sequence[str] = ()

    @property
    def columns(self) -> list[str]:
        """The columns that must be there, without duplicates."""
        names = [*self.text, *([] if self.label is None else [self.label])]
        return list(dict.fromkeys(names))

    def taken(self, columns: Iterable[str]) -> list[str]:
        """List the columns to read of those that are there."""
        there = set(columns)
        names = [*self.columns, *(name for name in self.optional if name in there)]
        return list(dict.fromkeys(names))

    def check_plain(self, source: Any) -> None:
        """Raise an error if arguments are given that are only for text files."""
        if self.delimiter is not None or self.header or not self.quoting:
            raise ValueError(
                "`delimiter`, `header` and `quoting` must be left out but for text "
                f"files. Received: {source!s}, delimiter={self.delimiter!r}, "
                f"header={list(self.header)}, quoting={self.quoting}."
            )

    def missing(self, columns: Iterable[str]) -> list[str]:
        """List the columns that aren't there."""
        there = set(columns)
        return [name for name in self.columns if name not in there]


def check_columns(name: Any, request: TableRequest, columns: Iterable[Any]) -> None:
    """Raise a `ValueError` unless a table has each wanted column exactly once."""
    columns = list(columns)
    for missing in request.missing(columns):
        argument = "text" if missing in request.text else "label"
        # A column that another argument names isn't suggested.
        free = {str(c).lower(): c for c in columns if c not in request.columns}
        nearest = difflib.get_close_matches(str(missing).lower(), free, 1)
        hint = "".join(f"; the nearest is {free[n]!r}" for n in nearest)
        raise ValueError(
            f"`{argument}` must be a column of {name}, one of {columns}. "
            f"Received: {missing!r}{hint}."
        )
    for column in request.columns:
        if columns.count(column) > 1:
            raise ValueError(
                f"The columns of {name} must have different names. Received: "
                f"{column!r} {columns.count(column)} times."
            )


_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t", ".tab": "\t"}
_JSON = (".json", ".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_CONLL = (".conll", ".conllu", ".bio", ".iob")
# The columns of `.conllu`.
_CONLL_U = "id tokens lemma upos xpos feats head deprel deps misc".split()
SUFFIXES = (*_DELIMITERS, *_JSON, *_PARQUET, *_CONLL)


def is_conll(path: Path) -> bool:
    """Tell whether a path's ending is that of a file of words in CoNLL's format."""
    return suffix_of(path) in _CONLL


def is_file_name(name: str) -> bool:
    """Tell whether a name has one of the suffixes that are read here."""
    return suffix_of(name) in SUFFIXES


def is_column_file(path: Path) -> bool:
    """Tell whether a file has columns, by its suffix: text or Parquet, not JSON."""
    return suffix_of(path) in (*_DELIMITERS, *_PARQUET)


def has_columns_without_tabs(path: Path) -> bool:
    """Tell whether a file is Parquet, or CSV whose first line has no tab."""
    if suffix_of(path) in _PARQUET:
        return True
    return suffix_of(path) == ".csv" and "\t" not in next(files.read_lines(path), "")


def label_of_conll(source: Any) -> str | None:
    """Name the column of labels of CoNLL files; `None` for other sources."""
    first = source[0] if isinstance(source, (list, tuple)) and source else source
    if not isinstance(first, (str, os.PathLike)) or suffix_of(first) not in _CONLL:
        return None
    return "upos" if suffix_of(first) == ".conllu" else "tags"


def read(source: Any, request: TableRequest) -> Table:
    """Read the wanted columns.

    Args:
        source: path or list of paths, a `pandas.DataFrame`, or an object of the
            `datasets` library: `Dataset`, `IterableDataset` or a dict of them.
        request: `TableRequest`.

    Returns:
        A `Table` with at least one row.

    Raises:
        ValueError: for another kind of source, a file that differs from its suffix, or
            a missing column.
        FileNotFoundError: for a missing file.
        ImportError: for a Parquet file without pyarrow.
    """
    reader = _reader_of_objects(source)
    if request.split != "train" and not (reader and isinstance(source, dict)):
        raise ValueError(
            '`split` must be "train" for a table without parts. Received: '
            f"{request.split!r}."
        )
    if reader is not None:
        request.check_plain("an object of another library")
        table = reader(source, request)
    elif isinstance(source, (str, os.PathLike)):
        table = _read_file(source, request)
    elif isinstance(source, (list, tuple)) and _are_paths(source):
        table = _joined([_read_file(path, request) for path in source])
    else:
        received = f"{type(source).__name__}"
        if isinstance(source, (list, tuple)) and source:
            received = f"a list of {type(source[0]).__name__}"
        raise ValueError(
            "Data must be a path or a list of paths, a pandas DataFrame, or a Dataset "
            f"of the datasets library. Received: {received}."
        )
    if not table.records:
        raise ValueError(f"{table.name} must have at least one row. Received: none.")
    return table


def _are_paths(source):
    return bool(source) and all(isinstance(x, (str, os.PathLike)) for x in source)


def decoded(value: Any) -> Any:
    """Convert values to Python's own types: bytes to strings, arrays to lists."""
    if isinstance(value, dict):
        return {name: decoded(part) for name, part in value.items()}
    if hasattr(value, "to_list"):  # a ragged tensor
        value = value.to_list()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [decoded(part) for part in value]
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _reader_of_objects(source):
    """Find the reader for a table's library, if that library is imported."""
    pandas, datasets = (sys.modules.get(name) for name in ("pandas", "datasets"))
    if isinstance(source, getattr(pandas, "DataFrame", ())):
        return _read_frame
    classes = ("Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict")
    if isinstance(source, tuple(getattr(datasets, name, ()) for name in classes)):
        return _read_dataset
    return None


def _read_file(path, request):
    suffix = suffix_of(path)
    if not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "nothing that is there"
        raise FileNotFoundError(
            f"A table must be a file. Received: {path!s}, which is {kind}."
        )
    if suffix in (*_PARQUET, *_JSON):
        request.check_plain(path)
    if suffix in _PARQUET and compression_of(path):
        raise ValueError(
            f"A Parquet file must not be compressed once more. Received: {path!s}."
        )
    if suffix in _PARQUET:
        return _read_parquet(path, request)
    if os.path.getsize(path) == 0:
        raise ValueError(f"{path!s} must have at least one row. Received: no text.")
    if suffix in _JSON:
        return _read_json(path, request)
    if suffix in _CONLL or request.tagging:
        return _read_conll(path, request)
    if suffix in _DELIMITERS or request.delimiter is not None:
        return _read_delimited(path, request)
    raise ValueError(
        f"{path!s} must end with one of {', '.join(SUFFIXES)}, or `delimiter` be "
        f"given. Received: the end {suffix!r}."
    )


def _joined(tables):
    records = [record for table in tables for record in table.records]
    owners = [(table, k) for table in tables for k in range(len(table.records))]

    def place(number):
        table, own_number = owners[number]
        return table.place(own_number)

    others = f" and {len(tables) - 1} others" if len(tables) > 1 else ""
    return Table(f"{tables[0].name}{others}", records, place)


def _read_delimited(path, request):
    records, lines = [], []
    delimiter = request.delimiter or _delimiter(path, request)
    if request.delimiter is None and delimiter != _DELIMITERS[suffix_of(path)][0]:
        request.delimiters.add(delimiter)
    read = files.read_records(path, delimiter, request.quoting)
    with contextlib.closing(read) as located:
        if request.header:
            names = [*request.header]
        else:
            names = [name.strip() for name in next(located, (0, []))[1]]
        if not names:
            raise ValueError(f"{path!s} must begin with names of columns. It is empty.")
        check_columns(path, request, names)
        places = [(name, names.index(name)) for name in request.taken(names)]
        for line, values in located:
            if len(values) != len(names):
                raise ValueError(
                    f"{path!s}, line {line}: expected {len(names)} values, {names}. "
                    f"Received: {len(values)}, {values}."
                )
            records.append({name: values[place] for name, place in places})
            lines.append(line)
    return Table(str(path), records, lambda k: f"{path!s}, line {lines[k]}")


def _delimiter(path, request):
    """Find the delimiter that gives the first line all columns, or the most values."""
    first = next((line for line in files.read_lines(path) if line.strip()), "")
    first = first.split("\r")[0]  # reading the file will report what is wrong
    found = {
        d: next(
            csv.reader(
                [first], delimiter=d, skipinitialspace=files.has_spaces(first, d)
            )
        )
        for d in _DELIMITERS[suffix_of(path)]
    }
    for delimiter, names in found.items():
        if len(names) == len(request.header):
            return delimiter
        if not request.header and not request.missing(name.strip() for name in names):
            return delimiter
    return max(found, key=lambda delimiter: len(found[delimiter]))


def _read_json(path, request):
    located = files.located_json(path)
    for place, record in located:
        if not isinstance(record, dict):
            raise ValueError(
                f"{path!s}, {place}: expected an object with {request.columns}. "
                f"Received: {record!r}."
            )
    names = dict.fromkeys(name for _, record in located for name in record)
    if located:
        check_columns(path, request, names)
    records = [
        {name: record.get(name) for name in request.taken(names)}
        for _, record in located
    ]
    return Table(str(path), records, lambda k: f"{path!s}, {located[k][0]}")


def _read_conll(path, request):
    header = request.header or (_CONLL_U if suffix_of(path) == ".conllu" else ())
    begins: list[int] = []
    records = files.read_conll(path, header, begins)
    if records:
        check_columns(path, request, records[0])
    return Table(
        str(path), records, lambda k: f"{path!s}, sentence in line {begins[k]}"
    )


def _read_parquet(path, request):
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        check_columns(path, request, names)
        records = read_columns(file, request.taken(names), path)
    return Table(str(path), records, lambda k: f"{path!s}, row {k}")


def _read_frame(frame, request):
    check_columns("the DataFrame", request, frame.columns)
    frame = frame[request.taken(frame.columns)]
    records = frame.astype(object).where(frame.notna(), None).to_dict("records")
    index = frame.index
    return Table(
        "the DataFrame",
        decoded(records),
        lambda k: f"the DataFrame, index {index[k]!r}",
    )


def _read_dataset(dataset, request):
    if isinstance(dataset, dict):
        if request.split not in dataset:
            raise ValueError(
                f"`split` must be one of {sorted(dataset)}. "
                f"Received: {request.split!r}."
            )
        dataset = dataset[request.split]
    if dataset.column_names is None:  # a stream may not know its columns
        records = [*dataset]
        columns = records[0] if records else request.columns
    else:
        columns, records = dataset.column_names, None
    check_columns("the Dataset", request, columns)
    label_names = None
    if request.label is not None and dataset.features is not None:
        feature = dataset.features[request.label]
        label_names = getattr(getattr(feature, "feature", feature), "names", None)
    if records is None:
        dataset = dataset.select_columns(request.taken(columns))
        records = dataset.to_list() if hasattr(dataset, "to_list") else [*dataset]
    else:
        records = [
            {name: record.get(name) for name in request.taken(columns)}
            for record in records
        ]
    return Table(
        "the Dataset", decoded(records), lambda k: f"the Dataset, row {k}", label_names
    )
