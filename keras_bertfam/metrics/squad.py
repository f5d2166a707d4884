"""Compute SQuAD's official scores, 1.1 and 2.0, and search for a threshold."""

import collections
import re
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.arguments import checked

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Make lower case; drop ASCII punctuation, articles and extra white space.

    Args:
        text: str.

    Returns:
        str.
    """
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def right_texts(answers: dict[str, Any]) -> list[str]:
    """List the texts that count as correct; none for a question without an answer.

    Args:
        answers: dict with `text`, a string or a list of strings. An empty list, blank
            strings or `is_impossible` mean that there is no answer.

    Returns:
        A list of str.
    """
    if answers.get("is_impossible"):
        return []
    texts = answers["text"]
    texts = [texts] if isinstance(texts, str) else texts
    return [text for text in texts if text.strip()]


def _compared(text):
    """Normalise an answer for comparison; one that has only articles isn't changed."""
    return normalize_answer(text) or " ".join(text.lower().split())


def _token_f1(gold, predicted):
    gold, predicted = gold.split(), predicted.split()
    if not gold or not predicted:
        return float(gold == predicted)
    same = sum((collections.Counter(gold) & collections.Counter(predicted)).values())
    return 2 * same / (len(gold) + len(predicted))


def _per_question(answers, predictions):
    """Compute exact match and F1 of each question, in `[0, 1]`."""
    scores = []
    for gold, prediction in zip(answers, predictions, strict=True):
        if prediction is None:
            scores.append((0.0, 0.0))
            continue
        golds, predicted = [*map(_compared, right_texts(gold))], _compared(prediction)
        if not golds:  # a prediction is correct if no word is left of it
            golds, predicted = [""], normalize_answer(prediction)
        scores.append(
            (float(predicted in golds), max(_token_f1(g, predicted) for g in golds))
        )
    return np.array(scores).reshape(-1, 2)


def squad_scores(
    answers: Sequence[dict[str, Any]], predictions: Sequence[str | None]
) -> dict[str, float]:
    """Compute exact match and F1 by SQuAD's official rules.

    Each question gets the greatest score over its answers, and all questions count the
    same. For a question without answers the prediction is correct if it is `""`, or if
    normalising leaves no word of it. If an article is the only correct answer, it
    counts as an answer; the official script for 2.0 treats it as no answer.

    Args:
        answers: list of dicts with `text`, the list of correct texts, as in
            `Examples.y`. Blank texts or `is_impossible` mean that there is no answer.
        predictions: list of str, in the same order. `None` for a question without
            prediction, which counts as wrong.

    Returns:
        Dict of floats in percent: `exact_match` and `f1`. If there are questions with
        and without answers, also the scores of each of the two (`has_answer_f1`,
        `no_answer_f1`, ...).

    Raises:
        ValueError: for lists of different length.

    Example:

    ```python
    answers = [{"text": ["a red mat"]}, {"text": []}]
    keras_bertfam.metrics.squad_scores(answers, ["Mat.", ""])["f1"]  # 83.33
    ```

    Reference: [Rajpurkar et al., 2018](https://arxiv.org/abs/1806.03822); the
    evaluation script of SQuAD 2.0.
    """
    _check_lengths(answers, predictions)
    scores = 100 * _per_question(answers, predictions)
    answerable = np.array([bool(right_texts(gold)) for gold in answers])
    parts = {"": np.ones(len(answers), bool)}
    if answerable.any() and not answerable.all():
        parts |= {"has_answer_": answerable, "no_answer_": ~answerable}
    return {
        prefix + name: float(np.mean(scores[part, k])) if part.any() else 0.0
        for prefix, part in parts.items()
        for k, name in enumerate(("exact_match", "f1"))
    }


@checked
def best_null_threshold(
    answers: Sequence[dict[str, Any]],
    predictions: Sequence[str],
    null_odds: Sequence[float],
    metric: str = "f1",
) -> tuple[float, float]:
    """Find the odds of no answer above which `""` should be the prediction.

    Args:
        answers: list of dicts, see `squad_scores`.
        predictions: list of str, the best answers that aren't `""`.
        null_odds: list of floats: the score of no answer minus that of the prediction.
        metric: `"f1"` or `"exact_match"`.

    Returns:
        A tuple of the best score in percent and its threshold: predict `""` where
        `null_odds > threshold`.

    Raises:
        ValueError: for lists of different length or an unknown metric.

    Example:

    ```python
    from keras_bertfam.metrics.squad import best_null_threshold
    answers = [{"text": ["a mat"]}, {"text": []}]
    best_null_threshold(answers, ["mat", "Bert"], [-2.0, 3.0])
    # (100.0, -2.0)
    ```

    Reference: `find_best_thresh` of SQuAD 2.0's evaluation script.
    """
    _check_lengths(answers, predictions)
    _check_lengths(answers, null_odds)
    names = ("exact_match", "f1")
    if metric not in names:
        raise ValueError(f"`metric` must be one of {names}. Received: {metric!r}.")
    scores = _per_question(answers, predictions)[:, names.index(metric)]
    answerable = np.array([bool(right_texts(gold)) for gold in answers])
    wrong = [-1.0 if normalize_answer(text) else 0.0 for text in predictions]
    # The gain of answering a question, compared with answering none.
    gains = np.where(answerable, scores, wrong)
    odds = np.asarray(null_odds, float)
    order = np.argsort(odds, kind="stable")
    # Questions with equal odds are answered together.
    last = np.append(np.diff(odds[order]) > 0, True)
    totals = np.sum(~answerable) + np.cumsum(gains[order])[last]
    best = int(np.argmax(totals))
    if totals[best] <= np.sum(~answerable):
        return 100.0 * float(np.mean(~answerable)), float(
            np.nextafter(odds.min(), -np.inf)
        )
    return 100.0 * totals[best] / len(answers), float(odds[order][last][best])


@checked
def answer_texts(
    answers: Sequence[dict[str, Any]], null_threshold: float = float("inf")
) -> list[str]:
    """Give the texts of predicted answers; `""` if the odds of no answer are too high.

    Args:
        answers: list of dicts from `SpanQuestionAnswering.predict`.
        null_threshold: float. The highest `no_answer_odds` for which the text is given.

    Returns:
        A list of str.

    Example:

    ```python
    from keras_bertfam.metrics.squad import answer_texts
    model = keras_bertfam.tasks.SpanQuestionAnswering.from_preset("my_bert")
    answers = model.predict({"question": ["Where?"], "context": ["On a mat."]})
    answer_texts(answers, null_threshold=0.0)
    ```
    """
    return [
        next((a["text"] for a in answer["n_best"] if a["start"] >= 0), "")
        if answer["no_answer_odds"] <= null_threshold
        else ""
        for answer in answers
    ]


def _check_lengths(answers, others):
    if len(answers) != len(others) or not len(answers):
        raise ValueError(
            "There must be a prediction for each of the questions, and a question. "
            f"Received: {len(answers)} and {len(others)}."
        )
