"""Folders of unfinished work, each of one process, which go when the work is done."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator

from keras_bertfam.presets import locks

# A file that tells such a folder from one of a user's own.
MARK = ".unfinished"
_DONE = "-done-"


def check_working_folder(folder: str, output: str) -> None:
    """Raise an error unless a path is free, or has a folder of unfinished work.

    Args:
        folder: path.
        output: str, what a user has given as `output`.

    Raises:
        ValueError: for a file, or a folder with files of another origin.
    """
    if not os.path.lexists(folder):
        return
    found = os.listdir(folder) if os.path.isdir(folder) else ["a file of that name"]
    if found and MARK not in found:
        raise ValueError(
            f"`output` must leave {folder!r} free: the work in progress has its place "
            f"there. Received: {output!r}, and there is {sorted(found)[0]!r}. Move it, "
            f"or if it is of unfinished work, put an empty file {MARK!r} beside it."
        )


@contextlib.contextmanager
def working_folder(folder: str, output: str) -> Iterator[None]:
    """Make a folder for work in progress and lock it, unless another process holds it.

    Args:
        folder: path.
        output: str, what a user has given as `output`.

    Raises:
        ValueError: if another process holds it, and see `check_working_folder`.
    """
    check_working_folder(folder, output)
    os.makedirs(folder, exist_ok=True)
    # The folder itself is locked by what is written into it.
    descriptor = os.open(os.path.join(folder, MARK), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if locks.lock(descriptor, fcntl.LOCK_EX) is False:
            raise ValueError(
                f"`output` must be used by one run at a time. Received: {output!r}, "
                f"whose {folder} another process holds."
            )
        yield
    finally:
        locks.lock(descriptor, fcntl.LOCK_UN)  # also if a child process has it open
        os.close(descriptor)


def discard(folder: str) -> None:
    """Delete a working folder; killed meanwhile, it leaves none that looks complete."""
    parent, name = os.path.split(folder)
    prefix = f".{name}{_DONE}"
    for other in os.listdir(parent):
        if other.startswith(prefix):  # of a process that was killed here
            shutil.rmtree(os.path.join(parent, other), ignore_errors=True)
    done = tempfile.mkdtemp(prefix=prefix, dir=parent)
    os.rename(folder, done)  # which is empty
    shutil.rmtree(done)
