"""What tasks whose labels are classes share."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.data.labels import check_labels
from keras_bertfam.tasks.losses import MaskedCrossentropy, UnweightedAccuracy
from keras_bertfam.types import Config, Mixin, Tensor


class LabelledTask(Mixin):
    """Mixin of tasks with `num_classes`, `label_names` and `activation`."""

    label_kind = "class"

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Compute probabilities of the classes from what the model returns."""
        return outputs if self.activation == "softmax" else ops.softmax(outputs)

    def activate(self, logits: Tensor) -> Tensor:
        """Apply the activation to what the model returns."""
        return ops.softmax(logits) if self.activation == "softmax" else logits

    def default_loss(self) -> MaskedCrossentropy:
        from_logits = self.activation != "softmax"
        return MaskedCrossentropy(name="crossentropy", from_logits=from_logits)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [UnweightedAccuracy(name="accuracy")]

    @classmethod
    def _adapt_config(cls, config, kwargs):
        same = super()._adapt_config(config, kwargs)
        classes = ("num_classes", "label_names")
        given = {name: kwargs[name] for name in classes if name in kwargs}
        if given.get("label_names") is not None:
            given["label_names"] = check_labels(None, given["label_names"])[1]
        if all(config.get(name) == value for name, value in given.items()):
            return same
        for name in classes:
            config.pop(name, None)
        if config.get("preprocessor") is not None:
            config["preprocessor"].forget_classes()
        return False

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "label_names": self.label_names,
            "activation": self.activation,
        }


def settle_classes(
    preprocessor: Any, num_classes: int | None, label_names: Sequence[str] | None
) -> tuple[int, Sequence[str] | None]:
    """Settle the classes of a task and of its preprocessor by each other's.

    Args:
        preprocessor: a `LabelledPreprocessor` or `None`.
        num_classes: int or `None`.
        label_names: sequence of strings or `None`.

    Returns:
        A tuple of the number of classes and the list of their names, or `None`.

    Raises:
        ValueError: if they contradict each other, or the number isn't known.
    """
    num_classes, label_names = check_labels(num_classes, label_names)
    if preprocessor is not None:
        preprocessor.set_classes(num_classes, label_names)
        num_classes, label_names = preprocessor.num_classes, preprocessor.label_names
    if num_classes is None or num_classes < 1:
        raise ValueError(
            "`num_classes` must be a positive int, or `label_names` given. "
            f"Received: num_classes={num_classes}."
        )
    return num_classes, label_names


def check_activation(activation: str | None, known: str = "softmax") -> None:
    """Raise a `ValueError` for an activation that has no loss here."""
    if activation not in (None, known):
        raise ValueError(
            f'`activation` must be `None` or "{known}". '
            f"Received: activation={activation!r}."
        )


def ranked_labels(
    probabilities: np.ndarray, label_names: Sequence[str] | None
) -> list[list[tuple[str | int, float]]]:
    """Pair labels and probabilities of each row, the most probable first.

    Args:
        probabilities: float array `(rows, num_classes)`.
        label_names: list of strings, or `None` for the numbers of the classes.

    Returns:
        A list for each row.
    """
    names = label_names or range(probabilities.shape[-1])
    order = np.argsort(-probabilities, axis=-1, kind="stable")
    return [
        [(names[k], float(row[k])) for k in ranks]
        for row, ranks in zip(probabilities, order, strict=True)
    ]
