"""Folders that are replaced in one operation, and read without a mixture of versions.

A new folder is written under another name beside its place. If a folder is there
already, its other files are linked into the new one. Then the two change places in one
operation of Linux. If a folder is replaced while it is read, reading starts over.
"""

import contextlib
import errno
import fcntl
import math
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from keras_bertfam.presets import inspection, locks, replacing
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.types import Path

_Result = TypeVar("_Result")

# Locks of another machine aren't visible here, so its leftovers stay.
_PREFIX = f".writing-{platform.node()}-"
_TRIES = 20
# Bytes of a number by its dtype, where these aren't 4.
_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2}
_BYTES |= dict.fromkeys(("int8", "uint8", "bool"), 1)

_being_written: set[str] = set()


@contextlib.contextmanager
def write_aside(path: Path) -> Iterator[str]:
    """Give a folder to write to, and move it to `path` at the end.

    A folder at `path` is replaced in one operation, so a kill at any moment leaves the
    old folder or the new one. Other files of the old folder stay, unless they belong to
    replaced ones: weights in another number of files, the task of the old backbone, the
    vocabulary of the old tokenizer. After an exception `path` is unchanged. Of two
    writers the last one wins. Calls can be nested: the inner call writes to the outer
    one's folder, or to a new folder in it. A program whose working directory is the old
    folder doesn't see the new one.

    Args:
        path: the folder to fill.

    Returns:
        A context manager that yields the path of the folder to write to.

    Raises:
        ValueError: see `check_destination`.
    """
    path = os.path.realpath(path)
    parent = os.path.dirname(path)
    if path in _being_written:
        yield path
        return
    if parent in _being_written:  # it is moved together with the outer folder
        os.makedirs(path, exist_ok=True)
        yield path
        return
    _check_folder(path)
    os.makedirs(parent, exist_ok=True)
    _remove_leftovers(parent)
    with contextlib.ExitStack() as stack:
        aside = _make_aside(parent, stack)
        _being_written.add(aside)
        try:
            yield aside
            replacing.put_in_place(aside, path)
            stack.close()  # Others may read the new folder before the old one goes.
        finally:
            _being_written.discard(aside)
            shutil.rmtree(aside, ignore_errors=True)


def check_room(folder: Path, weights: Iterable[Any], max_file_size: float) -> None:
    """Raise an error unless a folder's disk has room for weights.

    HDF5 can't recover from a failed write: it ends the process, at once or at the next
    file. So the room is reserved and released first, on systems that can do this.

    Args:
        folder: path of a folder.
        weights: Keras variables.
        max_file_size: float. Size of the largest file, in gigabytes.

    Raises:
        OSError: if there is no room.
    """
    left = 1 << 16  # bytes that HDF5 writes besides the weights
    left += sum(math.prod(w.shape) * _BYTES.get(w.dtype, 4) for w in weights)
    largest = max(int(max_file_size * 2**30), left // 64 + 1)  # not too many files
    with contextlib.ExitStack() as stack:
        while left > 0:
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            try:
                os.posix_fallocate(file.fileno(), 0, max(1, min(left, largest)))
            except AttributeError:  # not on macOS
                return
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                    return  # the file system can't reserve room
                raise
            left -= largest


@contextlib.contextmanager
def preset_aside(path: Path) -> Iterator[str]:
    """Give a folder to write a preset to, see `write_aside`.

    A warning names objects in it that `from_preset` won't load.

    Raises:
        ValueError: for the folder of a checkpoint of `transformers`.
    """
    inspection.check_no_export(path)
    with write_aside(path) as folder:
        yield folder
    from keras_bertfam.presets import untrusted_files  # it imports Keras

    path = os.path.realpath(path)
    if not _being_written.isdisjoint((path, os.path.dirname(path))):
        return
    try:
        for name in inspection.SERIALIZED_FILES:
            untrusted_files.read_config(path, name)
    except ValueError as error:
        warnings.warn(f"`from_preset` won't load this: {error}", stacklevel=4)


def check_preset_destination(path: Path) -> None:
    """Raise an error early if `preset_aside` can't write to a path."""
    check_destination(path)
    inspection.check_no_export(path)


def check_destination(path: Path) -> None:
    """Raise an error early if `write_aside` can't write to a path.

    Args:
        path: path of a new or existing folder.

    Raises:
        ValueError: if the path is a file, or a mount point, which can't be replaced.
        OSError: if nothing can be written in it or beside it.
    """
    path = os.path.realpath(path)
    _check_folder(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tempfile.TemporaryDirectory(prefix=_PREFIX, dir=os.path.dirname(path)).cleanup()


def _check_folder(path):
    kind = None
    if os.path.lexists(path) and not os.path.isdir(path):
        kind = "a file"
    elif os.path.ismount(path):
        kind = "a mount point: name a folder in it"
    if kind is not None:
        raise ValueError(
            f"The folder to write must be new, or a folder. Received: {path!r}, "
            f"which is {kind}."
        )
    if os.path.isdir(path) and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def read_whole(folder: Path, read: Callable[[], _Result]) -> _Result:
    """Read a folder by a function; read it again if the folder is replaced meanwhile.

    Writers wait while it reads. If the folder is replaced nevertheless, the function is
    called again.

    Args:
        folder: path. If it isn't a folder, the function is called once.
        read: function without arguments that reads the folder by its path.

    Returns:
        What `read` returns.

    Raises:
        CheckpointError: if the folder is replaced several times.
    """
    place = os.path.realpath(folder)
    aside = replacing.interim_path(place)
    for _ in range(_TRIES):
        if not os.path.isdir(folder):
            if not os.path.isdir(aside):
                return read()
            with contextlib.suppress(OSError), locks.locked_for_writers(place):
                replacing.bring_back(place)
        shared = locks.locked(folder, fcntl.LOCK_SH)
        with contextlib.suppress(locks.Replaced), shared as descriptor:
            try:
                result = read()
            except Exception:
                locks.check_place(descriptor, folder)
                raise
            locks.check_place(descriptor, folder)
            return result
    received = f"one that was replaced {_TRIES} times"
    if not os.path.exists(folder):
        received = f"none; a save that was cut off left it as {aside!r}: rename it"
    raise CheckpointError(
        f"There must be a folder at {os.fspath(folder)!r} that stays the same while it "
        f"is read. Received: {received}."
    )


def _make_aside(parent, stack):
    """Make a new folder that is locked while its writer lives."""
    while True:
        aside = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        # Another writer may take it for a leftover before it is locked.
        with contextlib.suppress(locks.Replaced):
            stack.enter_context(locks.locked(aside, fcntl.LOCK_EX))
            return aside


def _remove_leftovers(parent):
    """Remove the folders of writers that were killed."""
    for name in os.listdir(parent):
        if not name.startswith(_PREFIX):
            continue
        leftover = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # another process removes it
            descriptor = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY)
            if locks.lock(descriptor, fcntl.LOCK_EX):
                shutil.rmtree(leftover, ignore_errors=True)
            os.close(descriptor)
