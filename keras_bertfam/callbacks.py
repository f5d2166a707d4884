"""Callbacks that keep data, model and optimizer at the same point of a run."""

import json
import os
import zipfile
from itertools import zip_longest

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution


class SetStreamPosition(keras.callbacks.Callback):
    """Tells the data which pass over it, and which batch of that pass, is next.

    The tasks of this library add one to every `fit()`: each epoch then sees new
    masks, which depend on nothing but the seed, the pass and the batch.

    Without `steps_per_epoch` an epoch is one pass, and epoch `e` is pass `e`. With
    it, Keras goes on with one pass over several epochs and begins another where the
    data ends; only the first position is set then.

    Args:
        position: `keras_bertfam.layers.StreamPosition` of the data, or `None`
            for that of `model.preprocessor`, if there is one.
        steps_per_epoch: Int or `None`, as given to `fit()`.
        cardinality: Int, the number of batches in a pass, or
            `tf.data.UNKNOWN_CARDINALITY` (-2) or `tf.data.INFINITE_CARDINALITY`
            (-1), as `tf.data.Dataset.cardinality` says.
    """

    def __init__(self, position=None, steps_per_epoch=None, cardinality=-2):
        super().__init__()
        self.position = position
        self.steps_per_epoch = steps_per_epoch
        self.cardinality = cardinality
        self._point = None  # the pass, and the batch of it that began the epoch
        self._steps = 0  # batches of this epoch that are done

    def on_train_begin(self, logs=None):
        self._point = None

    def on_epoch_begin(self, epoch, logs=None):
        self._steps = 0
        if self._point is None or not self.steps_per_epoch:
            self._point = self._start_of(epoch)
            self._move(*self._point)

    def on_train_batch_end(self, batch, logs=None):
        self._steps = batch + 1

    def on_epoch_end(self, epoch, logs=None):
        number, batch = self._point
        batch += self._steps
        goes_on = self.steps_per_epoch and self._steps >= self.steps_per_epoch
        if goes_on and not 0 <= self.cardinality <= batch:
            self._point = (number, batch)
        else:
            self._point = (number + 1, 0)
        self._steps = 0

    def _start_of(self, epoch):
        if not self.steps_per_epoch or self.cardinality < 1:
            return epoch, 0
        epochs_per_pass = -(-self.cardinality // self.steps_per_epoch)
        number, epoch = divmod(epoch, epochs_per_pass)
        return number, epoch * self.steps_per_epoch

    def _data_position(self):
        if self.position is None:
            preprocessor = getattr(self.model, "preprocessor", None)
            self.position = getattr(preprocessor, "position", None)
        return self.position

    def _move(self, number, batch):
        position = self._data_position()
        if position is not None:
            position.set(number, batch)


class BackupAndResume(SetStreamPosition):
    """Makes a killed run continue to the losses of one that wasn't killed.

    Every `save_freq` batches, or at the end of each epoch, everything that
    decides about the next step goes to one file: model, optimizer, schedule,
    seeds of the model, metrics, and the position in the data. The file is
    written aside and renamed: a kill at any moment leaves a whole one. `fit()`
    of a new process goes on from it, in mid-epoch too; batches done before
    appear in the progress bar but are neither read nor trained on.
    `keras.callbacks.BackupAndRestore` restarts the epoch instead, with the
    weights of its middle, and loses the seeds.

    After a full run the file is deleted. State of other callbacks (patience of
    `EarlyStopping`) isn't kept. With `tf.distribute.MultiWorkerMirroredStrategy`
    the chief writes, so `backup_dir` must be shared by all workers.

    Batches done before are passed over by the data's `StreamPosition`. Where that
    can't be - data without one, which must give the same batches in each process,
    endless data (`Dataset.repeat()`) with `steps_per_epoch`, and PyTorch, whose
    loop reads first - they are read and thrown away.

    Args:
        backup_dir: Path of a local directory, made if it isn't there.
        save_freq: `"epoch"`, or int: the number of batches between backups.
        delete_checkpoint: Bool, whether to delete the backup after a full run.
        **kwargs: `position`, `steps_per_epoch` and `cardinality` of
            `SetStreamPosition`. `fit()` of this library's tasks sets the last
            two.

    Raises:
        ValueError: if `save_freq` is invalid, or, at the start of training, if
            the backup can't be read or doesn't fit the model, or if the data
            and `steps_per_epoch` are such that a run couldn't be resumed.

    Example:

    ```python
    model.fit(
        preprocessor.dataset(docs, batch_size=64),
        epochs=3,
        callbacks=[keras_bertfam.callbacks.BackupAndResume("backup", save_freq=500)],
    )
    ```
    """

    def __init__(self, backup_dir, save_freq="epoch", delete_checkpoint=True, **kwargs):
        super().__init__(**kwargs)
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError(
                '`save_freq` must be "epoch" or a positive integer. '
                f"Received: save_freq={save_freq!r}"
            )
        self.backup_dir = os.fspath(backup_dir)
        self.save_freq = save_freq
        self.delete_checkpoint = delete_checkpoint
        self._path = os.path.join(self.backup_dir, "backup.npz")
        self._resume = None  # what the backup says, until its epoch has begun
        self._train_function = None  # the real one, while batches are skipped
        self._begun = 0  # the batch that Keras's loop is at
        self._since_backup = 0

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._check_data()
        self._resume = self._restore() if os.path.exists(self._path) else None
        if self._resume:
            # The attribute that Keras's trainers read for this purpose.
            self.model._initial_epoch = self._resume["epoch"]

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        if self._resume is None:
            super().on_epoch_begin(epoch, logs)
            return
        resume, self._resume = self._resume, None
        self._steps = 0
        self._point = tuple(resume["point"])
        _assign(self.model.metrics_variables, resume["metrics"])
        number, first = self._point
        done = resume["batch"]
        endless = self.steps_per_epoch and self.cardinality == -1
        if self._data_position() is None or endless:
            self._move(number, 0)
            self._skip_batches(done, resume["logs"], read=done, read_before=first)
        elif _loop_reads_first():
            self._move(number, first)
            self._skip_batches(done, resume["logs"])
        else:
            self._move(number, first + done)
            self._skip_batches(done, resume["logs"])

    def _check_data(self):
        """Refuses, at the start, what couldn't be resumed."""
        steps = self.steps_per_epoch
        if not steps:
            return
        if 0 < self.cardinality != steps:
            raise ValueError(
                "Keras counts the batches of a pass from the start of `fit()`, so a "
                "pass of several epochs can't be resumed. Expected no "
                "`steps_per_epoch`, or endless data (`Dataset.repeat()`). Received: "
                f"steps_per_epoch={steps} and data of {self.cardinality} batches"
            )
        if self.cardinality == -1 and _loop_reads_first():
            raise ValueError(
                "Under PyTorch a run on endless data can't be resumed. Expected data "
                f"that ends, without `steps_per_epoch`. Received: "
                f"steps_per_epoch={steps}"
            )

    def _skip_batches(self, count, logs, read=0, read_before=0):
        """Replaces the train function by one that does nothing, for a while.

        Keras's loop then counts the batches that were done before the kill,
        which neither `initial_epoch` nor a shorter dataset makes it do.

        Args:
            count: Int, the number of batches to count without training.
            logs: What the progress bar is to show meanwhile.
            read: Int, how many of them are to be read from the data.
            read_before: Int, how many more are to be read before them.
        """
        # Under JAX, `self.model` in mid-step would take the step's state from it.
        model = self.model
        self._train_function = model.train_function
        to_read = 0 if _loop_reads_first() else read_before + read

        def skip(*args):
            nonlocal to_read
            for _ in range(to_read):
                next(args[-1])
            to_read = 0
            if self._begun >= count:
                model.train_function = self._train_function
                self._train_function = None
                return model.train_function(*args)
            return (logs, args[0]) if keras.backend.backend() == "jax" else logs

        model.train_function = skip

    def on_train_batch_begin(self, batch, logs=None):
        self._begun = batch

    def on_train_batch_end(self, batch, logs=None):
        done = batch + 1 - self._steps
        super().on_train_batch_end(batch, logs)
        if self._train_function is not None:
            return
        self._since_backup += done
        if self.save_freq != "epoch" and self._since_backup >= self.save_freq:
            self._save(self._epoch, batch + 1, logs)

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if self.save_freq == "epoch":
            self._save(epoch + 1, 0)

    def on_train_end(self, logs=None):
        self.model._initial_epoch = None
        if self.delete_checkpoint and distribution.is_chief():
            if os.path.exists(self._path):
                os.remove(self._path)
            if os.path.isdir(self.backup_dir) and not os.listdir(self.backup_dir):
                os.rmdir(self.backup_dir)

    def _save(self, epoch, batch, logs=None):
        self._since_backup = 0
        state = {
            "epoch": epoch,
            "batch": batch,
            "point": self._point,
            "logs": {name: float(value) for name, value in (logs or {}).items()},
        }
        arrays = {"state": np.array(json.dumps(state))}
        # Every worker reads: metrics are summed over the workers when read.
        for kind, variables in self._variables().items():
            for i, variable in enumerate(variables):
                arrays[f"{kind}_{i}"] = ops.convert_to_numpy(variable)
        if distribution.is_chief():
            os.makedirs(self.backup_dir, exist_ok=True)
            with open(f"{self._path}.part", "wb") as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{self._path}.part", self._path)

    def _restore(self):
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        try:
            with np.load(self._path) as file:
                arrays = dict(file)
            state = json.loads(str(arrays.pop("state")))
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"The backup {self._path!r} can't be read. Delete it to start "
                f"anew. The error was: {error}"
            ) from error
        saved = {"model": [], "optimizer": [], "metrics": []}
        for name, array in arrays.items():  # in the order they were written
            saved[name.split("_")[0]].append(array)
        variables = self._variables()
        for kind in ("model", "optimizer"):
            self._check_fit(kind, variables[kind], saved[kind])
            _assign(variables[kind], saved[kind])
        state["metrics"] = saved["metrics"] if state["batch"] else []
        return state

    def _variables(self):
        optimizer = self.model.optimizer
        return {
            "model": self.model.variables,
            "optimizer": optimizer.variables if optimizer is not None else [],
            "metrics": self.model.metrics_variables,
        }

    def _check_fit(self, kind, variables, arrays):
        expected = [tuple(variable.shape) for variable in variables]
        received = [array.shape for array in arrays]
        if expected == received:
            return
        differ = [pair for pair in zip_longest(expected, received) if len({*pair}) > 1]
        raise ValueError(
            f"The backup {self._path!r} is of another {kind}. Expected "
            f"{len(expected)} variables, received {len(received)}. The first shapes "
            f"to differ, expected and received: {differ[0]}. Delete the backup to "
            "start anew."
        )


