"""What is asked for of a table, and what is read of it."""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any


@dataclasses.dataclass
class Table:
    """Records of a table, with the columns that were asked for.

    Attributes:
        name: str, what errors call it.
        records: list of dicts from columns to values; `None` where there is none.
        place: function from a record's number to where it is, for errors.
        label_names: the classes, where the table itself has them, or `None`.
    """

    name: str
    records: list[dict[str, Any]]
    place: Callable[[int], str]
    label_names: Sequence[str] | None = None


@dataclasses.dataclass
class TableRequest:
    """The columns wanted of a table, and what its files don't tell.

    Attributes:
        text: names of the columns with the inputs.
        label: name of the labels' column, or `None`.
        split: which part of a `datasets.DatasetDict`.
        tagging: whether text files have a word a line.
        delimiter, header, quoting: see `load_examples`.
        delimiters: set of the delimiters that were inferred.
    """

    text: Sequence[str] = ()
    label: str | None = None
    split: str = "train"
    tagging: bool = False
    delimiter: str | None = None
    header: Sequence[str] = ()
    quoting: bool = True
    delimiters: set[str] = dataclasses.field(default_factory=set)

    @property
    def columns(self) -> list[str]:
        """The columns to read, each once."""
        names = [*self.text, *([] if self.label is None else [self.label])]
        return list(dict.fromkeys(names))

    def check_plain(self, source: Any) -> None:
        """Raise where arguments are given that are for text files only."""
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
    """Raise a `ValueError` unless a table has the columns asked for, each once."""
    columns = list(columns)
    for missing in request.missing(columns):
        argument = "text" if missing in request.text else "label"
        # What another argument names already isn't what was meant.
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
