"""Locks on folders, and checks that a folder is still where it was opened."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator

from keras_bertfam.types import Path

# The most seconds to wait for readers, and for writers.
_PATIENCE, _PATIENCE_WITH_WRITERS = 2, 60


class Replaced(OSError):
    """Raised if an open folder isn't at its path any more."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ENOENT, "The folder was moved or replaced.", path)


def check_place(descriptor: int, path: Path) -> None:
    """Raise `Replaced` unless the open folder is at the path."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return
    raise Replaced(path)


@contextlib.contextmanager
def locked(folder: Path, kind: int, patience: float | None = None) -> Iterator[int]:
    """Open a folder and lock it, if that is possible within some seconds.

    The system frees a lock when its process ends, also after a crash.

    Args:
        folder: path.
        kind: `fcntl.LOCK_SH` or `fcntl.LOCK_EX`.
        patience: float, the most seconds to wait. `None` means the time for readers.

    Returns:
        A context manager that yields the folder's descriptor.

    Raises:
        Replaced: if the folder isn't at its path any more.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError as error:
        raise Replaced(folder) from error
    try:
        until = time.monotonic() + (_PATIENCE if patience is None else patience)
        while lock(descriptor, kind) is False and time.monotonic() < until:
            time.sleep(0.01)
        check_place(descriptor, folder)
        yield descriptor
    finally:
        lock(descriptor, fcntl.LOCK_UN)  # also if a child process has it open
        os.close(descriptor)


def locked_for_writers(path: Path) -> contextlib.AbstractContextManager[int]:
    """Keep other writers away from the same path."""
    return locked(os.path.dirname(path), fcntl.LOCK_EX, _PATIENCE_WITH_WRITERS)


def lock(descriptor: int, kind: int) -> bool | None:
    """Try to lock a file; tell whether it worked, `None` on systems without locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
