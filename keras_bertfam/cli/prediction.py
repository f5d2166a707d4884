"""Answers of trained tasks to examples from files and standard input."""

import contextlib
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from keras_bertfam import tasks
from keras_bertfam.cli.writing import write_texts
from keras_bertfam.datasets import tables
from keras_bertfam.datasets.files import decoded_lines
from keras_bertfam.datasets.forms import Form
from keras_bertfam.parsing import parse_json
from keras_bertfam.presets import directory
from keras_bertfam.types import Model

BATCH = 256

_LONGEST = 10_000_000  # characters of a line


def load_task(preset: str) -> Model:
    """The fine-tuned task that a preset directory holds.

    Raises:
        ValueError: if there is none.
    """
    saved = directory.read_json(preset, directory.TASK_FILE) or {}
    name = str(saved.get("registered_name")).removeprefix("keras_bertfam>")
    cls = next((cls for cls in _TASKS if cls.__name__ == name), None)
    if cls is None:
        raise ValueError(
            "`preset` must be the directory of a fine-tuned task, one of "
            f"{[cls.__name__ for cls in _TASKS]}. Received: {preset!r}, which has "
            f"{name if saved else 'no task'}."
        )
    return cls.from_preset(preset)


def predict(
    model: Model, files: Sequence[str], text: Sequence[str], lines: TextIO | None = None
) -> Iterator[dict[str, Any]]:
    """The answers of a fine-tuned task.

    Args:
        model: a fine-tuned task.
        files: paths: tables as `keras_bertfam.datasets.load_examples` reads them, by
            their suffix, and others with a text a line; without any, `lines` are read.
        text: names of the columns with the texts, two for pairs; none for the usual
            ones of the task. In lines, what is more than one column is a JSON object.
        lines: file object, standard input by default.

    Yields:
        For each example a dict: its columns, and what the task says.

    Raises:
        ValueError: for a line or table without the columns.
    """
    usual, answer = _TASKS[type(model)]
    columns = [*text] or [*usual]
    for rows in _batches(_rows(files, columns, lines)):
        given = [[row[column] for row in rows] for column in columns]
        for row, said in zip(rows, answer(model, given), strict=True):
            yield {**row, **said}


def fill_mask(
    preset: str, files: Sequence[str], top_k: int, lines: TextIO | None = None
) -> Iterator[dict[str, Any]]:
    """The tokens that a masked language model puts in the place of masks.

    Args:
        preset: name or folder of a checkpoint.
        files: paths of files with a text a line; without any, `lines` are read.
        top_k: how many tokens for each mask.
        lines: file object, standard input by default.

    Yields:
        For each text a dict: `text`, and `masks`, a list for each mask of `token` and
        `probability`, the most probable first.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = tasks.MaskedLM.from_preset(preset)
    for each in said:
        if "masked_lm_head" in str(each.message):
            raise ValueError(
                "`preset` must have learnt to fill masks. Received: "
                f"{preset!r}, of which is said: {str(each.message).rstrip('.')}."
            )
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    for rows in _batches(_rows(files, ["text"], lines)):
        answers = model.fill_mask([row["text"] for row in rows], top_k)
        for row, slots in zip(rows, answers, strict=True):
            yield {**row, "masks": [_named(slot, "token") for slot in slots]}


def write(answers: Iterable[dict[str, Any]], report: Callable[[str], Any]) -> None:
    """Writes each answer as a line of JSON."""
    for answer in answers:
        report(json.dumps(answer, ensure_ascii=False))


def _rows(files, columns, lines):
    if not files:
        given = lines_of_input(lines or sys.stdin)
        yield from _rows_of_lines("standard input", given, columns)
    for path in files:
        if tables.is_file_name(path):
            yield from tables.read(path, Form(text=columns)).rows
        else:
            yield from _rows_of_lines(path, decoded_lines(path), columns)


def check_line(name: str, number: int, line: str) -> None:
    """Raises a `ValueError` for a line that is no text of a model's length."""
    if len(line) > _LONGEST:
        raise ValueError(
            f"{name}, line {number}: expected at most {_LONGEST:,} characters. "
            f"Received: {len(line):,}."
        )


def lines_of_input(lines: Iterable[str]) -> Iterator[str]:
    """Read the lines of standard input.

    Raises:
        ValueError: for text that isn't UTF-8.
    """
    try:
        yield from lines
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Standard input must be text in UTF-8. Received: {error}."
        ) from error


def _rows_of_lines(name, lines, columns):
    for number, line in enumerate(lines, start=1):
        check_line(name, number, line)
        line = line.rstrip("\r\n")
        if not line.strip():
            continue
        row: Any = {columns[0]: line}
        if len(columns) > 1:
            with contextlib.suppress(ValueError):
                row = parse_json(line, nan=True)
        if not isinstance(row, dict) or not {*columns} <= {*row}:
            raise ValueError(
                f"{name}, line {number}: expected a JSON object with {columns}. "
                f"Received: {line!r}."
            )
        yield {column: row[column] for column in columns}


def _batches(rows):
    rows = iter(rows)
    while batch := [*itertools.islice(rows, BATCH)]:
        yield batch


def _named(pairs, name):
    return [{name: value, "probability": float(p)} for value, p in pairs]


def _write(model, given):
    if len(given) > 1:
        raise ValueError(
            "`text` must be one column for a TextToText, which reads one text. "
            f"Received: {len(given)}."
        )
    for text in write_texts(model, given[0]):
        yield {"written": text}


# The usual columns, and what gives the answers.
_TASKS: dict[Any, tuple[tuple[str, ...], Callable[..., Iterator[dict[str, Any]]]]] = {
    **{
        cls: (cls.text_columns, cls.answers)
        for cls in (getattr(tasks, name) for name in tasks.__all__)
        if getattr(cls, "text_columns", ())
    },
    tasks.TextToText: (("text",), _write),
}
