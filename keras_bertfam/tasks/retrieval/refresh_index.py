"""Renew an index while its retriever is trained."""

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
    """Renews the index of a `PassageSearch` while its retriever is trained.

    After every `every` steps, all passages get vectors from the weights of that step.
    In the background another process computes them, while training continues with the
    old index until the new one is complete; when that is, depends on the machine. In
    the foreground training waits, so that the index depends only on the step. But
    batches that were made before still have passages of the old index, unless the data
    is read anew, as after an epoch.

    An epoch's logs get `index_staleness`: how many steps, on average, the index was
    older than the weights.

    An index is a folder such as `step-000000500` in `folder`, with the weights that
    made it. It appears whole or not at all. A run that is resumed, for example by
    `BackupAndResume`, takes the newest index that isn't from a later step. A run that
    begins anew needs another folder.

    If training is killed, so is the other process, and its unfinished index is never
    used. A resumed run sees the same indices as a run without a kill if each index is
    begun by the last step of an epoch, and `wait()` is called at the epoch's end.
    Otherwise they depend on the machine, as they do without a kill.

    Args:
        search: `keras_bertfam.tasks.PassageSearch` of the preprocessor.
        folder: path of a folder that only this run uses.
        every: int. Batches between two indices. Defaults to `500`.
        background: bool. Whether another process makes them. Defaults to `True`.
        batch_size: int. Passages encoded at once. Defaults to `32`.
        keep: int. How many of the newest indices are kept. Keep as many as a resumed
            run may go back. Defaults to `2`.
        environment: dict of environment variables for that process, such as
            `{"CUDA_VISIBLE_DEVICES": ""}`, or `None`.

    Raises:
        ValueError: for an argument out of its range; at the start of training, for a
            folder with indices of another run, or of later steps alone.
        RuntimeError: in training, if the process failed, with its message.

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
        self._stop()  # what a `fit()` that failed has left

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._step is None:  # callbacks that resume a run have done so by now
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
        self._stop()

    def _stop(self):
        """Leave off an index that is being made."""
        if self._process is not None:
            self._process.kill()
            self._ended()
            shutil.rmtree(self._work_of(self._making), ignore_errors=True)

    def wait(self) -> None:
        """Wait for the index that is being made, and use it."""
        if self._process is not None:
            self._process.wait()
            self._take_up()

    def _go_on(self, step):
        """Begin with the newest index that isn't of a later step."""
        os.makedirs(self.folder, exist_ok=True)
        for name in os.listdir(self.folder):
            if name.startswith("making-"):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        kept = self._kept()
        known = [number for number in kept if number <= step]
        if kept and (not known or not (step or self._is_from_here(known[-1]))):
            raise ValueError(
                "`folder` must be new for a run that begins anew. For a run that goes "
                "on it must have an index that isn't of a later step; `keep` tells how "
                f"many stay. Received: {self.folder!r}, with indices of the steps "
                f"{kept}, at step {step}."
            )
        for later in kept[len(known) :]:
            shutil.rmtree(self._path(later))
        if known:
            self._adopt(known[-1])
            return
        self.search.step = step
        self._save(self.search.index, step)

    def _is_from_here(self, step):
        """Tell whether an index was made by the weights that the retriever has now."""
        weights, own = self._weights_of(step), self.search.retriever.weights
        same = zip(weights, map(_array, own), strict=False)
        return len(weights) == len(own) and all(np.array_equal(*pair) for pair in same)

    def _adopt(self, step):
        index = Index.load(self._path(step))
        self.search.adopt(index, self._weights_of(step), step)

    def _weights_of(self, step):
        with np.load(os.path.join(self._path(step), _WEIGHTS)) as file:
            return [file[f"{number}"] for number in range(len(file.files))]

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
                f"The index of step {self._making} wasn't made: its process ended "
                f"with code {code} and wrote: {said or 'nothing'}."
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
    """Index the same passages with a retriever's current weights."""
    return Index.build(
        index.passages, retriever, index.kind, batch_size, **index.settings
    )


def write_index(index: Index, retriever: Model, path: Path) -> None:
    """Write an index and the weights that made it, whole or not at all.

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
    """End this process as soon as its standard input ends.

    Standard input is a pipe from the parent process. It closes when the parent ends,
    even if the parent is killed.
    """

    def wait():
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def make_index(work: str, old: str, new: str, batch_size: str) -> None:
    """Make an index with the retriever of one step, in the process beside training.

    Args:
        work: folder with the retriever.
        old: folder of an index of the same passages.
        new: folder to write.
        batch_size: a number, passages encoded at once.
    """
    retriever = keras.saving.load_model(os.path.join(work, _RETRIEVER), compile=False)
    index = _anew(Index.load(old), retriever, int(batch_size))
    write_index(index, retriever, new)
