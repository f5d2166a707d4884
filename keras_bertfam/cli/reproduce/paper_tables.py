"""Read papers' tables: each has a file with its rows, columns and figures."""

import dataclasses
import difflib
import importlib.resources
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from keras_bertfam import parsing
from keras_bertfam.cli.inputs import check_files
from keras_bertfam.cli.reproduce import labelled as labelled_data
from keras_bertfam.cli.reproduce.measures import MEASURES, Measure
from keras_bertfam.cli.runs import PretrainingRun, merged, with_recipe
from keras_bertfam.number_ranges import check_number
from keras_bertfam.types import Config, Path

_FOLDER = importlib.resources.files("keras_bertfam.cli.reproduce") / "tables"
# Asks for the paper's settings, in place of a number of steps.
PAPER = "paper"
# What a file's values must be where they aren't mappings.
_KINDS: dict[str, tuple[Any, str]] = {
    "source": (str, "a text"),
    "columns": (list, "a list"),
    "with_labelled": (list, "a list"),
    "figures": (list, "a list"),
}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Hold settings of a `PretrainingRun` in two sizes.

    Attributes:
        settings: dict, for both sizes.
        small: dict, for a run of minutes, added to the recipe `quick`.
        published: dict, for the paper's run.
    """

    settings: Config = dataclasses.field(default_factory=dict)
    small: Config = dataclasses.field(default_factory=dict)
    published: Config = dataclasses.field(default_factory=dict)

    def at(self, published: bool) -> Config:
        """Give the settings in one of the sizes."""
        return merged(self.settings, self.published if published else self.small)


@dataclasses.dataclass(frozen=True)
class Row(Arguments):
    """Hold a row of a table.

    Attributes:
        figures: sequence of the paper's figures for the row: str, number or `None`.
    """

    figures: Sequence[Any] = ()


@dataclasses.dataclass(frozen=True)
class PaperTable(Arguments):
    """Hold a table of a paper, or a similar one.

    Attributes:
        source: str, the paper and its table.
        columns: names of `MEASURES`.
        with_labelled: names of `MEASURES` whose columns need labelled data.
        figures: sequence of str, the titles of the paper's columns.
        rows: dict from names to `Row`.
        teacher: `Arguments` of a run that is trained first, or `None`. Its preset is
            the `teacher` of the rows' runs.
    """

    source: str = ""
    columns: Sequence[str] = ()
    with_labelled: Sequence[str] = ()
    figures: Sequence[str] = ()
    rows: Mapping[str, Row] = dataclasses.field(default_factory=dict)
    teacher: Arguments | None = None
    measures: ClassVar[Mapping[str, Measure]] = MEASURES  # what a column may be

    def run(
        self,
        row: str | None,
        scale: float | str = 1.0,
        changes: Config | None = None,
    ) -> PretrainingRun:
        """Make the run of a row.

        Args:
            row: str, its name, or `None` for the teacher.
            scale: float, the factor for the number of steps; or `"paper"` for the
                paper's settings.
            changes: dict of settings that take the place of the table's.

        Raises:
            ValueError: for settings that a run doesn't have.
        """
        paper = scale == PAPER
        own: Any = self.teacher if row is None else self.rows[row]
        shared = [] if row is None else [self.at(paper)]
        given = merged(*shared, own.at(paper), changes or {})
        given = with_recipe("published" if paper else "quick", given)
        if not paper and "steps_per_epoch" in given:
            given["steps_per_epoch"] = max(1, round(given["steps_per_epoch"] * scale))
        return PretrainingRun.of({"epochs": 1, **given}, f"of the row {row!r}")


def names() -> list[str]:
    """List the tables that come with the library."""
    files = (file.name for file in _FOLDER.iterdir())
    return sorted(name[:-5] for name in files if name.endswith(".yaml"))


def read_table(name: Path) -> PaperTable:
    """Read a table that comes with the library, or one from a file.

    Args:
        name: one of `names()`, or the path of a YAML file that ends in `.yaml`. Its
            keys are the attributes of `PaperTable`.

    Raises:
        ValueError: for an unknown name, a file that isn't YAML or lacks rows or
            columns, an unknown key or measure, two rows of one name, and a row with
            more figures than the table has columns for.
    """
    name = os.fspath(name)
    if name in names():
        given = parsing.parse_yaml((_FOLDER / f"{name}.yaml").read_text("utf-8"))
    elif name.endswith((".yaml", ".yml")):
        given = parsing.read_yaml(name)
    else:
        raise ValueError(
            f"`table` must be one of {names()}, or a file that ends in .yaml. "
            f"Received: {name!r}."
        )
    given = _fields(PaperTable, given, name)
    rows = given.get("rows")
    if not isinstance(rows, Mapping) or not rows or not given.get("columns"):
        raise ValueError(f"{name} must have `rows` and `columns`. Received: {given!r}.")
    rows = {
        str(row): Row(**_fields(Row, settings or {}, f"The row {row!r} of {name}"))
        for row, settings in rows.items()
    }
    teacher = given.get("teacher")
    if teacher is not None:
        teacher = Arguments(**_fields(Arguments, teacher, f"The teacher of {name}"))
    places = [folder_name(row) for row in (*rows, *(["teacher"] if teacher else []))]
    if len({*places}) < len(places) or not all(places):
        raise ValueError(
            f"`rows` of {name} must have names that differ in letters and digits"
            f"{', also from teacher' if teacher else ''}. Received: {[*rows]}."
        )
    table = PaperTable(**{**given, "rows": rows, "teacher": teacher})
    for column in (*table.columns, *table.with_labelled):
        _check_known(column, MEASURES, f"A column of {name}")
    for row, settings in rows.items():
        if len(settings.figures) > len(table.figures):
            raise ValueError(
                f"`figures` of the row {row!r} of {name} must be at most "
                f"{len(table.figures)}. Received: {settings.figures!r}."
            )
    return table


# Settings that `reproduce` sets itself, and its own options in their place.
_OF_TABLES = {
    "files": "`data`",
    "output": "`output`",
    "resume": "nothing: a study always goes on",
    "seed": "`seeds`",
}


def check_changes(changes: Config, own: Mapping[str, str] = _OF_TABLES) -> None:
    """Raise a `ValueError` for settings that a study of runs sets itself.

    Args:
        changes: dict of settings of all runs.
        own: the study's settings, and what takes their place.
    """
    for name, instead in own.items():
        if name in changes:
            raise ValueError(
                f"`set` must not name {name!r}, in whose place there is {instead}. "
                f"Received: {changes[name]!r}."
            )


def check_request(
    table: Path,
    rows: Sequence[str] = (),
    seeds: int = 1,
    scale: float | str = 1.0,
    data: Sequence[str] = (),
    held_out: Sequence[str] = (),
    changes: Config | None = None,
    labelled: str | None = None,
    labelled_limit: int | None = None,
) -> tuple[PaperTable, list[str]]:
    """Check the arguments of `reproducing.reproduce`.

    Returns:
        A tuple: the table, without the columns whose labelled data is missing, and the
        names of the wanted rows.

    Raises:
        ValueError: for an unknown table, row or setting, fewer than one seed, a `scale`
            that isn't a number, `data` without `held_out`, a table of labelled data
            without such data, or a `labelled_limit` below 1 or without `labelled`.
        FileNotFoundError: for files that aren't there.
    """
    known = _with_labelled(read_table(table), labelled)
    for row in rows:
        if row not in known.rows:
            raise ValueError(
                f"`rows` must be some of {[*known.rows]}. Received: {row!r}."
            )
    if seeds < 1:
        raise ValueError(f"`seeds` must be at least 1. Received: {seeds}.")
    if scale != PAPER and not (
        isinstance(scale, (int, float)) and 0 < scale < math.inf
    ):
        raise ValueError(
            f"`scale` must be a positive number or {PAPER!r}. Received: {scale!r}."
        )
    if labelled_limit is not None:
        if labelled is None:
            raise ValueError(
                "`labelled_limit` must be left out without `labelled`. "
                f"Received: {labelled_limit}."
            )
        check_number("labelled_limit", labelled_limit, 1)
    if bool(data) != bool(held_out):
        raise ValueError(
            "`data` and `held_out` must both be given, or none. Received: "
            f"data={[*data]}, held_out={[*held_out]}."
        )
    check_files("data", data)
    check_files("held_out", held_out)
    chosen = [row for row in known.rows if row in rows or not rows]
    changes = changes or {}
    check_changes(changes)
    if known.teacher is not None:
        known.run(None, scale, changes)
        changes = {**changes, "teacher": "the teacher's preset"}
    for row in chosen:
        known.run(row, scale, changes)
    return known, chosen


def _with_labelled(known, folder):
    """Leave out the columns whose labelled data isn't in the folder."""
    columns = [*known.columns, *(known.with_labelled if folder is not None else ())]
    places = {
        column: labelled_data.find(folder, name)
        for column, (name, _) in labelled_data.columns().items()
    }
    asked = [column for column in columns if column in places]
    there = [column for column in columns if places.get(column, True)]
    if folder is not None and not asked:
        raise ValueError(
            f"`labelled` must be left out for a table without labelled data. Received: "
            f"{folder!r}."
        )
    if asked and not {*asked} & {*there}:
        names = [labelled_data.columns()[column][0] for column in asked]
        raise ValueError(
            "`labelled` must be a folder that has some of "
            f"{[*dict.fromkeys(names)]}. Received: "
            f"{folder!r}."
        )
    return dataclasses.replace(known, columns=there)


def folder_name(row: str) -> str:
    """Name the folder of a row."""
    parts = "".join(c if c.isalnum() else " " for c in row).split()
    return "-".join(parts)


def _fields(cls, given, what):
    """Check a value of a file, and read the arguments of a class from it."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} must have {[*fields]}. Received: {given!r}.")
    for name, value in given.items():
        _check_known(name, fields, f"A key of {what}")
        kind, said = _KINDS.get(name, (Mapping, "keys and values"))
        if not isinstance(value, kind):
            raise ValueError(f"`{name}` of {what} must be {said}. Received: {value!r}.")
    return dict(given)


def _check_known(name, known, what):
    if name not in known:
        near = difflib.get_close_matches(str(name), known, 1)
        raise ValueError(
            f"{what} must be one of {[*known]}. Received: "
            f"{name!r}{''.join(f'; the nearest is {n!r}' for n in near)}."
        )
