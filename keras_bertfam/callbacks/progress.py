"""The progress bar of runs that go on."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bertfam.callbacks.backup import BackupAndResume
from keras_bertfam.callbacks.skipped_batches import SkippedBatches


def progress_of_run(
    callbacks: Sequence[keras.callbacks.Callback], verbose: Any
) -> list[keras.callbacks.Callback]:
    """Give the progress bar of a run that may go on, if it has none yet.

    Args:
        callbacks: those of a `fit()`.
        verbose: as in `fit()`.
    """
    bars = keras.callbacks.ProgbarLogger
    has_bar = any(isinstance(callback, bars) for callback in callbacks)
    goes_on = any(isinstance(callback, BackupAndResume) for callback in callbacks)
    return [ProgressOfThisRun()] if verbose and goes_on and not has_bar else []


class ProgressOfThisRun(keras.callbacks.ProgbarLogger):
    """Keras's progress bar, whose time for a step is that of the steps of this run.

    Keras divides by all steps of an epoch, and so by those before a kill, too.
    """

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        skipped = getattr(self.model.train_function, "__self__", None)
        if not isinstance(skipped, SkippedBatches):
            return
        estimate = self.progbar._estimate_step_duration

        def of_this_run(current, now):
            return estimate(max(current - skipped.count, 0), now)

        self.progbar._estimate_step_duration = of_this_run
