"""Write examples as pairs of texts, and score texts that were written for them."""

import math
import re
from collections.abc import Sequence
from typing import Any

from keras_bertfam import metrics
from keras_bertfam.arguments import checked
from keras_bertfam.datasets.examples import Examples
from keras_bertfam.datasets.task_data import TaskData
from keras_bertfam.metrics.squad import right_texts

KINDS = (
    "classification",
    "regression",
    "question_answering",
    "text_to_text",
    "open_questions",
)
# Kinds of tasks whose labels are the texts themselves.
_OF_TEXTS = ("question_answering", "text_to_text", "open_questions")
_NONE = -1  # the class of a text that is no label, and the number of one that is none
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def as_text_pairs(examples: Examples) -> tuple[list[str], list[str] | None]:
    """Convert examples to pairs of inputs and targets, in the form of T5's training.

    An input has the task's name, then each column after its name, in alphabetical
    order: `"mnli hypothesis: ... premise: ..."`. Inputs of questions have no name of a
    task, and spaces around punctuation: `"question: ... context: ..."`. A target is the
    name of a class, a number rounded to the nearest .2 such as `"3.8"`, or the first
    answer, `""` for no answer. CuratedTREC's patterns give no targets. For your own
    table of kind `"text_to_text"`, texts of a single column and targets aren't changed.

    Args:
        examples: `Examples` of classes, numbers, questions or texts.

    Returns:
        A tuple of two lists of strings for `TextToText`. The second is `None` if there
        are no labels.

    Raises:
        ValueError: for examples of another kind.

    Example:

    ```python
    from keras_bertfam.datasets.task_data import get_task
    task = get_task("rte")
    pair = (["A cat sat."], ["A cat."])
    examples = keras_bertfam.datasets.Examples(pair, [0], task)
    inputs, targets = keras_bertfam.datasets.as_text_pairs(examples)
    inputs  # ["rte sentence1: A cat sat. sentence2: A cat."]
    targets  # ["entailment"]
    # After model.fit(inputs, targets), of what model.generate(inputs, 8) gives:
    keras_bertfam.datasets.score_texts(examples, ["entailment"])
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.4 and
    appendix D; order and punctuation: its released code.
    """
    _check(examples)
    task = examples.task
    questions, free = (task.kind == k for k in ("question_answering", "text_to_text"))
    x = examples.x if isinstance(examples.x, (dict, tuple)) else (examples.x,)
    named = x if isinstance(x, dict) else dict(zip(task.columns, x, strict=True))
    names = ("question", "context") if questions else sorted(named)
    prefix = "" if questions or free else task.name
    prefix = prefix if task.prefix is None else task.prefix
    begin = [prefix] if prefix else []
    inputs = []
    for texts in zip(*(named[name] for name in names), strict=True):
        parts = [*map(_spaced, texts)] if questions else [*texts]
        if not free or len(names) > 1:
            parts = [f"{name}: {text}" for name, text in zip(names, parts, strict=True)]
        inputs.append(" ".join([*begin, *parts]))
    if examples.y is None or task.patterns:
        return inputs, None
    return inputs, [target_of(task, label) for label in examples.y]


def labels_of_texts(examples: Examples, texts: Sequence[str]) -> list[Any]:
    """Convert texts to labels, in the form of `Examples.y`.

    Args:
        examples: see `as_text_pairs`.
        texts: sequence of strings, one for each example.

    Returns:
        A list of class numbers, -1 for a text that isn't exactly the name of a class;
        or of floats, -1 for a text that isn't a number; or of unchanged answers and
        texts.

    Raises:
        ValueError: for more or fewer texts than examples.
    """
    _check(examples)
    if len(texts) != len(examples):
        raise ValueError(
            f"`texts` must be one for each of the {len(examples)} examples. "
            f"Received: {len(texts)}."
        )
    if examples.task.kind in _OF_TEXTS:
        return [*texts]
    if examples.task.kind == "regression":
        return [*map(_number, texts)]
    numbers = {name: number for number, name in enumerate(_names(examples))}
    return [numbers.get(text, _NONE) for text in texts]


@checked
def score_texts(examples: Examples, texts: Sequence[str]) -> dict[str, float]:
    """Score texts that were written for examples with the task's metrics, as T5 does.

    A text that isn't the name of a class counts as wrong; one that isn't a number
    counts as -1.

    Args:
        examples: `Examples` with labels, see `as_text_pairs`.
        texts: sequence of strings, one for each example.

    Returns:
        Dict from names in `keras_bertfam.metrics` to floats.

    Raises:
        ValueError: for more or fewer texts than examples, or examples without labels.
        ImportError: if a metric's library isn't installed.

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.4; its
    released code.

    Example:

    ```python
    from keras_bertfam.datasets.task_data import get_task
    task = get_task("sst2")
    examples = keras_bertfam.datasets.Examples(["good", "bad"], [1, 0], task)
    keras_bertfam.datasets.score_texts(examples, ["positive", "a film"])
    # {"accuracy": 0.5}
    ```
    """
    predictions, task = labels_of_texts(examples, texts), examples.task
    if examples.y is None:
        raise ValueError("`examples` must have labels. Received: none.")
    y = examples.y
    if task.kind == "question_answering":
        y = [{"text": [*map(_spaced, right_texts(answers))]} for answers in y]
    scores: dict[str, float] = {}
    for name in task.metrics:
        # F1 knows only the two classes: a text without a class counts as the wrong one.
        of_two = name == "f1"
        pairs = zip(y, predictions, strict=True)
        found = [1 - a if of_two and b == _NONE else b for a, b in pairs]
        scores |= metrics.compute_metrics([name], y, found)
    return scores


def _check(examples):
    if examples.task.kind not in KINDS:
        raise ValueError(
            f"`examples` must be of a task of kind {', '.join(KINDS)}. "
            f"Received: {examples.task.name!r}, of kind {examples.task.kind!r}."
        )


def _names(examples):
    """List the names of the classes, or their numbers as strings."""
    names = examples.task.label_names
    return names or [str(k) for k in range(max(examples.y or [_NONE]) + 1)]


def target_of(task: TaskData, label: Any) -> str:
    """Write a label of a task of one of `KINDS` in the form of T5's targets."""
    if task.kind == "regression":
        return f"{round(5 * label) / 5:.1f}"
    if task.kind == "question_answering":
        return next(map(_spaced, right_texts(label)), "")
    if task.kind == "text_to_text":
        return str(label)
    if task.kind == "open_questions":
        return str(label[0])
    return task.label_names[label] if task.label_names else str(label)


def _number(text):
    try:
        number = float(text)
    except ValueError:
        return float(_NONE)
    return number if math.isfinite(number) else float(_NONE)


def _spaced(text):
    """Put spaces around punctuation, and reduce several spaces to one."""
    return " ".join(_PUNCTUATION.sub(r" \1 ", text).split())
