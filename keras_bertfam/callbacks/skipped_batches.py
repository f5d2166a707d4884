"""Batches that Keras's loop counts but doesn't train on."""

from typing import Any

import keras

from keras_bertfam.types import Model

# Keras's loop under PyTorch takes a batch before it asks for the step.
LOOP_READS_FIRST = keras.backend.backend() == "torch"


class SkippedBatches:
    """Lets `fit()` pass over the first batches of an epoch.

    A resumed epoch must count, for callbacks and the progress bar, from the batch
    at which it was interrupted. Keras's loop has no argument for it: `initial_epoch`
    counts whole epochs, and with less data it would count the rest from 0. Nor can
    `train_step` do nothing for a while: it is traced once and compiled. What is left
    is `train_function`, which the loop looks up for each step: it is replaced until
    enough batches have begun, and then put back.

    Args:
        model: the model, in `fit()`.
        count: int. How many batches to pass over.
        logs: dict of floats. What the progress bar shows meanwhile.
        to_read: int. How many batches of the data to read, and throw away, before.

    Attributes:
        active: bool. Whether batches are still passed over.
        count: int. How many are.
        batch: int. The batch that the loop is at, for a callback to set.
    """

    def __init__(
        self, model: Model, count: int, logs: dict[str, float], to_read: int = 0
    ) -> None:
        self.active = True
        self.batch = 0
        # Not a callback's `model`, which under JAX takes the step's state in mid-step.
        self._model = model
        self.count = count
        self._logs = logs
        self._to_read = 0 if LOOP_READS_FIRST else to_read
        self._train_function = model.train_function
        model.train_function = self._step

    def _step(self, *args: Any) -> Any:
        """Pass over a batch, or train on it, in place of the train function."""
        for _ in range(self._to_read):
            next(args[-1])
        self._to_read = 0
        if self.batch >= self.count:
            self.end()
            return self._train_function(*args)
        if keras.backend.backend() == "jax":
            return self._logs, args[0]
        return self._logs

    def end(self) -> None:
        """Train on all that comes now."""
        if self.active:
            self.active = False
            self._model.train_function = self._train_function


def is_skipped(model: Model, batch: int) -> bool:
    """Tell whether `fit()` counts a batch but passes over it."""
    skipped = getattr(model.train_function, "__self__", None)
    return isinstance(skipped, SkippedBatches) and batch < skipped.count
