"""Let a killed run continue where it was."""

import contextlib
import json
import os
import pathlib
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.callbacks.skipped_batches import LOOP_READS_FIRST, SkippedBatches
from keras_bertfam.callbacks.stream_position import SetStreamPosition
from keras_bertfam.corpora.manifest import tokenizer_digest
from keras_bertfam.parsing import parse_json
from keras_bertfam.types import Path


@checked
class BackupAndResume(SetStreamPosition):
    """Makes a killed run continue with the same losses as a run that wasn't killed.

    Every `save_freq` batches, every `minutes`, before a validation, and at the end of
    each epoch, one file gets everything that decides about the next step: model,
    optimizer, schedule, seeds of the model, metrics, and the position in the data. The
    file is written aside and then renamed, so that a kill at any moment leaves a whole
    file. `fit()` in a new process continues from it, also within an epoch, and prints a
    line about it. Batches that are done appear in the progress bar but aren't trained
    on again.

    Slurm and Kubernetes send SIGTERM some time before they kill a process. It ends
    `fit()` after the current step, with a backup and the exit code 143. With several
    processes it is enough that one of them gets the signal.

    `keras.callbacks.BackupAndRestore`, in contrast, restarts the epoch with the weights
    from its middle, and loses the seeds.

    After a full run the file is deleted. The state of other callbacks (such as the
    patience of `EarlyStopping`) isn't kept. What they change in the model or optimizer
    at the end of an epoch is, as tasks call this callback after all others; in the
    `fit()` of another model it belongs at the end of the list. With
    `tf.distribute.MultiWorkerMirroredStrategy`, or with several processes of JAX, the
    first process writes, so all processes must share `backup_dir`. Another number of
    processes can continue the run. There is one exception: with
    `MultiWorkerMirroredStrategy`, state that each replica keeps for itself, such as
    XLNet's memory, is saved only for the first process.

    The data's `StreamPosition` skips the batches that are done. In four cases they are
    read and thrown away instead: data without a position, which must give the same
    batches in each process; a preprocessor's dataset with `take()` or the like behind
    it; endless data (`Dataset.repeat()`) with `steps_per_epoch`, unless it is from a
    prepared corpus; and PyTorch, whose loop reads a batch first.
    Under PyTorch, a run with `steps_per_epoch` can be resumed only with datasets, in a
    `fit()` of this library's tasks.

    Args:
        backup_dir: Path of a local directory, which is made if it doesn't exist.
        save_freq: `"epoch"`, or int: the number of batches between backups.
        minutes: Float or `None`. The time between two backups; they are written at the
            end of a batch. Defaults to `5`.
        delete_checkpoint: Bool, whether to delete the backup after a full run.
        **kwargs: Arguments of `SetStreamPosition`.

    Raises:
        ValueError: if `save_freq` or `minutes` is invalid; at the start of training, if
            the backup can't be read or belongs to another model or vocabulary, or if
            the data couldn't be resumed.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.fit(
        model.preprocessor.dataset(documents, batch_size=64),
        epochs=3,
        callbacks=[keras_bertfam.callbacks.BackupAndResume("backup", save_freq=500)],
    )
    ```
    """

    def __init__(
        self,
        backup_dir: Path,
        save_freq: int | str = "epoch",
        delete_checkpoint: bool = True,
        minutes: float | None = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError(
                '`save_freq` must be "epoch" or a positive integer. '
                f"Received: save_freq={save_freq!r}."
            )
        if minutes is not None and not minutes > 0:
            raise ValueError(
                f"`minutes` must be a positive number or `None`. Received: {minutes!r}."
            )
        self.backup_dir = os.fspath(backup_dir)
        self.minutes = minutes
        self.save_freq = save_freq
        self.delete_checkpoint = delete_checkpoint
        self._path = os.path.join(self.backup_dir, "backup.npz")
        # A task's `fit()` puts the `FirstBatch` of data that can begin later here.
        self.first_batch: Any = None
        self._resume = None  # the backup's contents, until its epoch has begun
        self._skipped = None  # `SkippedBatches` of a resumed epoch
        self._since_backup = 0
        self._logs: Any = None  # of the last batch
        self._termination = Termination()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.release()  # what a `fit()` that failed has left
        super().on_train_begin(logs)
        self._check_data()
        self._tokenizer = _digest_of_tokenizer(self.model)
        with distribution.scope_of(self.model):
            self._resume = self._restore() if os.path.exists(self._path) else None
        if self._resume:
            # The attribute that Keras's trainers read for this purpose.
            self.model._initial_epoch = self._resume["epoch"]
            if self.params.get("verbose", 1):
                place = self._place()
                self._say(
                    f"Continuing at {place}, from the backup in {self._path}. Batches "
                    "before it are shown, but not trained on again."
                )
        self._last_time = time.monotonic()
        self._termination.start()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        if self._resume is None:
            if (
                self.first_batch is not None
            ):  # later epochs begin with their first batch
                self.first_batch.set(0)
            super().on_epoch_begin(epoch, logs)
            return
        resume, self._resume = self._resume, None
        self._steps = 0
        self._point = number, first = tuple(resume["point"])
        with distribution.scope_of(self.model):
            for name, variable in self._variables("metrics").items():
                # Metrics that weren't built yet have nothing to restore.
                if resume["batch"] and name in resume["arrays"]:
                    _assign(variable, resume["arrays"][name])
        done, to_read = resume["batch"], 0
        # The batches that the loop reads and `SkippedBatches` throws away come from the
        # data.
        begin = first if LOOP_READS_FIRST else first + done
        endless = self.steps_per_epoch and self.cardinality == -1
        positioned = resume["positioned"] and self.keeps_batches
        batches = getattr(self._data_position(), "batches", None)
        if endless and positioned and batches:
            self._move(*divmod(number * batches + begin, batches))
        elif endless or not positioned:
            self._move(0 if self.is_cached else number, 0)
            to_read = begin
        else:
            self._move(number, begin)
        if self.first_batch is not None:
            self.first_batch.set(to_read)
        self._skipped = SkippedBatches(self.model, done, resume["logs"], to_read)

    def _check_data(self):
        """Raise a `ValueError` at the start for data that couldn't be resumed."""
        steps = self.steps_per_epoch
        # Keras counts an epoch's batches from the start of `fit()`.
        split = 0 < self.cardinality != steps
        fixed = LOOP_READS_FIRST and self.first_batch is None
        if steps and (split or (self.cardinality < 0 and fixed)):
            raise ValueError(
                "A run on such data can't be resumed. Expected data that ends and no "
                "`steps_per_epoch`, or endless data (`Dataset.repeat()`), under "
                "PyTorch a dataset of one of this library's tasks. Received: "
                f"steps_per_epoch={steps} and data of {self.cardinality} batches "
                "(-1: endless, -2: unknown)."
            )

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self._skipped is not None:
            self._skipped.batch = batch

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        done = batch + 1 - self._steps
        super().on_train_batch_end(batch, logs)
        self._logs = logs
        is_late, is_told = self._asked()
        if self._skipped is not None and self._skipped.active:
            if is_told:  # the backup belongs to a later batch
                self._end()
            return
        self._since_backup += done
        every = self.save_freq
        is_due = isinstance(every, int) and self._since_backup >= every
        if is_due or is_late or is_told:
            self._save(self._epoch, batch + 1, logs)
        if is_told:
            self._end()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        # Within `fit()`: the epoch's batches are done, but not its validation.
        skips = self._skipped is not None and self._skipped.active
        if self._point is not None and not skips:
            self._save(self._epoch, self._steps, self._logs)

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._point is not None and self._asked()[1]:
            self._end()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._skipped is not None:  # this may be all batches of an epoch
            self._skipped.end()
            self._skipped = None
        # Always: callbacks may have changed something since the last batch's backup.
        self._save(epoch + 1, 0)
        if self._asked()[1]:
            self._end()

    def _asked(self):
        """Tell whether a backup is due by the clock, and whether the run must end."""
        is_late = (
            self.minutes is not None
            and time.monotonic() - self._last_time >= 60 * self.minutes
        )
        told = float(self._termination.received)
        asked = distribution.sum_over_processes(self.model, [float(is_late), told])
        return [bool(value) for value in asked]

    def _end(self):
        self._termination.stop()
        # A process that left now would break what the first process still does.
        distribution.sum_over_processes(self.model, [0.0])
        self._say(
            f"SIGTERM: stopped at {self._place()}. The backup in {self._path} is "
            "complete: a run that is started again can continue from it."
        )
        raise SystemExit(EXIT_CODE)

    def _place(self):
        """Name the next step of the run, for the screen."""
        epoch, batch = self._saved
        per_epoch = self.params.get("steps")
        if per_epoch is None:
            return f"epoch {epoch + 1}, step {batch:,}"
        total = per_epoch * self.params.get("epochs", 1)
        return f"step {epoch * per_epoch + batch:,} of {total:,}"

    def _say(self, text):
        with distribution.scope_of(self.model):
            is_chief = distribution.is_chief()
        if is_chief:
            print(text, file=sys.stderr, flush=True)

    def release(self) -> None:
        """Undo what concerns this `fit()` alone, which may have failed."""
        self._termination.stop()
        self._point = None
        if self._skipped is not None:
            self._skipped.end()
            self._skipped = None
        if self._model is not None:
            self._model._initial_epoch = None

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.release()
        with distribution.scope_of(self.model):
            is_chief = distribution.is_chief()
        if self.delete_checkpoint and is_chief:
            pathlib.Path(self._path).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # the directory may hold other files
                os.rmdir(self.backup_dir)

    def _save(self, epoch, batch, logs=None):
        self._since_backup = 0
        self._last_time = time.monotonic()
        self._saved = epoch, batch
        position = self._data_position()
        state = {
            "epoch": epoch,
            "batch": batch,
            "point": self._point,
            # Data that reads its position also changes it when an epoch begins.
            "positioned": position is not None and position.epoch > self._set_pass,
            "logs": {name: float(value) for name, value in (logs or {}).items()},
            "tokenizer": self._tokenizer,
        }
        # Every worker reads them: metrics are summed over the workers when they are
        # read.
        with distribution.scope_of(self.model):
            variables = self._variables("model", "optimizer", "metrics")
            arrays = {n: _array(v) for n, v in variables.items()}
            is_chief = distribution.is_chief()
        if is_chief:
            self._write({"state": np.array(json.dumps(state)), **arrays})

    def _write(self, arrays):
        part = f"{self._path}.part"
        try:
            os.makedirs(self.backup_dir, exist_ok=True)
            with open(part, "wb") as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(part)
            raise OSError(
                error.errno,
                f"The backup {self._path!r} can't be written; an older one stays "
                f"unchanged. {error.strerror or error}",
            ) from error

    def _restore(self):
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        try:
            with open(self._path, "rb") as file:
                arrays = dict(np.load(file))
            state = parse_json(str(arrays.pop("state")), nan=True)
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            message = f"The backup {self._path!r} can't be read. Delete it to restart."
            raise ValueError(f"{message} The error was: {error}") from error
        variables = self._variables("model", "optimizer")
        expected = {name: _shape(v) for name, v in variables.items()}
        received = {n: a.shape for n, a in arrays.items() if n[:7] != "metrics"}
        if expected != received:
            differ = sorted(name for name, _ in expected.items() ^ received.items())
            raise ValueError(
                f"The backup {self._path!r} is of another model or optimizer. "
                f"Expected for {differ[0]!r} the shape {expected.get(differ[0])}. "
                f"Received: {received.get(differ[0])}. Delete it to start anew."
            )
        if state.get("tokenizer", self._tokenizer) != self._tokenizer:
            raise ValueError(
                f"The backup {self._path!r} is of another tokenizer: the ids of its "
                "run mean other tokens. Give the tokenizer of that run; one that is "
                "learned from text needs the same text. Or delete the backup to start "
                "anew."
            )
        for name, variable in variables.items():
            _assign(variable, arrays[name])
        self._saved = state["epoch"], state["batch"]
        return {**state, "arrays": arrays}

    def _variables(self, *kinds):
        model = self.model
        groups = {
            "model": model.variables,
            "optimizer": model.optimizer.variables if model.optimizer else [],
            "metrics": model.metrics_variables,
        }
        return {f"{k}_{i}": v for k in kinds for i, v in enumerate(groups[k])}


@contextlib.contextmanager
def released(callbacks: Iterable[keras.callbacks.Callback]) -> Iterator[None]:
    """Release each `BackupAndResume` when a `fit()` ends, also after an error."""
    try:
        yield
    finally:
        for callback in callbacks:
            if isinstance(callback, BackupAndResume):
                callback.release()


def _digest_of_tokenizer(model):
    tokenizer = getattr(getattr(model, "preprocessor", None), "tokenizer", None)
    return tokenizer_digest(tokenizer) if hasattr(tokenizer, "save_assets") else None


def _array(variable):
    """Read the values of a variable; one for each replica, if each has its own."""
    parts = distribution.own_variables(variable)
    if not parts:
        return distribution.as_numpy(variable)
    return np.stack([ops.convert_to_numpy(part) for part in parts])


def _shape(variable):
    count = len(distribution.own_variables(variable))
    return (count, *variable.shape) if count else tuple(variable.shape)


def _assign(variable, array):
    if array.dtype.kind == "V":  # NumPy's files have no bfloat16
        array = array.view(keras.backend.standardize_dtype(variable.dtype))
    parts = distribution.own_variables(variable)
    pairs = zip(parts, array, strict=True) if parts else [(variable, array)]
    for part, value in pairs:
        part.assign(value)


# Shells and schedulers read this code as "ended by SIGTERM".
EXIT_CODE = 128 + signal.SIGTERM


class Termination:
    """Note SIGTERM between `start()` and `stop()` instead of ending the process.

    A second SIGTERM ends the process at once. In runs of several processes TensorFlow
    and JAX ignore the signal, by a handler that they have set before.

    Attributes:
        received: bool. Whether the signal has come.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: Any = None
        self._watches = False

    def start(self) -> None:
        """Start to watch, if this is the main thread; Python has signals only there."""
        self.received = False
        if not self._watches and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
            self._watches = True

    def stop(self) -> None:
        """Restore the previous handler of the signal."""
        if self._watches:
            self._watches = False
            # `None` is a handler that isn't Python's, such as TensorFlow's.
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            self.stop()
            signal.raise_signal(signal.SIGTERM)
        self.received = True


def end_at_once() -> None:
    """Let SIGTERM end this process again, if a framework has made it ignored."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def progress_of_run(
    callbacks: Sequence[keras.callbacks.Callback], verbose: Any
) -> list[keras.callbacks.Callback]:
    """Give a progress bar for a run that may be resumed, if it has none yet.

    Args:
        callbacks: the callbacks of a `fit()`.
        verbose: as in `fit()`.
    """
    bars = keras.callbacks.ProgbarLogger
    has_bar = any(isinstance(callback, bars) for callback in callbacks)
    goes_on = any(isinstance(callback, BackupAndResume) for callback in callbacks)
    return [ProgressOfThisRun()] if verbose and goes_on and not has_bar else []


class ProgressOfThisRun(keras.callbacks.ProgbarLogger):
    """Keras's progress bar, with the time per step of this run's steps only.

    Keras divides by all steps of an epoch, also by those from before a kill.
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
