"""Files that appear as a whole, and are on the disk before what vouches for them."""

import contextlib
import hashlib
import os
from collections.abc import Iterator

from keras_bertfam.types import Path


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[str]:
    """Give a path beside `path` to write to, and put the file in its place at the end.

    After an exception `path` is as it was. The file is on the disk before it has its
    name, and the name before what is written next: no power failure leaves a file of
    zeros, or one that tells of another that isn't there.

    Args:
        path: of the file.

    Returns:
        A context manager that yields the path to write to.
    """
    folder, name = os.path.split(os.path.abspath(path))
    part = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        yield part
        flush(part)
        os.replace(part, path)
        flush(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 to a file, which has the old one or the new one."""
    with written_aside(path) as part, open(part, "w", encoding="utf-8") as file:
        file.write(text)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not os.path.isdir(path):  # some systems can't do it for folders
            raise
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Wait until all files in a folder are on the disk, and their names."""
    for at, _, names in os.walk(folder):
        for name in names:
            flush(os.path.join(at, name))
        flush(at)


def file_digest(path: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
