"""An index that follows its retriever while that is trained."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.callbacks.skipped_batches import is_skipped
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.optimizers.base import inner
from keras_bertfam.presets import folders
from keras_bertfam.retrieval.index import Index
from keras_bertfam.types import Model, Path

_STEP = re.compile(r"step-\d{9}")
_RETRIEVER, _WEIGHTS, _SAID = "retriever.keras", "weights.npz", "said.txt"
_WORK = (
    f"import sys; import {__name__} as refresh_index; "
    "refresh_index.end_with_parent(); refresh_index.make_index(*sys.argv[1:])"
)


@checked
class RefreshIndex(keras.callbacks.Callback):
    """Makes the index of a `PassageSearch` anew while its retriever is trained.

    After every so many steps all passages get vectors by the weights of that step. In
    the background that is the work of a process beside training, which goes on with
    the old index until the new one is there: when that is depends on the machine. In
    the foreground training waits, and what it sees depends on the step alone, if the
    data is read anew after it, as at an epoch's end: batches that are made ahead have
    passages of the index before.

    Logs of an epoch get `index_staleness`: for how many steps, on average, the weights
    had changed since those that the index is of.

    Indices are folders `step-000000500` in `folder`, with the weights that made them,
    as whole or not at all. A run that goes on, as by `BackupAndResume`, takes up the
    newest that isn't of a later step; one that begins anew needs another folder. If
    training is killed, so is the process, and what it was making is never taken up.
    The run that goes on sees what it would have seen without the kill if each index is
    begun by the last step of an epoch, and `wait()` is called at its end; else that
    depends on the machine, as it does without a kill.

    Args:
        search: `keras_bertfam.tasks.PassageSearch`, that of the preprocessor.
        folder: path of a folder for this run alone.
        every: int. Steps, that is batches, between two indices. Defaults to `500`.
        background: bool. Whether a process beside training makes them. Defaults to
            `True`.
        batch_size: int. Passages encoded at once. Defaults to `32`.
        keep: int. How many of the newest indices are kept. As many are needed as steps
            may be done again after a kill. Defaults to `2`.
        environment: dict of environment variables for that process, such as
            `{"CUDA_VISIBLE_DEVICES": ""}`, or `None`.

    Raises:
        ValueError: for an argument out of its range.
        RuntimeError: in training, if the process has failed, with what it said.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    retriever = keras_bertfam.tasks.DualEncoder(
        keras_bertfam.models.Backbone.from_preset("my_bert"),
        keras_bertfam.tasks.DualEncoderPreprocessor(tokenizer, sequence_length=32))
    index = keras_bertfam.retrieval.Index.build(["A passage."], retriever)
    search = keras_bertfam.tasks.PassageSearch(retriever, index)
    refresh = keras_bertfam.tasks.RefreshIndex(search, "my_indices", every=500)
    ```

    Reference: [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.3.
    """

    def __init__(
        self,
        search: Any,
        folder: Path,
        every: int = 500,
        background: bool = True,
        batch_size: int = 32,
        keep: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        check_at_least(1, every=every, batch_size=batch_size, keep=keep)
        self.search = search
        self.folder = os.fspath(folder)
        self.every = every
        self.background = background
        self.batch_size = batch_size
        self.keep = keep
        self.environment = dict(environment or {})
        self._process: Any = None
        self._making = 0  # the step whose index the process makes
        self._step: int | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._step = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._step is None:  # what resumes a run has done so by now
            batches = inner(self.model.optimizer)._iterations
            self._step = int(ops.convert_to_numpy(batches))
            self._go_on(self._step)
        self._seen, self._stale = 0, 0
        self._batches = 0

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        done, self._batches = batch + 1 - self._batches, batch + 1
        if self._step is None or is_skipped(self._model, batch):
            return
        before, self._step = self._step, self._step + done
        self._stale += done * (self._step - self.search.step)
        self._seen += done
        self._take_up()
        due = self._step // self.every > before // self.every
        if due and not self.background:
            self._make_here(self._step)
        elif due and self._process is None:  # otherwise the process is late
            self._begin(self._step)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None and self._seen:
            logs["index_staleness"] = self._stale / self._seen

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._process is not None:
            self._process.kill()
            self._ended()
            shutil.rmtree(self._work_of(self._making), ignore_errors=True)

    def wait(self) -> None:
        """Wait for the index that is being made, and go on with it."""
        if self._process is not None:
            self._process.wait()
            self._take_up()

    def _go_on(self, step):
        """Begin with the newest index that isn't of a later step."""
        os.makedirs(self.folder, exist_ok=True)
        for name in os.listdir(self.folder):
            if name.startswith("making-"):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        known = [number for number in self._kept() if number <= step]
        if known:
            self._adopt(known[-1])
            return
        self.search.step = step
        self._save(self.search.index, step)

    def _adopt(self, step):
        with np.load(os.path.join(self._path(step), _WEIGHTS)) as file:
            weights = [file[f"{number}"] for number in range(len(file.files))]
        self.search.adopt(Index.load(self._path(step)), weights, step)

    def _make_here(self, step):
        self.model  # noqa: B018 under JAX this writes the step's state
        encoder = self.search.copied_retriever()
        index = _anew(self.search.index, encoder, self.batch_size)
        self._save(index, step)
        self.search.adopt(index, None, step)

    def _save(self, index, step):
        write_index(index, self.search.retriever, self._path(step))
        for old in self._kept()[: -self.keep]:
            shutil.rmtree(self._path(old))

    def _begin(self, step):
        self.model  # noqa: B018 under JAX this writes the step's state
        work = self._work_of(step)
        os.makedirs(work)
        self.search.retriever.save(os.path.join(work, _RETRIEVER))
        paths = [work, self._path(self.search.step), self._path(step)]
        backend = {"KERAS_BACKEND": keras.backend.backend()}
        with open(os.path.join(work, _SAID), "w") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _WORK, *paths, str(self.batch_size)],
                env={**os.environ, **backend, **self.environment},
                stdin=subprocess.PIPE,  # see `end_with_parent`
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        self._making = step

    def _take_up(self):
        if self._process is None or self._process.poll() is None:
            return
        code = self._ended()
        work = self._work_of(self._making)
        if code:
            with open(os.path.join(work, _SAID), errors="replace") as file:
                said = file.read()[-2000:].strip()
            raise RuntimeError(
                f"The index of step {self._making} wasn't made: the process that makes "
                f"it ended with {code} and said: {said or 'nothing'}."
            )
        self._adopt(self._making)
        shutil.rmtree(work, ignore_errors=True)
        for old in self._kept()[: -self.keep]:
            shutil.rmtree(self._path(old))

    def _ended(self):
        """Wait for the end of the process, and return its code."""
        process, self._process = self._process, None
        process.stdin.close()
        return process.wait()

    def _kept(self):
        """List the steps of the indices in the folder, in order."""
        names = filter(_STEP.fullmatch, os.listdir(self.folder))
        return sorted(int(name.partition("-")[2]) for name in names)

    def _path(self, step):
        return os.path.join(self.folder, f"step-{step:09d}")

    def _work_of(self, step):
        return os.path.join(self.folder, f"making-{step:09d}")


def _anew(index: Index, retriever: Model, batch_size: int) -> Index:
    """Index the same passages by a retriever's weights of today."""
    return Index.build(
        index.passages, retriever, index.kind, batch_size, **index.settings
    )


def write_index(index: Index, retriever: Model, path: Path) -> None:
    """Write an index and the weights that made it, as a whole or not at all.

    Args:
        index: `Index`.
        retriever: `DualEncoder`.
        path: of the folder.
    """
    with folders.write_aside(path) as aside:
        index.save(aside)
        arrays = {str(i): _array(v) for i, v in enumerate(retriever.weights)}
        np.savez(os.path.join(aside, _WEIGHTS), **arrays)


def _array(variable):
    array = ops.convert_to_numpy(variable)  # numpy's files don't know bfloat16
    return array.astype("float32") if array.dtype.name == "bfloat16" else array


def end_with_parent() -> None:
    """End this process as soon as its standard input does, as that of a child.

    The other end of the pipe closes with the process that holds it, also where that is
    killed and can't say so.
    """

    def wait():
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def make_index(work: str, old: str, new: str, batch_size: str) -> None:
    """Make an index by a retriever of one step, in the process beside training.

    Args:
        work: folder with the retriever.
        old: folder of an index of the same passages.
        new: folder to write.
        batch_size: a number, passages encoded at once.
    """
    retriever = keras.saving.load_model(os.path.join(work, _RETRIEVER), compile=False)
    index = _anew(Index.load(old), retriever, int(batch_size))
    write_index(index, retriever, new)
