"""The parts of `report()` of the fine-tuning tasks."""

from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis.reliability import calibration
from keras_bertfam.analysis.report import (
    Report,
    answer_report,
    class_report,
    label_set_report,
    number_report,
)
from keras_bertfam.layers.data.labels import class_numbers
from keras_bertfam.types import Model, Tensor


def open_answers_report(
    task: Model, x: Any, labels: Any, answers: list[dict[str, Any]], worst: int | None
) -> Report:
    """Report on questions, the ragged strings of their answers, and predictions."""
    y = [{"text": [text.decode() for text in row]} for row in labels.to_list()]
    title = report_title(task, len(y), "questions")
    return answer_report(
        title, {"question": _decoded(x.numpy().tolist())}, y, answers, worst
    )


def report_of_classes(
    task: Model, x: Any, y: Any, outputs: Tensor, names: Any, worst: int | None
) -> Report:
    """Report on tensors of strings and labels, and probabilities `outputs`."""
    probabilities = ops.convert_to_numpy(outputs)
    numbers = class_numbers(y, probabilities.shape[1], names).numpy()
    title = report_title(task, len(numbers))
    finite = np.isfinite(probabilities).all()
    error = calibration(probabilities, numbers)["error"] if finite else float("nan")
    scores = {"calibration_error": error}
    texts = texts_of(x)
    return class_report(title, texts, numbers, probabilities, names, worst, scores)


def report_of_sets(
    task: Model, x: Any, y: Any, outputs: Tensor, names: Any, worst: int | None
) -> Report:
    """Report on tensors of strings and sets of labels, and probabilities."""
    title = report_title(task, len(y))
    probabilities = ops.convert_to_numpy(outputs)
    return label_set_report(
        title, texts_of(x), y.numpy() > 0, probabilities, names, worst
    )


def report_of_numbers(
    task: Model, x: Any, y: Any, outputs: Tensor, worst: int | None
) -> Report:
    """Report on tensors of strings and numbers, and the predictions `outputs`."""
    predicted = ops.convert_to_numpy(outputs).astype(float)
    title = report_title(task, len(predicted))
    return number_report(title, texts_of(x), y.numpy().astype(float), predicted, worst)


def report_title(task: Model, count: int, what: str = "examples") -> str:
    """Name what a report is of."""
    return f"{type(task).__name__} on {count:,} {what}"


def texts_of(x: Any) -> dict[str, list[Any]]:
    """Make named lists of what `as_tensors` of a preprocessor gives, choices last."""
    if isinstance(x, tuple):
        x = dict(zip(("text", "text_pair"), x, strict=True))
    named = x if isinstance(x, dict) else {"text": x}
    names = sorted(named, key=lambda name: name == "choices")
    return {name: _decoded(named[name].numpy().tolist()) for name in names}


def _decoded(texts):
    if isinstance(texts, list):
        return [_decoded(text) for text in texts]
    return texts.decode(errors="replace")
