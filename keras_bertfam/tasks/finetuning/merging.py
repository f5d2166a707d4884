"""Merge the predictions of several models of one task."""

import collections
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.types import Model


def mean_numbers(models: Sequence[Model], outputs: Sequence[Any]) -> np.ndarray:
    """Average numbers.

    Args:
        models: the models, all of one task.
        outputs: what `predict()` of each model gives for the same inputs.

    Returns:
        float array.
    """
    return np.mean([ops.convert_to_numpy(each) for each in outputs], axis=0)


def mean_choices(models: Sequence[Model], outputs: Sequence[Any]) -> np.ndarray:
    """Average the probabilities of choices; see `mean_numbers`."""
    return mean_numbers(models, [ops.softmax(each) for each in outputs])


def mean_classes(models: Sequence[Model], outputs: Sequence[Any]) -> np.ndarray:
    """Average the probabilities of classes, in the first model's order.

    Args:
        models, outputs: see `mean_numbers`.

    Returns:
        float array `(rows, num_classes)`.

    Raises:
        ValueError: for models with different classes.
    """
    orders = [order_of_classes(models[0], model) for model in models]
    found = [
        ops.convert_to_numpy(model.probabilities(output))[:, order]
        for model, output, order in zip(models, outputs, orders, strict=True)
    ]
    return mean_numbers(models, found)


def order_of_classes(first: Model, model: Model) -> list[int]:
    """Find the places of the first model's classes in another model.

    Raises:
        ValueError: for other classes.
    """
    kinds = [(m.num_classes, getattr(m, "multi_label", False)) for m in (first, model)]
    names = [m.label_names or range(m.num_classes) for m in (first, model)]
    if kinds[0] != kinds[1] or {*names[0]} != {*names[1]}:
        raise ValueError(
            "`models` must have the same classes, in any order. Received: "
            f"{[*names[0]]} and {[*names[1]]}, multi_label={kinds[0][1]} and "
            f"{kinds[1][1]}."
        )
    return [[*names[1]].index(name) for name in names[0]]


def merged_lists(
    models: Sequence[Model], outputs: Sequence[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Merge the models' answers to each of several questions; see `merged_answers`."""
    thresholds = [model.null_threshold for model in models]
    lists = zip(*outputs, strict=True)
    return [merged_answers(of_one, thresholds) for of_one in lists]


def merged_answers(
    answers: Sequence[dict[str, Any]], thresholds: Sequence[float | None]
) -> dict[str, Any]:
    """Merge several models' answers to a question.

    An answer at a place gets the mean of the models' probabilities for it; a model that
    doesn't list it counts as 0. Each model also has odds that there is no answer. If
    the mean of these odds, each minus its model's threshold, is above 0, the merged
    answer is no answer. A model that finds no span has infinite odds; they count only
    if all models have them.

    Args:
        answers: sequence of dicts, one from `SpanQuestionAnswering.predict` of each
            model.
        thresholds: sequence of the models' `null_threshold`; all of them are numbers,
            or all `None`.

    Returns:
        A dict of the same form, in which `score` equals `probability`, and
        `no_answer_odds` is the mean described above.

    Example:

    ```python
    from keras_bertfam.tasks.finetuning.merging import merged_answers
    def answer(*pairs):
        names = ("text", "start", "end", "probability")
        best = [dict(zip(names, pair)) for pair in pairs]
        return {"no_answer_odds": 0.0, "n_best": best}
    one = answer(("a mat", 3, 8, 0.75), ("mat", 5, 8, 0.25))
    other = answer(("mat", 5, 8, 1.0))
    merged_answers([one, other], [None, None])["text"]  # "mat", by .625 to .375
    ```
    """
    shares: dict[tuple[Any, ...], float] = collections.defaultdict(float)
    for answer in answers:
        for each in answer["n_best"]:
            place = each["text"], each["start"], each["end"]
            shares[place] += each["probability"] / len(answers)
    n_best = [
        {"text": text, "start": a, "end": b, "score": share, "probability": share}
        for (text, a, b), share in sorted(shares.items(), key=lambda pair: -pair[1])
    ]
    each_odds = [
        answer["no_answer_odds"] - (threshold or 0.0)
        for answer, threshold in zip(answers, thresholds, strict=True)
    ]
    odds = np.mean([*filter(math.isfinite, each_odds)] or each_odds)
    spans = [each for each in n_best if each["start"] >= 0]
    if not spans or (None not in thresholds and odds > 0):
        none = {"text": "", "start": -1, "end": -1}
        best = {**none, "score": shares.get(("", -1, -1), 0.0)}
    else:
        best = spans[0]
    chosen = {name: best[name] for name in ("text", "start", "end", "score")}
    return {**chosen, "no_answer_odds": float(odds), "n_best": n_best}


def told_sets(
    probabilities: np.ndarray, names: Sequence[str] | None
) -> Iterator[dict[str, Any]]:
    """Give the classes of each row, in the form that `predict` writes.

    Args:
        probabilities: float array `(rows, classes)`. A row has each class that is at
            least as probable as not.
        names: sequence of strings, or `None` for the numbers of the classes.

    Yields:
        A dict for each row: `labels`, a list, and `probabilities`, by class.
    """
    for row in probabilities.tolist():
        pairs = [*zip(names or range(len(row)), row, strict=True)]
        labels = [name for name, share in pairs if share >= 0.5]
        yield {"labels": labels, "probabilities": {str(n): p for n, p in pairs}}


def told_classes(
    probabilities: np.ndarray, names: Sequence[str] | None, kind: str = "label"
) -> Iterator[dict[str, Any]]:
    """Give the most probable class of each row, in the form that `predict` writes.

    Args:
        probabilities: float array `(rows, classes)`.
        names: sequence of strings, or `None` for the numbers of the classes.
        kind: str, the key of the class in the dicts.

    Yields:
        A dict for each row, of the class and its `probability`.
    """
    for row in probabilities:
        best = int(row.argmax())
        label = best if names is None else names[best]
        yield {kind: label, "probability": float(row[best])}