def _assign(variables, arrays):
    # Metrics that Keras hasn't built yet have no variables to assign to.
    for variable, array in zip(variables, arrays, strict=False):
        if array.dtype.kind == "V":  # numpy's files don't know bfloat16
            array = array.view(keras.backend.standardize_dtype(variable.dtype))
        variable.assign(array)


def _loop_reads_first():
    """Whether Keras's loop takes a batch before it asks for the step."""
    return keras.backend.backend() == "torch"


def with_stream_position(callbacks, data, steps_per_epoch=None):
    """Adds what keeps the data's position to the callbacks of a `fit()`.

    Args:
        callbacks: A callback, a list of callbacks, or `None`.
        data: What `fit()` trains on.
        steps_per_epoch: Int or `None`, as given to `fit()`.

    Returns:
        A list of callbacks with exactly one `SetStreamPosition`, which knows how
        Keras will go through the data.
    """
    callbacks = keras.tree.flatten(callbacks) if callbacks is not None else []
    streams = [c for c in callbacks if isinstance(c, SetStreamPosition)]
    if len(streams) > 1:
        raise ValueError(
            "`callbacks` may hold one `BackupAndResume` or `SetStreamPosition`. "
            f"Received: {streams}"
        )
    if not streams:
        streams = [SetStreamPosition()]
        callbacks = [*streams, *callbacks]
    streams[0].steps_per_epoch = steps_per_epoch
    if hasattr(data, "cardinality"):
        streams[0].cardinality = int(data.cardinality())
    return callbacks
