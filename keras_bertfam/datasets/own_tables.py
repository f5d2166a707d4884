"""Make examples from a table that has no `TaskData`."""

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from keras_bertfam.datasets import tables
from keras_bertfam.datasets.examples import (
    Examples,
    arrange,
    infer_label_names,
    whole_number,
)
from keras_bertfam.datasets.files import answers_in, is_answers
from keras_bertfam.datasets.tables import Table, TableRequest
from keras_bertfam.datasets.task_data import TaskData
from keras_bertfam.layers.data.labels import check_labels, is_no_label
from keras_bertfam.metrics.scores import marks_entities
from keras_bertfam.types import Config

_QUESTIONS = "question_answering"
_KINDS = ("classification", "regression", "tagging", "multi_label", "text_to_text") + (
    _QUESTIONS,
)
_WITHOUT_NAMES = ("regression", "text_to_text", _QUESTIONS)
# How missing values and numbers that aren't finite are written.
_NAN, _INFINITE = (re.compile(text, re.I) for text in ("[-+]?nan", "[-+]?inf(inity)?"))
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)\.0*")
# "007" is a name.
_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


def load_table(
    source: Any,
    request: TableRequest,
    label_names: Sequence[str] | None = None,
    kind: str | None = None,
) -> Examples:
    """Read a table, and infer the kind of its labels.

    Args:
        source: see `tables.read`.
        request: `TableRequest`.
        label_names, kind: see `load_examples`.

    Returns:
        `Examples`.

    Raises:
        ValueError: for a missing cell, or one that doesn't belong into its column.
    """
    _check_arguments(request, label_names, kind)
    table = tables.read(source, request)
    if kind is None and request.label is not None and len(request.text) == 2:
        given = (record[request.label] for record in table.records)
        first = next((label for label in given if label not in (None, "", [])), None)
        kind = _QUESTIONS if is_answers(first) else None
    if kind == _QUESTIONS:
        return _load_questions(table, request)
    words = isinstance(table.records[0][request.text[0]], list)
    if kind not in (None, "tagging") if words else kind == "tagging":
        raise ValueError(
            f"Column {request.text[0]!r} must have lists of words for "
            f'kind="tagging", and texts for others. Received: kind={kind!r}, '
            f"{table.records[0][request.text[0]]!r}."
        )
    _check_inputs(table, request, words)
    if request.label is not None:
        _check_labels(table, request, words)
    column = request.label
    if column is not None and table.label_names and kind not in _WITHOUT_NAMES:
        names = _names_of_numbers(table, label_names)
        for record in table.records:
            record[column] = _named(record[column], names)
    if request.label is not None and not words and kind not in _WITHOUT_NAMES:
        _settle_classes(table, request.label, label_names or table.label_names)
    labels = (
        [record[request.label] for record in table.records]
        if request.label is not None
        else []
    )
    if words:
        kind = "tagging"
    elif kind is None:
        known = label_names or table.label_names
        kind = _kind_of(labels)
        kind = "classification" if known and kind == "regression" else kind
    if kind in _WITHOUT_NAMES:
        label_names = None
    else:
        label_names = label_names or table.label_names
        if label_names is None and kind == "classification":
            label_names = _names_of(table, labels, request.label)
    more: Config = {}
    if words:
        tags = label_names or itertools.chain(*labels)
        if not marks_entities(tag for tag in tags if not is_no_label(tag)):
            more = {"metrics": ("word_accuracy", "word_macro_f1")}
    task = TaskData(
        table.name,
        kind,
        columns=tuple(request.text),
        label=request.label,
        label_names=None if label_names is None else tuple(label_names),
        **more,
    )
    return arrange(task, table.records, table.place)


def _names_of_numbers(table, label_names):
    """Give the names of a table's numbers: its own, or others for all of them."""
    own = [*table.label_names]
    if label_names is None or {*own} <= {*label_names}:
        return own  # in the table's order, whatever the order of `label_names`
    if {*own} & {*label_names} or len(own) != len(label_names):
        raise ValueError(
            f"`label_names` must have all classes of {table.name}, {own}, in any "
            f"order, or a new name for each of them. Received: {[*label_names]}."
        )
    return label_names


def _named(label, names):
    """Give the names of classes for their numbers."""
    if isinstance(label, list):
        return [_named(each, names) for each in label]
    known = isinstance(label, int) and 0 <= label < len(names)
    return names[label] if known else label


def _load_questions(table, request):
    if len(request.text) != 2:
        raise ValueError(
            "`text` must be the columns of questions and of contexts, in this order. "
            f"Received: {list(request.text)}."
        )
    task = TaskData(
        table.name, _QUESTIONS, columns=("question", "context"), label="answers"
    )
    return arrange(task, question_records(table, request), table.place)


