"""Compute metrics of a whole validation set in `fit()`."""

import operator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.metrics.scores import check_metrics, compute_metrics
from keras_bertfam.metrics.squad import answer_texts, right_texts
from keras_bertfam.types import Model

_OF_CLASSES = ("classification", "relations", "answer_sets", "candidates")


@checked
class TaskMetrics(keras.callbacks.Callback):
    """Adds the official metrics of a validation set to the logs of each epoch.

    Callbacks that come after it in the list, such as `EarlyStopping` and
    `ModelCheckpoint`, can monitor `val_f1` and the other metrics, and the history has
    them, too. If some questions have no answer, as in SQuAD 2.0, the model's
    `null_threshold` is tuned on the examples and logged as `val_null_threshold`.

    Args:
        examples: `keras_bertfam.datasets.Examples` with labels.
        metrics: list of names, see `compute_metrics`. `None` takes those of
            `examples.task`.
        batch_size: int. Defaults to `32`.
        prefix: str before the names of the metrics. Defaults to `"val_"`.

    Raises:
        ValueError: for examples without labels or an unknown metric.
        ImportError: if a metric's library isn't installed.

    Example:

    ```python
    train, validation = (
        keras_bertfam.datasets.load_examples("sst2", split, "data/sst2")
        for split in ("train", "validation")
    )
    model = keras_bertfam.tasks.TextClassifier.from_preset("my_bert", num_classes=2)
    metrics = keras_bertfam.metrics.TaskMetrics(validation)
    stop = keras.callbacks.EarlyStopping("val_accuracy", mode="max", patience=1)
    model.fit(train.x, train.y, epochs=3, callbacks=[metrics, stop])
    ```
    """

    def __init__(
        self,
        examples: Any,
        metrics: Sequence[str] | None = None,
        batch_size: int = 32,
        prefix: str = "val_",
    ) -> None:
        super().__init__()
        if examples.y is None:
            raise ValueError("`examples` must have labels. Received: none.")
        self.examples = examples
        self.metrics = list(examples.task.metrics if metrics is None else metrics)
        check_metrics(self.metrics, "metrics")
        self._check_fit()
        self.batch_size = batch_size
        self.prefix = prefix

    def _check_fit(self):
        """Score the labels as their own prediction, which fails for unfit metrics."""
        examples, name = self.examples, None
        right = [*examples.targets]
        if examples.task.kind in ("question_answering", "open_questions", "candidates"):
            texts = [right_texts(x) if isinstance(x, dict) else x for x in right]
            right = [next(iter(each), "") for each in texts]
        try:
            for name in self.metrics:
                compute_metrics([name], examples.targets, right)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"`metrics` must fit the labels of {examples.task.name!r}. Received: "
                f"{name!r}, which fails: {error}"
            ) from error

    def compute(self, model: Model | None = None) -> dict[str, float]:
        """Compute the metrics of a model; by default, of the model in training.

        Args:
            model: a fine-tuning task, an `Ensemble`, or `None`. An `Ensemble`'s answers
                to questions are scored without tuning a threshold.

        Returns:
            Dict from names to floats.
        """
        model, examples = model or self.model, self.examples
        tuned = hasattr(model, "tune_null_threshold")  # an `Ensemble` isn't tuned
        if not (tuned and _has_unanswerable(examples)):
            predictions = predicted_labels(model, examples, self.batch_size)
            return compute_metrics(self.metrics, examples.targets, predictions)
        answers = model.predict(examples.x, batch_size=self.batch_size, verbose=0)
        metric = self.metrics[0].removeprefix("squad_")
        _, threshold = model.tune_null_threshold(
            examples.x, examples.y, metric=metric, answers=answers
        )
        predictions = answer_texts(answers, threshold)
        scores = compute_metrics(self.metrics, examples.y, predictions)
        return {**scores, "null_threshold": threshold}

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        scores = self.compute()
        if logs is not None:
            logs.update({self.prefix + name: value for name, value in scores.items()})


def _has_unanswerable(examples):
    if examples.task.kind != "question_answering":
        return False
    return not all(map(right_texts, examples.y))


