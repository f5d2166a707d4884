"""Which files there are by paths and patterns, and what they hold."""

import glob
import os
from collections.abc import Iterable

from keras_bertfam.text_files.parts import COMPRESSED, Source
from keras_bertfam.types import Path

_FORMATS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
}


def find_files(names: Path | Iterable[Path], argument: str) -> list[Source]:
    """Find files by paths and patterns.

    Args:
        names: a path or glob pattern, or some of them.
        argument: the argument's name for the error.

    Returns:
        A list of `Source`, sorted by name, each once, also where patterns overlap.

    Raises:
        FileNotFoundError: if there is no file, or one is missing.
    """
    given = [names] if isinstance(names, (str, os.PathLike)) else [*names]
    items = [os.fspath(item) for item in given]
    found = [_paths(item) for item in items]
    paths = sorted({path for each in found for path in each})
    missing = [item for item, each in zip(items, found, strict=True) if not each]
    if missing or not paths:
        received = "none"
        if missing:  # not all of them, which may be texts where paths belong
            received = f"{len(missing)} not found, such as {missing[0][:200]!r}"
        raise FileNotFoundError(
            f"`{argument}` must name existing files, by paths or patterns. "
            f"Received: {received}."
        )
    return [source_of(path) for path in paths]


def _paths(path_or_pattern):
    if os.path.isfile(path_or_pattern):
        return [path_or_pattern]
    return [*filter(os.path.isfile, glob.glob(path_or_pattern, recursive=True))]


def source_of(path: str) -> Source:
    """Describe a file as it is now, with its size and the time of its last change."""
    stem, extension = os.path.splitext(path)
    if extension in COMPRESSED:
        extension = os.path.splitext(stem)[1]
    status = os.stat(path)
    kind = _FORMATS.get(extension, "text")
    return Source(path, kind, status.st_size, str(status.st_mtime_ns))