def question_records(table: Table, request: TableRequest) -> list[dict[str, Any]]:
    """Convert questions of a table to the form of SQuAD's files.

    Args:
        table: `Table`.
        request: `TableRequest`, whose texts are a question and its context.

    Returns:
        List of dicts of `question`, `context`, `answers`, and of the optional columns
        that have a value.

    Raises:
        ValueError: for cells that aren't texts, or answers that aren't in the context.
    """
    _check_inputs(table, request, False)
    question, context = request.text
    records = []
    for number, record in enumerate(table.records):
        answers = None if request.label is None else record[request.label]
        if answers is not None:
            try:
                answers = answers_in(answers, record[context])
            except ValueError as error:
                where = f"{table.place(number)}, column {request.label!r}"
                raise ValueError(f"{where}: {error}") from error
        texts = {"question": record[question], "context": record[context]}
        more = {n: record[n] for n in request.optional if record.get(n) is not None}
        records.append({**more, **texts, "answers": answers})
    return records


def _settle_classes(table, column, names):
    """Turn `1.0` into a whole number, and `TRUE` and `true` into one class.

    Raises a `ValueError` for words that usually stand for a missing label.
    """
    names = {str(name) for name in names or ()}
    labels = [record[column] for record in table.records]
    if any(isinstance(label, list) for label in labels):
        return  # of names
    others = [label for label in labels if str(label) not in names]
    numbers = any(map(_is_number, others))
    for number, label in enumerate(labels):
        missing = _NAN.fullmatch(str(label)) or (
            _INFINITE.fullmatch(str(label)) and (numbers or not isinstance(label, str))
        )
        if missing and str(label) not in names:
            expected = "a label; a class of this name needs to be in `label_names`"
            raise _expected(table, number, column, expected, label)
    spelled = {str(label) for label in others}
    lower = {text.lower() for text in spelled}
    settle: Any = None
    if lower <= {"true", "false"} and len(lower) < len(spelled):
        settle = lambda label: str(label).capitalize()  # noqa: E731
    elif None not in map(_whole, others):
        settle = _whole
    for record in table.records if settle else ():
        if str(record[column]) not in names:
            record[column] = settle(record[column])


def _whole(label):
    """Read a whole number, also in the form `1.0`; otherwise give `None`."""
    number = whole_number(label)
    if number is not None or isinstance(label, bool):
        return number
    if isinstance(label, str):
        return int(label.partition(".")[0]) if _WHOLE.fullmatch(label) else None
    return int(label) if float(label).is_integer() else None


def _check_arguments(request, label_names, kind):
    if not 1 <= len(request.text) <= 2:
        raise ValueError(
            "`text` must be the name of a column, or of two for pairs. Received: "
            f"{list(request.text)}."
        )
    if request.delimiter is not None and len(request.delimiter) != 1:
        raise ValueError(
            f"`delimiter` must be one character. Received: {request.delimiter!r}."
        )
    if kind not in (None, *_KINDS):
        raise ValueError(
            f"`kind` must be one of {_KINDS} or `None`. Received: {kind!r}."
        )
    if label_names is not None and (kind in _WITHOUT_NAMES or request.label is None):
        raise ValueError(
            "`label_names` must be `None` without a column of classes. Received: "
            f"label_names={list(label_names)}, label={request.label!r}, kind={kind!r}."
        )
    check_labels(None, label_names)


def _expected(table, number, column, expected, value):
    return ValueError(
        f"{table.place(number)}, column {column!r}: expected {expected}. Received: "
        f"{value!r}."
    )


def _check_inputs(table, request, words):
    if words and len(request.text) > 1:
        raise ValueError(
            "`text` must be one column if it has lists of words. Received: "
            f"{list(request.text)}."
        )
    for number, record in enumerate(table.records):
        for column in request.text:
            value = record[column]
            if not words and not isinstance(value, str):
                raise _expected(table, number, column, "a text", value)
            if words and not _are_words(value):
                raise _expected(table, number, column, "a list of words", value)


def _are_words(value):
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _are_tags(value):
    return isinstance(value, list) and all(isinstance(t, (str, int)) for t in value)


def _check_labels(table, request, words):
    """Raise an error for a cell that isn't a label; strip white space off labels."""
    for number, record in enumerate(table.records):
        label = record[request.label]
        if words:
            count = len(record[request.text[0]])
            if not _are_tags(label) or len(label) != count:
                expected = f"a list of {count} labels, one for each word"
                raise _expected(table, number, request.label, expected, label)
            continue
        if _are_tags(label):
            continue
        if isinstance(label, str):
            label = record[request.label] = label.strip()
        if label == "" or not isinstance(label, (str, int, float)) or label != label:
            raise _expected(table, number, request.label, "a label", label)


def _kind_of(labels):
    if any(isinstance(label, list) for label in labels):
        return "multi_label"
    if None not in map(whole_number, labels) or not all(map(_is_number, labels)):
        return "classification"
    return "regression"


def _is_number(label):
    if isinstance(label, str):
        return _NUMBER.fullmatch(label) is not None
    return not isinstance(label, bool) and math.isfinite(label)


def _names_of(table, labels, column):
    """Name the classes. Whole numbers are kept, so all below have names, too."""
    numbers = [*map(whole_number, labels)]
    if None in numbers or not {*numbers} - {-1}:  # test parts have -1
        return infer_label_names(labels)
    for record, number in enumerate(numbers):
        if not 0 <= number < len(numbers):
            expected = (
                f"the number of a class, from 0 and less than the {len(numbers)} rows; "
                'for others pass `label_names`, or `kind="regression"`'
            )
            raise _expected(table, record, column, expected, number)
    return tuple(map(str, range(max(numbers) + 1)))
