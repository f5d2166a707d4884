"""Which files and datasets there are by names, and their parts of about equal size."""

import glob
import os
import re
from collections.abc import Iterable, Sequence

from keras_bertfam.corpora.preparing import tables
from keras_bertfam.corpora.preparing.parts import (
    COMPRESSED,
    Block,
    Part,
    Reading,
    Source,
)
from keras_bertfam.types import Path

# Parts of text are of about this many bytes: a 256th of all, between the two.
_LEAST, _MOST, _PARTS = 1 << 20, 1 << 26, 256
_FORMATS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
}
_SEPARATORS = {"json": re.compile(rb"\n"), "text": re.compile(rb"\n[ \t\r]*\n")}
_CHUNK = 1 << 16


def find_sources(
    names: Path | Sequence[Path], reading: Reading, argument: str = "sources"
) -> list[Source]:
    """The files and datasets that there are by their names.

    Args:
        names: of files, patterns of such names, `"tfds:NAME"` and `"hf:NAME"`.
        reading: `Reading`.
        argument: what the names are called in errors.

    Returns:
        A list of `Source`, sorted by name, none twice.

    Raises:
        FileNotFoundError: for a name or pattern of no file.
    """
    if isinstance(names, (str, os.PathLike)):
        names = [names]
    found: dict[str, Source] = {}
    for name in [os.fspath(name) for name in names]:
        if name.startswith(("tfds:", "hf:")):
            found[name] = tables.dataset_source(name, reading)
            continue
        paths = [name] if os.path.isfile(name) else glob.glob(name, recursive=True)
        files = [path for path in paths if os.path.isfile(path)]
        if not files:
            raise FileNotFoundError(
                f"`{argument}` must name files, by paths or patterns, or datasets, by "
                f"tfds:NAME or hf:NAME. Received: {name!r}, which is none."
            )
        found |= {path: _file(path) for path in files}
    if not found:
        raise FileNotFoundError(f"`{argument}` must name files. Received: none.")
    return [found[name] for name in sorted(found)]


def _file(path):
    stem, extension = os.path.splitext(path)
    if extension in COMPRESSED:
        extension = os.path.splitext(stem)[1]
    status = os.stat(path)
    kind = _FORMATS.get(extension, "text")
    return Source(path, kind, status.st_size, str(status.st_mtime_ns))


def check_unchanged(source: Source) -> None:
    """Raises a `ValueError` for a file that has changed since it was found.

    What was read of it would be a part of the old one and a part of the new one.
    """
    if source.kind in ("tfds", "hf"):
        return
    now = _file(source.name)
    if now != source:
        raise ValueError(
            f"{source.name} must stay as it is while it is read. Expected: "
            f"{source.bytes} bytes, as it was when all began. Received: {now.bytes}, "
            "changed since."
        )


def make_blocks(sources: Iterable[Source], reading: Reading) -> list[Block]:
    """Parts of sources, together of about equal size.

    Args:
        sources: `Source`s.
        reading: `Reading`.

    Returns:
        A list of tuples of `Part`s; it depends on the sources only.
    """
    sources = [*sources]
    total = sum(source.bytes for source in sources)
    size = min(max(total // _PARTS, _LEAST), _MOST)
    blocks: list[Block] = []
    small: list[Part] = []
    weight = 0
    for source in sources:
        parts = [*_parts(source, size, reading)]
        if len(parts) > 1:
            blocks += [(part,) for part in parts]
            continue
        if small and weight + source.bytes > size:
            blocks.append(tuple(small))
            small, weight = [], 0
        small += parts
        weight += source.bytes
    return blocks + [tuple(small)] if small else blocks


def _parts(source, size, reading):
    if source.kind == "parquet":
        return tables.row_groups(source, size)
    if source.kind in ("tfds", "hf"):
        return tables.examples(source, size, reading)
    whole = source.kind == "text" and reading.one_per_file
    if whole or source.compressed or source.bytes <= size:
        return [Part(source)]
    return _byte_ranges(source, size)


def _byte_ranges(source, size):
    """Parts of a file that end with a document."""
    with open(source.name, "rb") as file:
        start = 0
        while start < source.bytes:
            end = _next_document(file, start + size, _SEPARATORS[source.kind])
            end = source.bytes if end is None else end
            yield Part(source, start, end)
            start = end


def _next_document(file, at, separator):
    """Where the first document begins that follows a separator from `at` on."""
    file.seek(at)
    before = b""
    while chunk := file.read(_CHUNK):
        text = before + chunk
        if found := separator.search(text):
            return at + found.end()
        # Blanks at the end may be part of a separator.
        before = text[len(text.rstrip(b"\n \t\r")) :][-_CHUNK:]
        at += len(text) - len(before)
    return None
