"""Let Keras's loop count batches without training on them."""

from typing import Any

import keras

from keras_bertfam.types import Model

# Under PyTorch, Keras's loop reads a batch before it asks for the step.
LOOP_READS_FIRST = keras.backend.backend() == "torch"


class SkippedBatches:
    """Lets `fit()` skip the first batches of an epoch.

    For callbacks and the progress bar, a resumed epoch must count from the batch at
    which it was interrupted. Keras's loop has no argument for that: `initial_epoch`
    counts whole epochs, and with less data the loop would count the rest from 0.
    `train_step` can't do nothing for a while, because it is traced once and compiled.
    But the loop looks up `train_function` for each step. So `train_function` is
    replaced until enough batches have begun, and then put back.

    Args:
        model: the model, in `fit()`.
        count: int. How many batches to pass over.
        logs: dict of floats. The progress bar shows them meanwhile.
        to_read: int. How many batches of the data to read and throw away first.

    Attributes:
        active: bool. Whether batches are still skipped.
        count: int. How many are.
        batch: int. The loop's current batch, which a callback sets.
    """

    def __init__(
        self, model: Model, count: int, logs: dict[str, float], to_read: int = 0
    ) -> None:
        self.active = True
        self.batch = 0
        # Not a callback's `model`: under JAX, reading it would take the step's state
        # within the step.
        self._model = model
        self.count = count
        self._logs = logs
        self._to_read = 0 if LOOP_READS_FIRST else to_read
        self._train_function = model.train_function
        model.train_function = self._step

    def _step(self, *args: Any) -> Any:
        """Skip a batch or train on it, in place of the train function."""
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
        """Train on all batches from now on."""
        if self.active:
            self.active = False
            self._model.train_function = self._train_function


def is_skipped(model: Model, batch: int) -> bool:
    """Tell whether `fit()` counts a batch but skips it."""
    skipped = getattr(model.train_function, "__self__", None)
    return isinstance(skipped, SkippedBatches) and batch < skipped.count
