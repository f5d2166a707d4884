"""Extend Keras's TensorBoard by values that show what goes wrong in a run."""

import time
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.callbacks.skipped_batches import is_skipped
from keras_bertfam.optimizers.base import inner
from keras_bertfam.types import Path


@checked
class TensorBoard(keras.callbacks.TensorBoard):
    """Writes learning rate, gradient norm, tokens per second and share of padding.

    They are `batch_learning_rate`, the rate of the step; `batch_gradient_norm`, the
    global norm of the last update's gradient before clipping;
    `batch_tokens_per_second`, without padding, from the second step on because the
    first one is compiled; and `batch_padding_share`. The last two are means over the
    steps since the last written one. Keras adds losses and metrics. Steps are counted
    over all `fit()`s and resumed runs of a model; with `steps_per_execution` an
    execution counts as one.

    Without this callback none of these is computed. With it, each written step waits
    for the device.

    Args:
        log_dir: path of the folder to write to.
        update_freq: int, the number of batches between two written steps; or `"epoch"`,
            for once in an epoch, under names that begin with `epoch_`.
        **kwargs: other arguments of `keras.callbacks.TensorBoard`.

    Raises:
        ValueError: if `update_freq` is neither of these; in `fit()`, if the model isn't
            a task of this library.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    board = keras_bertfam.callbacks.TensorBoard("logs", update_freq=10)
    model.fit(model.preprocessor.dataset(documents), callbacks=[board])
    ```
    """

    def __init__(
        self, log_dir: Path = "logs", update_freq: int | str = 1, **kwargs: Any
    ) -> None:
        if update_freq not in ("epoch", "batch") and not (
            isinstance(update_freq, int) and update_freq > 0
        ):
            raise ValueError(
                '`update_freq` must be "epoch" or a positive integer. '
                f"Received: update_freq={update_freq!r}."
            )
        super().__init__(log_dir, update_freq=update_freq, **kwargs)
        self._mark: Any = None  # counts when values were last written
        self._before_test: Any = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        if not hasattr(self.model, "watch_steps"):
            raise ValueError(
                "The model must be a task of this library. Received: "
                f"model={self.model}. Use keras.callbacks.TensorBoard for other "
                "models."
            )
        self._watch = self.model.watch_steps()
        self._is_first = True  # until the first step has been compiled
        self._is_skipped = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._mark = self._counts()

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._is_skipped = is_skipped(self._model, batch)
        if self._is_skipped:
            return
        if self._is_first:
            # Another callback may resume a run before this one's `on_train_begin`.
            batches = inner(self.model.optimizer)._iterations
            together = self.model.steps_per_execution
            self._done = int(ops.convert_to_numpy(batches)) // together
        # At the end of data of unknown length, a batch begins that doesn't end.
        self._global_train_batch = self._done
        super().on_train_batch_begin(batch, logs)
        if self._is_written():
            self._rate = _number(self.model.optimizer.learning_rate)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self._is_skipped:
            return
        added = {}
        if self._is_written():
            added = {"learning_rate": self._rate, **self._measured()}
        super().on_train_batch_end(batch, {**(logs or {}), **added})
        self._done += 1
        if self._is_first:
            self._is_first = False
            self._mark = self._counts()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_begin(logs)
        self._before_test = self._counts() if self._mark else None

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_end(logs)
        if self._before_test:  # what validation took isn't counted
            parts = zip(self._mark, self._counts(), self._before_test, strict=True)
            self._mark = tuple(mark + now - before for mark, now, before in parts)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        added = self._measured() if self.update_freq == "epoch" else {}
        super().on_epoch_end(epoch, {**(logs or {}), **added})

    def _is_written(self):
        every = self.update_freq
        return every != "epoch" and self._global_train_batch % every == 0

    def _counts(self):
        """Count seconds, tokens and places, once the device has done all steps."""
        watch = (
            self.model and self._watch
        )  # under JAX this writes the step's state back
        counts = [int(ops.convert_to_numpy(v)) for v in (watch.tokens, watch.places)]
        return time.monotonic(), *counts

    def _measured(self):
        before, self._mark = self._mark, self._counts()
        # JAX's counts are int32, which may overflow and wrap around.
        tokens, places = (
            (now - then) % 2**32
            for now, then in zip(self._mark[1:], before[1:], strict=True)
        )
        measured = {"gradient_norm": _number(self._watch.gradient_norm)}
        if places:
            measured["padding_share"] = 1 - tokens / places
        if not self._is_first and tokens:
            measured["tokens_per_second"] = tokens / (self._mark[0] - before[0])
        return measured


def _number(value):
    return float(ops.convert_to_numpy(value))
