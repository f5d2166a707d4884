"""From records of named values to the examples that tasks take."""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from keras_bertfam.datasets.examples import Examples
from keras_bertfam.datasets.task_data import TaskData
from keras_bertfam.layers.data.labels import NO_LABEL, is_no_label

# "007" is a name.
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")


def _check_columns(task, records):
    for record in records:
        missing = [name for name in task.columns if name not in record]
        if missing:
            raise ValueError(
                f"Examples of {task.name!r} must have {list(task.columns)}. Missing: "
                f"{missing}. Received: {sorted(record)}."
            )


def _columns(task, records):
    _check_columns(task, records)
    columns = [[record[name] for record in records] for name in task.columns]
    return columns[0] if len(columns) == 1 else tuple(columns)


def _labels(task, records, convert, place):
    labels = [record.get(task.label) for record in records]
    if all(label is None or _is_minus_one(label) for label in labels):
        return None  # those of a test part
    if None in labels:
        raise ValueError(
            f"Examples of {task.name!r} must all have {task.label!r}, or none of them. "
            f"Missing in {place(labels.index(None))}."
        )
    converted = []
    for number, label in enumerate(labels):
        try:
            converted.append(convert(task, label))
        except ValueError as error:
            where = f"{place(number)}, column {task.label!r}"
            raise ValueError(f"{where}: {error}") from error
    return converted


def _is_minus_one(label):
    try:
        return float(label) == -1
    except (TypeError, ValueError):  # a list of tags, a dict of answers, a name
        return False


def _class_number(task, label):
    names = [str(name) for name in task.label_names or ()]
    if str(label) in names:
        return names.index(str(label))
    if str(label).isdecimal() and (not names or int(label) < len(names)):
        return int(label)
    raise ValueError(
        f"A label of {task.name!r} must be one of {names} or their numbers. "
        f"Received: {label!r}."
    )


def _number(task, label):
    expected = "a number"
    if task.maximum is not None:
        expected += f" from 0 to {task.maximum}"
    try:
        value = float(label)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or (task.maximum and not 0 <= value <= task.maximum):
        raise ValueError(
            f"A label of {task.name!r} must be {expected}. Received: {label!r}."
        )
    return value


def _tags(task, tags):
    if task.label_names is None:
        return [str(tag) for tag in tags]
    names, none = task.label_names, str(NO_LABEL)
    return [
        none if is_no_label(tag) else str(names[_class_number(task, tag)])
        for tag in tags
    ]


def _label_list(task, labels):
    if not isinstance(labels, list):
        raise ValueError(
            f"A label of {task.name!r} must be a list of classes. Received: {labels!r}."
        )
    return _tags(task, labels)


def _with_labels(convert):
    def arranged(task, records, place):
        labels = _labels(task, records, convert, place)
        return Examples(_columns(task, records), labels, task)

    return arranged


def _arrange_questions(task, records, place):
    x = {name: [record[name] for record in records] for name in task.columns}
    answers = _labels(task, records, lambda task, answer: answer, place)
    ids = [str(record.get("id", number)) for number, record in enumerate(records)]
    titles = [record.get("title", "") for record in records]
    return Examples(x, answers, task, ids, titles)


def _arrange_choices(task, records, place):
    _check_columns(task, records)
    records = [
        single for record in records for single in _single_questions(task, record)
    ]
    contexts = [record[task.columns[0]] for record in records]
    choices = [_choices(task, record) for record in records]
    labels = _labels(task, records, _class_number, place)
    return Examples((contexts, choices), labels, task)


def _single_questions(task, record):
    """Split RACE's records, which have a list of several questions in most columns."""
    if not isinstance(record.get(task.question), list):
        return [record]
    context, *rest = task.columns
    names = [name for name in (*rest, task.label) if name in record]
    parts = zip(*(record[name] for name in names), strict=True)
    return [
        {context: record[context], **dict(zip(names, p, strict=True))} for p in parts
    ]


def _choices(task, record):
    names = [name for name in task.columns[1:] if name != task.question]
    choices = record[names[0]] if len(names) == 1 else [record[name] for name in names]
    if not isinstance(choices, list):
        raise ValueError(
            f"Examples of {task.name!r} must have a list of choices in {names[0]!r}. "
            f"Received: {choices!r}."
        )
    if task.question is None:
        return choices
    return [_with_option(record[task.question], choice) for choice in choices]


def _with_option(question, option):
    """Put the option in the question's gap, or after it."""
    if "_" in question:
        return re.sub("_+", lambda _: option, question, count=1)
    return f"{question} {option}"


_ARRANGED = {
    "classification": _with_labels(_class_number),
    "regression": _with_labels(_number),
    "tagging": _with_labels(_tags),
    "question_answering": _arrange_questions,
    "multiple_choice": _arrange_choices,
    "multi_label": _with_labels(_label_list),
    "text_to_text": _with_labels(lambda task, label: str(label)),
}


def arrange(
    task: TaskData,
    records: list[dict[Any, Any]],
    place: Callable[[int], str] | None = None,
) -> Examples:
    """Make `Examples` of a task.

    Args:
        task: `TaskData`. Without `label_names`, classes that are strings, and tags,
            get those that are there; see `infer_label_names`.
        records: list of dicts from columns to values.
        place: function from a record's number to where it is, for errors; or `None`.

    Returns:
        `Examples`.

    Raises:
        ValueError: for a missing column or a label that the task doesn't have.
    """
    named = ("classification", "tagging", "multi_label")
    if task.label_names is None and task.kind in named:
        labels: list[Any] = [record.get(task.label) for record in records]
        if task.kind != "classification":
            lists = (tags for tags in labels if isinstance(tags, list))
            labels = [f"{t}" for tags in lists for t in tags if not is_no_label(t)]
        names = infer_label_names(labels, task.kind != "classification")
        task = dataclasses.replace(task, label_names=names)
    return _ARRANGED[task.kind](task, records, place or _place_of(len(records)))


def infer_label_names(
    labels: Sequence[Any], tags: bool = False
) -> tuple[str, ...] | None:
    """Infer the names of classes from the labels of all examples.

    Args:
        labels: sequence of labels, `None` where there is none.
        tags: bool. Whether they are tags of words, always names.

    Returns:
        The different labels as strings, sorted, but of tags `"O"` first; for `True`
        and `False` both. `None` for whole numbers, which are kept, and where a
        label is missing.
    """
    if not labels or None in labels:
        return None
    if tags:
        return tuple(sorted({*labels}, key=lambda tag: (tag != "O", tag)))
    if all(isinstance(label, bool) for label in labels):
        return ("False", "True")
    if None not in map(whole_number, labels):
        return None
    return tuple(sorted({str(label) for label in labels}))


def whole_number(label: Any) -> int | None:
    """Convert a whole number, in its shortest writing, too; else give `None`."""
    if isinstance(label, str):
        return int(label) if _WHOLE.fullmatch(label) else None
    return label if isinstance(label, int) and not isinstance(label, bool) else None


def _place_of(count):
    return lambda number: f"row {number + 1} of {count}"