def predicted_labels(model: Model, examples: Any, batch_size: int = 32) -> list[Any]:
    """Predict examples with a fine-tuning task, in the form of `Examples.targets`.

    Args:
        model: a fine-tuning task, or an `Ensemble`.
        examples: `keras_bertfam.datasets.Examples`.
        batch_size: int.

    Returns:
        A list of the task's class numbers, floats, lists of tags or of classes, or
        texts of answers. If several examples belong to a question, there is one item
        for each question.

    Raises:
        ValueError: if the names of the model's classes differ from the task's, and for
            texts to write.
    """
    kind = examples.task.kind
    if kind == "text_to_text":
        raise ValueError(
            "`examples` must not be of texts to write, which `score_texts` scores. "
            f"Received: examples of {examples.task.name!r}."
        )
    if kind in ("question_answering", "open_questions"):
        answers = model.predict(examples.x, batch_size=batch_size, verbose=0)
        return [answer["text"] for answer in answers]
    if kind == "tagging":
        tagged = model.tag(examples.x, batch_size, verbose=0)
        named = _namer(examples.task, model)
        return [[str(named(label)) for _, label, _ in words] for words in tagged]
    if kind == "parsing":
        trees = model.parse(examples.x, batch_size)
        named = _namer(examples.task, model)
        return [
            [(head, str(named(name))) for _, head, name in words] for words in trees
        ]
    if kind == "multi_label":
        if hasattr(model, "classify"):
            rows = model.classify(examples.x, batch_size)
        else:  # an `Ensemble`, which predicts probabilities
            shares = model.predict(examples.x, batch_size=batch_size, verbose=0)
            names = model.label_names or range(shares.shape[1])
            rows = [zip(names, row, strict=True) for row in shares]
        named = _namer(examples.task, model)
        return [[named(label) for label, p in row if p >= 0.5] for row in rows]
    outputs = np.asarray(model.predict(examples.x, batch_size=batch_size, verbose=0))
    if kind == "regression":
        return outputs.reshape(-1).tolist()
    outputs = _in_order(examples.task, model, outputs)
    if kind == "candidates":
        # The more class 1 exceeds class 0, the more probable it is.
        texts = [text for text, _ in examples.candidates]
        leads = (outputs[:, 1] - outputs[:, 0]).tolist()
        pairs = examples.by_question([*zip(leads, texts, strict=True)])
        return [max(of_one, key=operator.itemgetter(0))[1] for of_one in pairs]
    numbers = outputs.argmax(-1).tolist()
    return examples.by_question(numbers) if kind == "answer_sets" else numbers


def _namer(task, model):
    """Make a function that names a model's class as the task does.

    The task's names may lack some of the model's: those that no example has.
    """
    names, own = task.label_names, getattr(model, "label_names", None)
    if names and own is None and hasattr(model, "num_classes"):
        _check_count(task, model, model.num_classes)
    if not names or own is None:
        return lambda label: names[label] if names and type(label) is int else label
    folded = {str(name).casefold(): name for name in names}
    spelled = {
        name: name if name in names else folded.get(str(name).casefold(), name)
        for name in own
    }
    told = {*names} - {"O"}  # the tag of words outside
    if told and not told & {*spelled.values()}:
        raise ValueError(
            f"The model's `label_names` must be those of {task.name!r}, "
            f"{[*names]}. Received: {[*own]}."
        )
    return lambda label: spelled.get(label, label)


def _check_count(task, model, count):
    if count != len(task.label_names):
        raise ValueError(
            f"A model without `label_names` must have the {len(task.label_names)} "
            f"classes of {task.name!r}, {list(task.label_names)}. Received: a "
            f"{type(model).__name__} with {count}."
        )


def _in_order(task, model, outputs):
    """Put the columns of classes into the task's order; a model may have another."""
    names = getattr(model, "label_names", None)
    if task.kind not in _OF_CLASSES or not task.label_names:
        return outputs
    if names is None:
        _check_count(task, model, outputs.shape[-1])
        return outputs
    theirs, ours = [*names], [*task.label_names]
    if sorted(theirs) != sorted(ours):  # in upper and lower case
        theirs, ours = ([name.casefold() for name in each] for each in (theirs, ours))
    if sorted(theirs) != sorted(ours) or len({*ours}) < len(ours):
        raise ValueError(
            f"The model's `label_names` must be those of {task.name!r}, "
            f"{list(task.label_names)}, in any order. Received: {names}."
        )
    return outputs[:, [theirs.index(name) for name in ours]]
