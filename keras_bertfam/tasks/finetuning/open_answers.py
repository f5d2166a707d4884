"""Answers that are found in several passages, and how many of them are right."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.data.pairs.questions import as_characters
from keras_bertfam.layers.heads.span_heads import NOWHERE
from keras_bertfam.types import Config, Tensor

_NONE = {
    "text": "",
    "probability": 0.0,
    "passage": None,
    "passage_id": -1,
    "start": -1,
    "end": -1,
}


class Places:
    """Where the tokens of rows are in the passages.

    Args:
        places: dict of tensors, what `read` of the preprocessor gives second.
        passage_ids: int array `(batch, passages)`.
    """

    def __init__(self, places: dict[str, Any], passage_ids: np.ndarray) -> None:
        bounds = places["bounds"]
        splits = bounds.row_splits.numpy()[1:-1]
        self._passages = places["passages"].numpy()
        self._bounds = np.split(bounds.flat_values.numpy(), splits)
        self._first = places["first"].numpy()
        self.passage_ids = passage_ids

    def span(
        self, question: int, passage: int, begin: int, more: int
    ) -> tuple[str, int, int]:
        """Give the text of a span, and where it is in its passage, in characters.

        Args:
            question: int.
            passage: int, which of the question's.
            begin: int, the place of its first token in the row.
            more: int, how many tokens follow.
        """
        row = question * self.passage_ids.shape[1] + passage
        content, bounds = self._passages[row], self._bounds[row]
        begin -= int(self._first[row])
        first, last = bounds[begin], bounds[begin + more]
        start, end = as_characters(content, int(first[0]), int(last[1]))
        return content.decode()[start:end], start, end


def found_answers(
    log_probabilities: np.ndarray,
    question: int,
    places: Places,
    passages: Sequence[Any],
    n_best: int,
) -> dict[str, Any]:
    """Collect the answers to a question, spans of the same text being one.

    Args:
        log_probabilities: float array `(passages, length, tokens)`, of spans.
        question: int, its number in the batch.
        places: `Places` of the batch.
        passages: sequence of all passages, by their ids.
        n_best: int. How many spans are considered.

    Returns:
        A dict as `OpenQuestionAnswering.predict` gives.
    """
    flat = log_probabilities.reshape(-1)
    count = min(n_best, flat.size)
    best = np.argpartition(-flat, count - 1)[:count]
    answers: dict[str, Any] = {}
    for place in best[np.argsort(-flat[best], kind="stable")]:
        if flat[place] <= NOWHERE / 2:
            break
        indices = np.unravel_index(place, log_probabilities.shape)
        column, begin, more = map(int, indices)
        text, start, end = places.span(question, column, begin, more)
        if not text:
            continue
        number = int(places.passage_ids[question, column])
        found = {
            "text": text,
            "probability": 0.0,
            "passage": passages[number],
            "passage_id": number,
            "start": start,
            "end": end,
        }
        answer = answers.setdefault(" ".join(text.lower().split()), found)
        answer["probability"] += float(np.exp(flat[place]))
    return _with_best(answers.values())


def _with_best(answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Give the best of the answers to a question, with all of them."""
    ordered = sorted(answers, key=lambda answer: -answer["probability"])
    with np.errstate(divide="ignore"):
        n_best = [
            {**answer, "score": float(np.log(answer["probability"]))}
            for answer in ordered or [_NONE]
        ]
    return {**n_best[0], "n_best": n_best}


@keras.saving.register_keras_serializable("keras_bertfam", name="ShareOfEach")
class UnweightedShare(keras.metrics.Mean):
    """The mean of a column of what is predicted, weights but 0 being equal.

    Args:
        column: int.
        name: str or `None`.
        dtype: see `keras.metrics.Metric`.
    """

    def __init__(
        self, column: int = 0, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.column = column

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        if sample_weight is not None:
            sample_weight = ops.cast(ops.not_equal(sample_weight, 0), self.dtype)
        super().update_state(y_pred[..., self.column], sample_weight)

    def get_config(self) -> Config:
        return {**super().get_config(), "column": self.column}
