"""Tables as people have them: files by their suffix, and other libraries' objects."""

import contextlib
import csv
import dataclasses
import difflib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from keras_bertfam.datasets import files
from keras_bertfam.types import Path

_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t", ".tab": "\t"}
_JSON = (".json", ".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_CONLL = (".conll", ".conllu", ".bio", ".iob")
_CONLL_U = (
    "id tokens lemma upos xpos feats head deprel deps misc".split()  # of `.conllu`
)
SUFFIXES = (*_DELIMITERS, *_JSON, *_PARQUET, *_CONLL)


@dataclasses.dataclass
class Table:
    """Rows with the columns that were asked for.

    Attributes:
        name: str, what errors call it.
        rows: list of dicts from columns to values; `None` where there is none.
        place: function from a row's number to where it is, for errors.
        label_names: the classes, where the table itself says them, or `None`.
    """

    name: str
    rows: list[dict[str, Any]]
    place: Callable[[int], str]
    label_names: Sequence[str] | None = None


@dataclasses.dataclass
class Form:
    """What of a table is asked for, and what its files don't say.

    Attributes:
        text: names of the columns with the inputs.
        label: name of the labels' column, or `None`.
        split: which part of a `datasets.DatasetDict`.
        tagging: whether text files have a word a line.
        delimiter, header, quoting: see `load_examples`.
    """

    text: Sequence[str] = ()
    label: str | None = None
    split: str = "train"
    tagging: bool = False
    delimiter: str | None = None
    header: Sequence[str] = ()
    quoting: bool = True

    @property
    def columns(self) -> list[str]:
        """The columns to read, each once."""
        names = [*self.text, *([] if self.label is None else [self.label])]
        return list(dict.fromkeys(names))

    def missing(self, columns: Iterable[str]) -> str:
        """The first column that isn't there, or ""."""
        return next((name for name in self.columns if name not in set(columns)), "")


def is_file_name(name: str) -> bool:
    """Whether it ends as the files that are read here."""
    return _suffix(name) in SUFFIXES


def is_conll(source: Any) -> bool:
    """Whether it is the path or are the paths of files with a word a line."""
    paths = source if isinstance(source, (list, tuple)) else [source]
    return bool(paths) and all(
        isinstance(path, (str, os.PathLike)) and _suffix(path) in _CONLL
        for path in paths
    )


def read(source: Any, form: Form) -> Table:
    """Reads the columns of a form.

    Args:
        source: path or list of paths, a `pandas.DataFrame`, or what the `datasets`
            library has: `Dataset`, `IterableDataset` and dicts of them.
        form: `Form`.

    Returns:
        A `Table` with at least one row.

    Raises:
        ValueError: for another source, a file that isn't what its suffix says, or a
            missing column.
        FileNotFoundError: for a missing file.
        ImportError: for a Parquet file without pyarrow.
    """
    reader = _reader_of_objects(source)
    if reader is not None:
        table = reader(source, form)
    elif isinstance(source, (str, os.PathLike)):
        table = _read_file(source, form)
    elif isinstance(source, (list, tuple)) and source:
        table = _joined([_read_file(path, form) for path in source])
    else:
        raise ValueError(
            "Data must be a path or a list of paths, a pandas DataFrame, or a Dataset "
            f"of the datasets library. Received: {type(source).__name__}."
        )
    if not table.rows:
        raise ValueError(f"{table.name} must have at least one row. Received: none.")
    return table


def decoded(value: Any) -> Any:
    """Python values of other libraries': bytes as strings, arrays as lists."""
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
    """The reader of a table that another library made; so that one is imported."""
    pandas, datasets = (sys.modules.get(name) for name in ("pandas", "datasets"))
    if isinstance(source, getattr(pandas, "DataFrame", ())):
        return _read_frame
    classes = ("Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict")
    if isinstance(source, tuple(getattr(datasets, n) for n in classes if datasets)):
        return _read_dataset
    return None


def _suffix(path: Path) -> str:
    return os.path.splitext(path)[1].lower()


def _read_file(path, form):
    suffix = _suffix(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"No such file: {path!s}.")
    if suffix in _PARQUET:
        return _read_parquet(path, form)
    if os.path.getsize(path) == 0:
        raise ValueError(f"{path!s} must have at least one row. Received: no text.")
    if suffix in _JSON:
        return _read_json(path, form)
    if suffix in _CONLL or form.tagging:
        return _read_conll(path, form)
    if suffix in _DELIMITERS or form.delimiter is not None:
        return _read_delimited(path, form)
    raise ValueError(
        f"{path!s} must end with one of {', '.join(SUFFIXES)}, or `delimiter` be "
        f"given. Received: the end {suffix!r}."
    )


def _joined(tables):
    rows = [row for table in tables for row in table.rows]
    owners = [(table, k) for table in tables for k in range(len(table.rows))]

    def place(number):
        table, own_number = owners[number]
        return table.place(own_number)

    return Table(", ".join(table.name for table in tables), rows, place)


def _check_columns(name, form, columns):
    """Raises unless a table has the columns of a form, each once."""
    columns = list(columns)
    missing = form.missing(columns)
    if missing:
        argument = "label" if missing == form.label else "text"
        names = [str(column) for column in columns]
        near = difflib.get_close_matches(missing.lower(), map(str.lower, names), 1)
        nearest = [column for column in names if column.lower() in near][:1]
        raise ValueError(
            f"`{argument}` must be a column of {name}, one of {columns}. Received: "
            f"{missing!r}{''.join(f'; the nearest is {n!r}' for n in nearest)}."
        )
    for column in form.columns:
        if columns.count(column) > 1:
            raise ValueError(
                f"The columns of {name} must have different names. Received: "
                f"{column!r} {columns.count(column)} times."
            )


def _read_delimited(path, form):
    rows, lines = [], []
    delimiter = form.delimiter or _delimiter(path, form)
    read = files.read_records(path, delimiter, form.quoting)
    with contextlib.closing(read) as records:
        if form.header:
            names = [*form.header]
        else:
            names = [name.strip() for name in next(records, (0, []))[1]]
        _check_columns(path, form, names)
        places = [(name, names.index(name)) for name in form.columns]
        for line, values in records:
            if len(values) != len(names):
                raise ValueError(
                    f"{path!s}, line {line}: expected {len(names)} values, {names}. "
                    f"Received: {len(values)}, {values}."
                )
            rows.append({name: values[place] for name, place in places})
            lines.append(line)
    return Table(str(path), rows, lambda k: f"{path!s}, line {lines[k]}")


def _delimiter(path, form):
    """The first by which the first line has all columns, else the most values."""
    first = next((line for line in files.read_lines(path) if line.strip()), "")
    found = {
        d: next(csv.reader([first], delimiter=d)) for d in _DELIMITERS[_suffix(path)]
    }
    for delimiter, names in found.items():
        if len(names) == len(form.header):
            return delimiter
        if not form.header and not form.missing(name.strip() for name in names):
            return delimiter
    return max(found, key=lambda delimiter: len(found[delimiter]))


def _read_json(path, form):
    located = files.located_json(path)
    for place, row in located:
        if not isinstance(row, dict):
            raise ValueError(
                f"{path!s}, {place}: expected an object with {form.columns}. "
                f"Received: {row!r}."
            )
    names = dict.fromkeys(name for _, row in located for name in row)
    if located:
        _check_columns(path, form, names)
    rows = [{name: row.get(name) for name in form.columns} for _, row in located]
    return Table(str(path), rows, lambda k: f"{path!s}, {located[k][0]}")


def _read_conll(path, form):
    header = form.header or (_CONLL_U if _suffix(path) == ".conllu" else ())
    rows = files.read_conll(path, header)
    if rows:
        _check_columns(path, form, rows[0])
    return Table(str(path), rows, lambda k: f"{path!s}, sentence {k + 1}")


def _read_parquet(path, form):
    try:
        from pyarrow import lib, parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow: pip install keras-bertfam[data]."
        ) from error

    try:
        with parquet.ParquetFile(path) as file:
            _check_columns(path, form, file.schema_arrow.names)
            rows = file.read(columns=form.columns).to_pylist()
    except lib.ArrowException as error:
        raise ValueError(f"{path!s} must be a Parquet file. {error}.") from error
    return Table(str(path), rows, lambda k: f"{path!s}, row {k}")


def _read_frame(frame, form):
    _check_columns("the DataFrame", form, frame.columns)
    frame = frame[form.columns]
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    index = frame.index
    return Table(
        "the DataFrame", decoded(rows), lambda k: f"the DataFrame, index {index[k]!r}"
    )


def _read_dataset(dataset, form):
    if isinstance(dataset, dict):
        if form.split not in dataset:
            raise ValueError(
                f"`split` must be one of {sorted(dataset)}. Received: {form.split!r}."
            )
        dataset = dataset[form.split]
    if dataset.column_names is not None:  # a stream may not know its own
        _check_columns("the Dataset", form, dataset.column_names)
    label_names = None
    if form.label is not None and dataset.features is not None:
        feature = dataset.features[form.label]
        label_names = getattr(getattr(feature, "feature", feature), "names", None)
    dataset = dataset.select_columns(form.columns)
    rows = dataset.to_list() if hasattr(dataset, "to_list") else list(dataset)
    return Table(
        "the Dataset", decoded(rows), lambda k: f"the Dataset, row {k}", label_names
    )
