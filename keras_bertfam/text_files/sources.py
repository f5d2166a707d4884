"""Sources of documents: files found by paths and patterns, datasets, and parts."""

import dataclasses
import glob
import os
from collections.abc import Iterable

from keras_bertfam.types import Path

COMPRESSED = (".gz", ".zst")
MAX_LINE_LENGTH = 1 << 22


@dataclasses.dataclass(frozen=True)
class Reading:
    """Options for reading documents.

    Args:
        feature: the field of JSON, or the column, that has the text.
        split: the split of a TFDS or Hugging Face dataset.
        one_per_file: bool. Whether a text file is one document.
        encoding: str. Encoding of text and JSON, as Python names it.
        max_line_length: int. The most characters of a line.

    Raises:
        ValueError: for an unknown encoding, or a length below 1.
    """

    feature: str = "text"
    split: str = "train"
    one_per_file: bool = False
    encoding: str = "utf-8"
    max_line_length: int = MAX_LINE_LENGTH

    def __post_init__(self) -> None:
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise ValueError(
                "`encoding` must be a text encoding that Python knows, such as "
                f'"latin-1". Received: {self.encoding!r}.'
            ) from error
        if self.max_line_length < 1:
            raise ValueError(
                "`max_line_length` must be at least 1. "
                f"Received: {self.max_line_length}."
            )

    def size(self, text: str) -> int:
        """Count the bytes of a text within a file."""
        mark = "".encode(self.encoding)  # a byte-order mark, or nothing
        return len(text.encode(self.encoding)) - len(mark)


def compression_of(path: Path) -> str:
    """Give the suffix of a compressed file, in lower case; `""` for others."""
    suffix = os.path.splitext(path)[1].lower()
    return suffix if suffix in COMPRESSED else ""


def suffix_of(path: Path) -> str:
    """Give the suffix that tells the format of a file, in lower case.

    It is `".csv"` for `"a.csv"`, `"A.CSV"` and `"a.csv.gz"`.
    """
    name = os.fspath(path)
    name = name[: len(name) - len(compression_of(name))]
    return os.path.splitext(name)[1].lower()


@dataclasses.dataclass(frozen=True)
class Source:
    """A file or a dataset.

    Attributes:
        name: path, `"tfds:NAME"` or `"hf:NAME"`.
        kind: `"text"`, `"json"`, `"parquet"`, `"tfds"` or `"hf"`.
        bytes: int. Its size; 0 for a dataset of unknown size.
        stamp: a value that changes when the content changes.
    """

    name: str
    kind: str
    bytes: int
    stamp: str

    @property
    def compressed(self) -> bool:
        """bool: whether the file is compressed, and so readable only from the start."""
        return compression_of(self.name) != ""


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a source that holds whole documents.

    Attributes:
        source: `Source`.
        start: int. The first byte, row group or example.
        end: int. The byte, row group or example after the last; -1 for the source's
            end.
    """

    source: Source
    start: int = 0
    end: int = -1


Block = tuple[Part, ...]


_FORMATS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
}


def find_files(names: Path | Iterable[Path], argument: str) -> list[Source]:
    """Find files by paths and patterns.

    Args:
        names: a path or glob pattern, or several of them.
        argument: the argument's name for the error.

    Returns:
        A list of `Source`, sorted by name. Each file is there once, even if patterns
        overlap, or if it has several names.

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
        if missing:  # name one only: the list may be texts given in place of paths
            received = f"{len(missing)} not found, such as {missing[0][:200]!r}"
            if " " in missing[0] and not os.path.splitext(missing[0])[1]:
                received += (
                    ". Give texts by `tf.data.Dataset.from_tensor_slices(texts)`"
                )
        raise FileNotFoundError(
            f"`{argument}` must name existing files, by paths or patterns. "
            f"Received: {received}."
        )
    files: dict[str, str] = {}
    for path in paths:
        files.setdefault(os.path.realpath(path), path)
    return [source_of(path) for path in files.values()]


def _paths(path_or_pattern):
    if os.path.isfile(path_or_pattern):
        return [path_or_pattern]
    return [*filter(os.path.isfile, glob.glob(path_or_pattern, recursive=True))]


def source_of(path: str) -> Source:
    """Describe a file as it is now, with its size and the time of its last change."""
    status = os.stat(path)
    kind = _FORMATS.get(suffix_of(path), "text")
    return Source(path, kind, status.st_size, str(status.st_mtime_ns))
