"""Files that appear as a whole."""

import contextlib
import os
from collections.abc import Iterator

from keras_bertfam.types import Path


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[str]:
    """Give a path beside `path` to write to, and put the file in its place at the end.

    After an exception `path` is as it was.

    Args:
        path: of the file.

    Returns:
        A context manager that yields the path to write to.
    """
    folder, name = os.path.split(os.path.abspath(path))
    part = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def write_text(path: Path, text: str) -> None:
    """Writes a text in UTF-8 to a file, which has the old one or the new one."""
    with written_aside(path) as part, open(part, "w", encoding="utf-8") as file:
        file.write(text)
