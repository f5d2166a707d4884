"""Files that appear only when they are complete and safely on the disk."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator

from keras_bertfam.types import Path


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[str]:
    """Give a temporary path beside `path` to write to, and move the file at the end.

    After an exception `path` is unchanged. The file is on the disk before it gets its
    name, and its name is on the disk before the next write. So a power failure leaves
    no file of zeros, and no file that refers to a missing one.

    Args:
        path: path of the file.

    Returns:
        A context manager that yields the path to write to.
    """
    folder, name = os.path.split(os.path.abspath(path))
    # Two machines, or two containers, may have processes of the same number.
    part = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        yield part
        flush(part)
        os.replace(part, path)
        flush(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def write_text(path: Path, text: str) -> None:
    """Write a text to a file in UTF-8; at any time the file has the old or new text."""
    with written_aside(path) as part, open(part, "w", encoding="utf-8") as file:
        file.write(text)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not os.path.isdir(path):  # some systems can't flush folders
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
