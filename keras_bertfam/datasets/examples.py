"""Hold examples in the form that tasks take, and make them from rows of tables."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.datasets.task_data import BY_QUESTION, TaskData
from keras_bertfam.layers.data.labels import NO_LABEL, is_no_label


@checked
@dataclasses.dataclass
class Examples:
    """Hold examples in the form that fine-tuning tasks take.

    Attributes:
        x: inputs of the task's preprocessor. They depend on the kind of the task:

            - one text column: list of strings; two: tuple of two such lists;
            - `"tagging"`: list of lists of words;
            - `"question_answering"`: dict of the lists `question` and `context`;
            - `"parsing"`: list of lists of words;
            - `"relations"`: dict of the lists `text`, `first` and `second`;
            - `"open_questions"`: list of strings;
            - `"answer_sets"` and `"candidates"`: tuple of two lists, each pair with
              one of a question's answers;
            - `"multiple_choice"`: tuple of a list of passages and a list of lists
              of choices, each the question with an option in it.
        y: list of labels, or `None` if they aren't published: class numbers, floats,
            lists of names of tags or of a text's classes; for parsing, lists of `(head,
            relation)`; for open questions, lists of strings; or dicts as in SQuAD of
            the lists `text` and `answer_start`.
        task: `TaskData`.
        ids: list of strings for questions, and for data that numbers its examples;
            otherwise `None`. If several examples belong to a question, the part before
            the last `-` is the question's.
        titles: list of strings, the articles that questions are about; otherwise
            `None`.
        candidates: for `"candidates"`, a list of tuples of a text that may be the
            answer, and the list of correct answers; otherwise `None`.

    Raises:
        ValueError: for a task of kind `"candidates"` without `candidates`.

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
    candidates: list[tuple[str, list[str]]] | None = None

    def __post_init__(self) -> None:
        if self.task.kind == "candidates" and self.candidates is None:
            raise ValueError(
                f"`candidates` must be given for examples of {self.task.name!r}, of "
                "kind 'candidates'. Received: None."
            )

    def __len__(self) -> int:
        return len(_first(self.x))

    @checked
    def take(self, count: int) -> Self:
        """Take the first `count` examples, or all of the first `count` questions.

        Raises:
            ValueError: if several examples belong to a question, and there are no
                `ids`.
        """
        if self.task.kind not in BY_QUESTION:
            return self[:count]
        questions = self._questions()
        taken = {*[*dict.fromkeys(questions)][:count]}
        return self._where([question in taken for question in questions])

    def __getitem__(self, chosen: slice) -> Self:
        """Select the examples of a slice."""
        return self._with_columns(lambda column: column[chosen])

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The classes in order, for `TextClassifier` or `TokenClassifier`."""
        return self.task.label_names

    @property
    def targets(self) -> list[Any] | None:
        """The references for predictions: `y`, by question if one has several.

        For `"answer_sets"` it has a list of class numbers for each question; for
        `"candidates"`, a dict with the list `text` of correct answers, as in SQuAD.
        """
        if self.y is None or self.task.kind not in BY_QUESTION:
            return self.y
        if self.candidates is None:
            return self.by_question(self.y)
        found = self.by_question(self.candidates)
        return [{"text": [*of_one[0][1]]} for of_one in found]

    def by_question(self, values: Sequence[Any]) -> list[list[Any]]:
        """Group values of examples by the questions that they belong to.

        Args:
            values: sequence with one value for each example.

        Returns:
            A list with a list for each question, in the order of the examples.

        Raises:
            ValueError: for examples without `ids`, or with `ids` that name no question.

        Example:

        ```python
        from keras_bertfam.datasets.task_data import get_task
        pairs = (["Text."] * 3, ["Who? A.", "Who? B.", "Why? C."])
        task, ids = get_task("multirc"), ["0-0-0", "0-0-1", "0-1-0"]
        examples = keras_bertfam.datasets.Examples(pairs, [0, 1, 1], task, ids)
        examples.by_question(examples.y)  # [[0, 1], [1]]
        ```
        """
        found: dict[str, list[Any]] = {}
        for key, value in zip(self._questions(), values, strict=True):
            found.setdefault(key, []).append(value)
        return [*found.values()]

    def _questions(self):
        if self.ids is None:
            raise ValueError(
                f"Examples of {self.task.name!r} must have numbers as `idx`, such as "
                "'question-answer'. Received: none, or the same twice."
            )
        plain = [number for number in self.ids if "-" not in number]
        if plain:
            raise ValueError(
                f"Examples of {self.task.name!r} must have numbers as `idx`, such as "
                f"'question-answer'. Received: {plain[0]!r}."
            )
        return [number.rpartition("-")[0] for number in self.ids]

    @checked
    def split(self, share: float, seed: int = 0) -> tuple[Self, Self]:
        """Split examples into two parts; the second is a share drawn with a seed.

        Each class has the same share in both parts, as nearly as whole examples allow;
        a class's last example isn't drawn. Both parts keep the order of the examples.
        Answers to a question stay together. Questions about one article may come into
        both parts; `split_articles` prevents that.

        Args:
            share: float between 0 and 1, the share of the second part.
            seed: int.

        Returns:
            A tuple of two `Examples`.

        Raises:
            ValueError: for a share out of its range, or if a part would be empty.
        """
        count = len(self)
        numbers = [*range(count)]
        if self.task.kind in BY_QUESTION:
            questions = self._questions()
            order = {key: k for k, key in enumerate(dict.fromkeys(questions))}
            numbers, count = [order[key] for key in questions], len(order)
        drawn: set[int] = set()
        if self.task.kind in ("classification", "relations") and self.y is not None:
            labels = self.y
        else:
            labels = [0] * count
        if 0 < share < 1:
            drawn = _drawn(labels, share, np.random.default_rng(seed))
        if not 0 < len(drawn) < count:
            raise ValueError(
                "`validation_split` must be a share between 0 and 1 that leaves "
                f"examples on both sides. Received: {share}, for {count} examples."
            )
        second = [number in drawn for number in numbers]
        return self._where([not here for here in second]), self._where(second)

    @checked
    def split_articles(self, count: int) -> tuple[Self, Self]:
        """Split questions in two; the first part has the first `count` articles.

        No article is in both parts, in whatever order the questions come.

        Raises:
            ValueError: for examples that aren't questions, or if a part would be empty.
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
            candidates=optional(self.candidates),
        )


def _drawn(labels, share, rng):
    """Draw indices of examples, with the same share of each class."""
    order = rng.permutation(len(labels)).tolist()
    classes: dict[Any, list[int]] = {}
    for number in order:
        classes.setdefault(labels[number], []).append(number)
    # Each class gets its whole number of examples; those with the greatest remainders
    # get one more.
    exact = {label: share * len(numbers) for label, numbers in classes.items()}
    counts = {label: int(size) for label, size in exact.items()}
    left = round(share * len(labels)) - sum(counts.values())
    for label in sorted(exact, key=lambda label: counts[label] - exact[label]):
        if left > 0 and len(classes[label]) - counts[label] > 1:
            counts[label] += 1
            left -= 1
    return {n for label, numbers in classes.items() for n in numbers[: counts[label]]}


def _first(x):
    while isinstance(x, (tuple, dict)):
        x = next(iter(x.values() if isinstance(x, dict) else x))
    return x


def _map(function, x):
    if isinstance(x, dict):
        return {name: function(column) for name, column in x.items()}
    return tuple(map(function, x)) if isinstance(x, tuple) else function(x)


# "007" is a name, not the number 7.
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")


def _check_columns(task, records, *others):
    columns = [*task.columns, *others]
    for record in records:
        missing = [name for name in columns if name not in record]
        if missing:
            raise ValueError(
                f"Examples of {task.name!r} must have {columns}. Missing: "
                f"{missing}. Received: {sorted(record)}."
            )


def _columns(task, records):
    _check_columns(task, records)
    columns = [[record[name] for record in records] for name in task.columns]
    return columns[0] if len(columns) == 1 else tuple(columns)


def _labels(task, records, convert, place):
    labels = [record.get(task.label) for record in records]
    # In test parts, -1 stands for a label that isn't given.
    is_label = task.kind in ("regression", "text_to_text") and task.maximum is None
    if all(x is None or (_is_minus_one(x) and not is_label) for x in labels):
        return None
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
    # Where classes are named by numbers, as stars are, no other number is a class.
    numbered = not any(map(_WHOLE.fullmatch, names))
    if numbered and str(label).isdecimal() and (not names or int(label) < len(names)):
        return int(label)
    numbers = " or their numbers" if numbered else ""
    raise ValueError(
        f"A label of {task.name!r} must be one of {names}{numbers}. "
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
    numbers = [label for label in labels if not isinstance(label, str)]
    if len({*map(str, numbers)}) < len(numbers):
        raise ValueError(
            f"A label of {task.name!r} must have each class once, by its name or "
            f"number, and no zeros and ones for all classes. Received: {labels!r}."
        )
    return _tags(task, labels)


def _answer_list(task, answers):
    strings = isinstance(answers, list) and all(isinstance(x, str) for x in answers)
    if not strings or not answers or not all(map(str.strip, answers)):
        raise ValueError(
            f"A label of {task.name!r} must be a list of texts, of which none is "
            f"empty. Received: {answers!r}."
        )
    return answers


def _with_labels(convert):
    def arranged(task, records, place):
        labels = _labels(task, records, convert, place)
        return Examples(_columns(task, records), labels, task, _ids(records))

    return arranged


# Columns with the numbers of examples, in data of GLUE and SuperGLUE.
NUMBERS = ("idx", "index")


def _ids(records):
    """List the numbers that data of GLUE and SuperGLUE gives to examples, if any."""
    for name in NUMBERS:
        numbers = [record.get(name) for record in records]
        given = [str(n) for n in numbers if isinstance(n, (int, str))]
        if len({*given}) == len(records):
            return given
    return None


def _arrange_candidates(task, records, place):
    _check_columns(task, records, "candidate")
    labels = _labels(task, records, _class_number, place)
    candidates = [record["candidate"] for record in records]
    x, ids = _columns(task, records), _ids(records)
    return Examples(x, labels, task, ids, candidates=candidates)


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
    return Examples((contexts, choices), labels, task, _ids(records))


def _single_questions(task, record):
    """Split RACE's records, which hold several questions as lists in most columns."""
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
    """Put the option into the question's gap, or else after the question."""
    if "_" in question:
        return re.sub("_+", lambda _: option, question, count=1)
    return f"{question} {option}"


def _arrange_trees(task, records, place):
    """Make pairs of a head and a relation for each word."""
    _check_columns(task, records)
    x = [record[task.columns[0]] for record in records]
    trees = [[*zip(r["head"], r[task.label], strict=True)] for r in records]
    for number, tree in enumerate(trees):
        for head, _ in tree:
            if not str(head).isdecimal() or int(head) > len(tree):
                raise ValueError(
                    f"{place(number)}, column 'head': expected the number of a word of "
                    f"its sentence, or 0. Received: {head!r}."
                )
    y = [[(int(head), str(name)) for head, name in tree] for tree in trees]
    return Examples(x, y, task)


def _arrange_relations(task, records, place):
    if task.markers:
        text, *spans = task.columns
        records = [dict(record) for record in records]
        for number, record in enumerate(records):
            try:
                found = _unmarked(record[text], task.markers)
            except ValueError as error:
                where = f"{place(number)}, column {text!r}"
                raise ValueError(f"{where}: {error}") from error
            record.update(zip((text, *spans), found, strict=True))
    _check_columns(task, records)
    x = {name: [record[name] for record in records] for name in task.columns}
    labels = _labels(task, records, _class_number, place)
    return Examples(x, labels, task, _ids(records))


def _unmarked(text, markers):
    """Remove markers from a text, and find the two spans in the result.

    Args:
        text: str, as in `"the << IL-2 receptor >> binds [[ IL-2 ]]"`.
        markers: the markers before and after the first span, and the second.

    Returns:
        A tuple of the text and two lists of a beginning and an end, in characters.
    """
    plain, last = "", ""
    places: dict[str, list[int]] = {}
    for part in re.split(f"({'|'.join(map(re.escape, markers))})", text):
        if part not in markers:
            # A space beside a marker belongs to the marker.
            plain += part.removeprefix(" ") if last in markers[::2] else part
        else:
            if part in markers[1::2]:
                plain = plain.removesuffix(" ")
            places.setdefault(part, []).append(len(plain))
        last = part
    if {name: len(found) for name, found in places.items()} != dict.fromkeys(
        markers, 1
    ):
        raise ValueError(
            f"Expected a text with {' '.join(markers)}, once each. Received: {text!r}."
        )
    begin, end, other, last = (places[name][0] for name in markers)
    if begin >= end or other >= last:
        raise ValueError(
            f"Expected {' '.join(markers)} around some text each. Received: {text!r}."
        )
    return plain, [begin, end], [other, last]


_ARRANGED = {
    "classification": _with_labels(_class_number),
    "regression": _with_labels(_number),
    "tagging": _with_labels(_tags),
    "question_answering": _arrange_questions,
    "multiple_choice": _arrange_choices,
    "multi_label": _with_labels(_label_list),
    "text_to_text": _with_labels(lambda task, label: str(label)),
    "parsing": _arrange_trees,
    "relations": _arrange_relations,
    "answer_sets": _with_labels(_class_number),
    "candidates": _arrange_candidates,
    "open_questions": _with_labels(_answer_list),
}


def arrange(
    task: TaskData,
    records: list[dict[Any, Any]],
    place: Callable[[int], str] | None = None,
) -> Examples:
    """Make `Examples` of a task.

    Args:
        task: `TaskData`. Without `label_names`, the names of classes and tags are those
            that occur; see `infer_label_names`.
        records: list of dicts from columns to values.
        place: function from a record's number to a description of its place, for
            errors; or `None`.

    Returns:
        `Examples`.

    Raises:
        ValueError: for a missing column or a label that the task doesn't have.
    """
    named = ("classification", "tagging", "multi_label", "parsing", "relations")
    if task.label_names is None and task.kind in named:
        labels: list[Any] = [record.get(task.label) for record in records]
        if task.kind not in ("classification", "relations"):
            lists = (tags for tags in labels if isinstance(tags, list))
            labels = [f"{t}" for tags in lists for t in tags if not is_no_label(t)]
        lists_of_tags = task.kind in ("tagging", "multi_label", "parsing")
        names = infer_label_names(labels, lists_of_tags)
        task = dataclasses.replace(task, label_names=names)
    return _ARRANGED[task.kind](task, records, place or _place_of(len(records)))


def infer_label_names(
    labels: Sequence[Any], tags: bool = False
) -> tuple[str, ...] | None:
    """Infer the names of classes from the labels of all examples.

    Args:
        labels: sequence of labels, `None` for a missing one.
        tags: bool. Whether they are tags of words, which are always names.

    Returns:
        The different labels as strings, sorted; for tags, `"O"` comes first. For bools,
        both `"False"` and `"True"`. `None` for whole numbers, which stay as they are,
        and if a label is missing.
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
    """Convert a whole number, or a string in its shortest form; else give `None`."""
    if isinstance(label, str):
        return int(label) if _WHOLE.fullmatch(label) else None
    return label if isinstance(label, int) and not isinstance(label, bool) else None


def _place_of(count):
    return lambda number: f"row {number + 1} of {count}"
