"""From rows of named values to the examples that tasks take."""

import dataclasses
import itertools
import math
import re
from typing import Any, Self

from keras_bertfam.datasets.task_data import TaskData


@dataclasses.dataclass
class Examples:
    """Examples as the fine-tuning tasks take them.

    Attributes:
        x: what the task's preprocessor takes. By kind of the task:

            - one text column: list of strings; two: tuple of two such lists;
            - `"tagging"`: list of lists of words;
            - `"question_answering"`: dict of the lists `question` and `context`;
            - `"multiple_choice"`: tuple of a list of passages and a list of lists
              of choices, each the question with an option in it.
        y: list of labels, or `None` where they aren't published: class numbers,
            floats, lists of names of tags, or SQuAD's dicts of the lists `text`
            and `answer_start`.
        task: `TaskData`.
        ids: list of strings, for questions; else `None`.
        titles: list of strings, the articles that questions are on; else `None`.

    Example:

    ```python
    validation = keras_bertfam.datasets.load_examples("sst2", "validation", "data/sst2")
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "my_bert", label_names=validation.task.label_names)
    model.evaluate(validation.x, validation.y)
    first_hundred = validation[:100]
    ```
    """

    x: Any
    y: list[Any] | None
    task: TaskData
    ids: list[str] | None = None
    titles: list[str] | None = None

    def __len__(self) -> int:
        return len(_first(self.x))

    def take(self, count: int) -> Self:
        """The first `count` examples."""
        return self[:count]

    def __getitem__(self, chosen: slice) -> Self:
        """Examples of a slice."""
        return self._with_columns(lambda column: column[chosen])

    def split_articles(self, count: int) -> tuple[Self, Self]:
        """Two parts of questions, the first those on the first `count` articles.

        No article is in both, in whatever order the questions are.

        Raises:
            ValueError: for examples that aren't questions, or if a part were empty.
        """
        names = list(dict.fromkeys(self.titles or ()))
        if not 0 < count < len(names):
            raise ValueError(
                "`count` must be more than 0 and less than the number of articles, "
                f"{len(names)}. Received: {count}."
            )
        first = set(names[:count])
        in_first = [title in first for title in self.titles or ()]
        return self._where(in_first), self._where([not here for here in in_first])

    def _where(self, mask):
        return self._with_columns(lambda column: list(itertools.compress(column, mask)))

    def _with_columns(self, function):
        def optional(column):
            return None if column is None else function(column)

        return dataclasses.replace(
            self,
            x=_map(function, self.x),
            y=optional(self.y),
            ids=optional(self.ids),
            titles=optional(self.titles),
        )


def _check_columns(task, rows):
    for row in rows:
        missing = [name for name in task.columns if name not in row]
        if missing:
            raise ValueError(
                f"Examples of {task.name!r} must have {list(task.columns)}. Missing: "
                f"{missing}. Received: {sorted(row)}."
            )


def _columns(task, rows):
    _check_columns(task, rows)
    columns = [[row[name] for row in rows] for name in task.columns]
    return columns[0] if len(columns) == 1 else tuple(columns)


def _labels(task, rows, convert):
    labels = [row.get(task.label) for row in rows]
    if all(label is None or _is_minus_one(label) for label in labels):
        return None  # those of a test part
    if None in labels:
        raise ValueError(
            f"Examples of {task.name!r} must all have {task.label!r}, or none of them. "
            f"Missing in row {labels.index(None) + 1} of {len(labels)}."
        )
    return [convert(task, label) for label in labels]


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
    except ValueError:
        value = math.nan
    if math.isnan(value) or (task.maximum and not 0 <= value <= task.maximum):
        raise ValueError(
            f"A label of {task.name!r} must be {expected}. Received: {label!r}."
        )
    return value


def _tags(task, tags):
    if task.label_names is None:
        return [str(tag) for tag in tags]
    return [str(task.label_names[_class_number(task, tag)]) for tag in tags]


def _with_labels(convert):
    def arranged(task, rows):
        return Examples(_columns(task, rows), _labels(task, rows, convert), task)

    return arranged


def _arrange_questions(task, rows):
    x = {name: [row[name] for row in rows] for name in task.columns}
    answers = _labels(task, rows, lambda task, answer: answer)
    ids, titles = [row["id"] for row in rows], [row.get("title", "") for row in rows]
    return Examples(x, answers, task, ids, titles)


def _arrange_choices(task, rows):
    _check_columns(task, rows)
    rows = [single for row in rows for single in _single_questions(task, row)]
    contexts = [row[task.columns[0]] for row in rows]
    choices = [_choices(task, row) for row in rows]
    return Examples((contexts, choices), _labels(task, rows, _class_number), task)


def _single_questions(task, row):
    """RACE's rows have a list in each column but the first, of several questions."""
    if not isinstance(row.get(task.question), list):
        return [row]
    context, *rest = task.columns
    names = [name for name in (*rest, task.label) if name in row]
    parts = zip(*(row[name] for name in names), strict=True)
    return [{context: row[context], **dict(zip(names, p, strict=True))} for p in parts]


def _choices(task, row):
    names = [name for name in task.columns[1:] if name != task.question]
    choices = row[names[0]] if len(names) == 1 else [row[name] for name in names]
    if not isinstance(choices, list):
        raise ValueError(
            f"Examples of {task.name!r} must have a list of choices in {names[0]!r}. "
            f"Received: {choices!r}."
        )
    if task.question is None:
        return choices
    return [_with_option(row[task.question], choice) for choice in choices]


def _with_option(question, option):
    """The option in the question's gap, or after it."""
    if "_" in question:
        return re.sub("_+", lambda _: option, question, count=1)
    return f"{question} {option}"


_ARRANGED = {
    "classification": _with_labels(_class_number),
    "regression": _with_labels(_number),
    "tagging": _with_labels(_tags),
    "question_answering": _arrange_questions,
    "multiple_choice": _arrange_choices,
}


def arrange(task: TaskData, rows: list[dict[str, Any]]) -> Examples:
    """Makes `Examples` of a task.

    Args:
        task: `TaskData`.
        rows: list of dicts from columns to values.

    Returns:
        `Examples`.

    Raises:
        ValueError: for a missing column or a label that the task doesn't have.
    """
    return _ARRANGED[task.kind](task, rows)


def _first(x):
    while isinstance(x, (tuple, dict)):
        x = next(iter(x.values() if isinstance(x, dict) else x))
    return x


def _map(function, x):
    if isinstance(x, dict):
        return {name: function(column) for name, column in x.items()}
    return tuple(map(function, x)) if isinstance(x, tuple) else function(x)
