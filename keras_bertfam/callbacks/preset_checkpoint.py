"""Keep the last presets of a run, and the best one."""

import contextlib
import json
import math
import os
import re
import shutil
import warnings
from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.callbacks.skipped_batches import is_skipped
from keras_bertfam.optimizers.base import inner
from keras_bertfam.parsing import read_json
from keras_bertfam.types import Path
from keras_bertfam.whole_files import write_text

_DELETED = ".deleted-"
_STEP = re.compile(r"step-(\d{6,})")
_SMALLER_IS_BETTER = re.compile(
    r"(^|_)loss(_|$)|perplexity|error|entropy|divergence|nats|bits|"
    r"(^|_)(r?m[as]e|mape|msle|nll|wer|cer|hinge|poisson|huber|log_cosh)$"
)


@checked
class PresetCheckpoint(keras.callbacks.Callback):
    """Writes presets during training, and keeps the last ones and the best one.

    `folder/step-000123` is the preset after 123 updates. Once the newest preset is
    complete, those before the last `keep_last` are deleted; presets of earlier runs in
    the same folder are deleted first. `folder/best` is the preset of the epoch with the
    best value of `monitor`. That value is in `folder/best.json`, so that a resumed run
    replaces the preset only by a better one. A run that begins without any
    updates replaces it. A kill at any moment leaves whole presets, as with
    `save_to_preset`. Presets have no optimizer: use `BackupAndResume` to resume a run.

    Args:
        folder: path, which is made if it doesn't exist. Use one folder for each run.
        keep_last: positive int, or `None` for all.
        monitor: name of a value in an epoch's logs, or `None` for no `best`.
        mode: `"min"`, `"max"`, or `"auto"`: `"min"` for names of losses, entropies,
            perplexities and errors, and `"max"` for others.
        save_freq: `"epoch"`, or int: the number of batches between presets.

    Raises:
        ValueError: for an argument out of its range, or in `fit()` if the model has
            no `save_to_preset`.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    data = model.preprocessor.dataset(documents)
    keep = keras_bertfam.callbacks.PresetCheckpoint("run1", monitor="loss")
    model.fit(data, epochs=3, callbacks=[keep])
    best = keras_bertfam.tasks.MaskedLM.from_preset("run1/best")
    ```
    """

    def __init__(
        self,
        folder: Path,
        keep_last: int | None = 3,
        monitor: str | None = "val_loss",
        mode: str = "auto",
        save_freq: int | str = "epoch",
    ) -> None:
        super().__init__()
        if keep_last is not None and not _is_positive(keep_last):
            raise ValueError(
                "`keep_last` must be a positive integer or None. "
                f"Received: keep_last={keep_last!r}."
            )
        if monitor is not None and (not isinstance(monitor, str) or not monitor):
            raise ValueError(
                f"`monitor` must be a name or None. Received: monitor={monitor!r}."
            )
        if mode not in ("auto", "min", "max"):
            raise ValueError(
                f'`mode` must be "auto", "min" or "max". Received: mode={mode!r}.'
            )
        if save_freq != "epoch" and not _is_positive(save_freq):
            raise ValueError(
                '`save_freq` must be "epoch" or a positive integer. '
                f"Received: save_freq={save_freq!r}."
            )
        self.folder = os.fspath(folder)
        self.keep_last = keep_last
        self.monitor = monitor
        if mode == "auto":
            mode = "min" if _SMALLER_IS_BETTER.search(monitor or "") else "max"
        self.mode = mode
        self.save_freq = save_freq
        self._written: list[str] = []  # names of presets, the newest last
        self._since_save = 0
        self._skipped = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not hasattr(self.model, "save_to_preset"):
            raise ValueError(
                "The model must have `save_to_preset`, as this library's tasks have. "
                f"Received: model={self.model}."
            )
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        old = [name for name in names if _STEP.fullmatch(name)]
        self._written = sorted(old, key=lambda name: int(name.removeprefix("step-")))
        for name in names:
            if name.startswith(
                _DELETED
            ):  # a run that was killed in between may have left it
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        self._since_save = self._steps = 0
        self._begin: int | None = None  # updates when this run began
        self._has_best = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps = 0

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._skipped = is_skipped(self._model, batch)
        if self._begin is None:  # what is resumed has been restored by now
            self._begin = self._update()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        done, self._steps = batch + 1 - self._steps, batch + 1
        if self._skipped:
            return
        self._since_save += done
        every = self.save_freq
        if isinstance(every, int) and self._since_save >= every:
            self._since_save = 0
            with distribution.gathered(self.model):
                self._save_step()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # All processes decide before the first one writes the file that they read.
        with distribution.gathered(self.model):
            if self.save_freq == "epoch":
                self._save_step()
            if self.monitor is not None:
                self._save_best((logs or {}).get(self.monitor), sorted(logs or {}))

    def _save_step(self):
        name = f"step-{self._update():06d}"
        if not self._save(name):
            return
        self._written = [*(old for old in self._written if old != name), name]
        if self.keep_last is None:
            return
        while len(self._written) > self.keep_last:
            self._delete(self._written.pop(0))

    def _delete(self, name):
        # It is renamed first, so that a half-deleted folder doesn't look like a preset.
        gone = os.path.join(self.folder, f"{_DELETED}{name}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(self.folder, name), gone)
            shutil.rmtree(gone)

    def _update(self):
        iterations = inner(self.model.optimizer).iterations
        return int(ops.convert_to_numpy(iterations))

    def _save(self, name):
        """Write a preset, and tell whether this process wrote it."""
        with distribution.scope_of(self.model):
            is_chief = distribution.is_chief()
        if is_chief:
            self.model.save_to_preset(os.path.join(self.folder, name))
        return is_chief

    def _save_best(self, value, names):
        if value is None:
            warnings.warn(
                f"`monitor` must be one of {names} to find the best preset. Received: "
                f"monitor={self.monitor!r}.",
                stacklevel=2,
            )
            return
        value, best = float(value), self._best()
        sign = 1 if self.mode == "max" else -1
        if math.isnan(value) or (best is not None and sign * value <= sign * best):
            return
        step = self._update()
        self._has_best = True
        if not self._save("best"):
            return
        path = os.path.join(self.folder, "best.json")
        best = {"monitor": self.monitor, "value": value, "step": step}
        write_text(path, json.dumps(best))

    def _best(self):
        """Read the value of this run's best preset; `None` if there is none."""
        path = os.path.join(self.folder, "best.json")
        if not os.path.isdir(os.path.join(self.folder, "best")):
            return None
        try:
            best = read_json(path, nan=True)
            same = best["monitor"] == self.monitor and (self._has_best or self._begin)
            return float(best["value"]) if same else None
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path!r} can't be read. Delete it to begin with no best preset."
            ) from error


def _is_positive(value):
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return is_int and value > 0
