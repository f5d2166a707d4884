"""`report()` of the fine-tuning tasks."""

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
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.types import Mixin, Model, Tensor


class Reporting(Mixin):
    """Mixin of tasks: `report()`, by what their labels are."""

    def report(
        self, x: Any, y: Any, batch_size: int = 32, worst: int | None = 10
    ) -> Report:
        """How good the model is on labelled examples, and where it is worst.

        Args:
            x: what `fit()` takes, a batch.
            y: the labels, as for `fit()`.
            batch_size: int.
            worst: int. How many errors the report has at most; `None` for all.

        Returns:
            A `keras_bertfam.analysis.Report`, with what fits the labels:

            - classes of texts and words, and choices: accuracy, macro F1 and
              Matthews correlation, with two classes the F1 of the second, with tags
              (`"B-PER"`) seqeval's F1 of entities, but for words the expected
              calibration error; a confusion matrix and a table of the classes. Words
              count alike, and all count, as in `tag()`.
            - lists of classes: micro and macro F1, the share of texts whose classes are
              all right, that of right decisions, and a table of the classes.
            - numbers, and the similarities that a `TextEmbedder` is trained on:
              Pearson's and Spearman's correlation, errors.
            - answers: SQuAD's scores.

        Raises:
            ValueError: if the task has no preprocessor, and for what `fit()` refuses.
            ImportError: without scikit-learn and SciPy, which the `evaluation` extra
                has.
        """
        if self.preprocessor is None:
            raise ValueError("`report` needs a task with a preprocessor.")
        check_at_least(0, worst=worst)
        rows = self.preprocessor.from_arrays(x, y)
        batches = self.preprocessor.batch(rows, len(rows))
        x, labels = batches.get_single_element()
        return self._report(x, labels, y, batch_size, worst)

    def _report(self, x, labels, given, batch_size, worst):
        """The report of strings and labels as tensors, which are checked."""
        raise TypeError(f"{type(self).__name__} must define `_report`.")


class AnswerReporting(Reporting):
    """Mixin of the task that answers questions."""

    def _report(self, x, labels, given, batch_size, worst):
        answers = self.predict(x, batch_size=batch_size, verbose=0)
        given = [given] if isinstance(given, dict) else given
        texts = [y["text"] for y in given]
        y = [{"text": [t] if isinstance(t, str) else list(t)} for t in texts]
        title = report_title(self, len(y), "questions")
        return answer_report(title, texts_of(x), y, answers, worst)


def open_answers_report(
    task: Model, x: Any, labels: Any, answers: list[dict[str, Any]], worst: int | None
) -> Report:
    """The report of questions, the ragged strings of their answers, and predictions."""
    y = [{"text": [text.decode() for text in row]} for row in labels.to_list()]
    title = report_title(task, len(y), "questions")
    return answer_report(
        title, {"question": _decoded(x.numpy().tolist())}, y, answers, worst
    )


def report_of_classes(
    task: Model, x: Any, y: Any, outputs: Tensor, names: Any, worst: int | None
) -> Report:
    """The report of tensors of strings and labels, and probabilities `outputs`."""
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
    """The report of tensors of strings and sets of labels, and probabilities."""
    title = report_title(task, len(y))
    probabilities = ops.convert_to_numpy(outputs)
    return label_set_report(
        title, texts_of(x), y.numpy() > 0, probabilities, names, worst
    )


def report_of_numbers(
    task: Model, x: Any, y: Any, outputs: Tensor, worst: int | None
) -> Report:
    """The report of tensors of strings and numbers, and the predictions `outputs`."""
    predicted = ops.convert_to_numpy(outputs).astype(float)
    title = report_title(task, len(predicted))
    return number_report(title, texts_of(x), y.numpy().astype(float), predicted, worst)


def report_title(task: Model, count: int, what: str = "examples") -> str:
    """What a report is of."""
    return f"{type(task).__name__} on {count:,} {what}"


def texts_of(x: Any) -> dict[str, list[Any]]:
    """Named lists of what `as_tensors` of a preprocessor gives, choices last."""
    if isinstance(x, tuple):
        x = dict(zip(("text", "text_pair"), x, strict=True))
    named = x if isinstance(x, dict) else {"text": x}
    names = sorted(named, key=lambda name: name == "choices")
    return {name: _decoded(named[name].numpy().tolist()) for name in names}


def _decoded(texts):
    if isinstance(texts, list):
        return [_decoded(text) for text in texts]
    return texts.decode(errors="replace")
