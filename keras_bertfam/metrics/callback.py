"""Metrics of a whole validation set in the logs of `fit()`."""

import keras
import numpy as np

from keras_bertfam.metrics.scores import METRICS, compute_metrics
from keras_bertfam.metrics.squad import answer_texts


class TaskMetrics(keras.callbacks.Callback):
    """Adds the official metrics of a validation set to the logs of each epoch.

    `EarlyStopping`, `ModelCheckpoint` and the like that come after it in the list
    of callbacks can monitor `val_f1` and so on; the history has them too. Where
    questions have no answer, as in SQuAD 2.0, the model's `null_threshold` is tuned
    on them, and logged as `val_null_threshold`.

    Args:
        examples: `keras_bertfam.datasets.Examples` with labels.
        metrics: list of names, see `compute_metrics`. `None` means those of
            `examples.task`.
        batch_size: int. Defaults to `32`.
        prefix: str, before the names of the metrics. Defaults to `"val_"`.

    Raises:
        ValueError: for examples without labels or an unknown metric.

    Example:

    ```python
    validation = keras_bertfam.datasets.load_examples("mrpc", "validation")
    metrics = keras_bertfam.metrics.TaskMetrics(validation)
    stop = keras.callbacks.EarlyStopping("val_f1", mode="max", patience=1)
    model.fit(train.x, train.y, epochs=5, callbacks=[metrics, stop])
    ```
    """

    def __init__(self, examples, metrics=None, batch_size=32, prefix="val_"):
        super().__init__()
        if examples.y is None:
            raise ValueError("`examples` must have labels. Received: none.")
        self.examples = examples
        self.metrics = list(examples.task.metrics if metrics is None else metrics)
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown:
            raise ValueError(
                f"`metrics` must be of {sorted(METRICS)}. Received: {unknown}"
            )
        self.batch_size = batch_size
        self.prefix = prefix

    def compute(self, model=None):
        """The metrics of a model, by default of the one being trained.

        Args:
            model: a fine-tuning task, or `None`.

        Returns:
            Dict from names to floats.
        """
        model, examples = model or self.model, self.examples
        if not _has_unanswerable(examples):
            predictions = predicted_labels(model, examples, self.batch_size)
            return compute_metrics(self.metrics, examples.y, predictions)
        answers = model.predict(examples.x, batch_size=self.batch_size, verbose=0)
        metric = self.metrics[0].removeprefix("squad_")
        _, threshold = model.tune_null_threshold(
            examples.x, examples.y, metric=metric, answers=answers
        )
        predictions = answer_texts(answers, threshold)
        scores = compute_metrics(self.metrics, examples.y, predictions)
        return {**scores, "null_threshold": threshold}

    def on_epoch_end(self, epoch, logs=None):
        scores = self.compute()
        if logs is not None:
            logs.update({self.prefix + name: value for name, value in scores.items()})


def _has_unanswerable(examples):
    if examples.task.kind != "question_answering":
        return False
    return not all(len(answer["text"]) for answer in examples.y)


def predicted_labels(model, examples, batch_size=32):
    """What a fine-tuning task predicts for examples, in the form of their labels.

    Args:
        model: a fine-tuning task.
        examples: `keras_bertfam.datasets.Examples`.
        batch_size: int.

    Returns:
        A list of class numbers, floats, lists of tags or answers' texts.
    """
    kind = examples.task.kind
    if kind == "question_answering":
        answers = model.predict(examples.x, batch_size=batch_size, verbose=0)
        return [answer["text"] for answer in answers]
    if kind == "tagging":
        tagged = model.tag(examples.x, batch_size=batch_size)
        return [[label for _, label, _ in words] for words in tagged]
    outputs = np.asarray(model.predict(examples.x, batch_size=batch_size, verbose=0))
    if kind == "regression":
        return outputs.reshape(-1).tolist()
    return outputs.argmax(-1).tolist()
