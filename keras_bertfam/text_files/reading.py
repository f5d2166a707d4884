"""Documents and lines of files, whatever their format, compression and encoding."""

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from keras_bertfam.text_files.compression import opened
from keras_bertfam.text_files.parquet import check_column, parquet_values
from keras_bertfam.text_files.parts import Part, Reading, Source
from keras_bertfam.text_files.white_space import WHITE_SPACE

# What a piece of a document begins with that goes on with the piece before: a zero
# byte, which tokenizers drop or take for a space.
CONTINUES = "\0"

_BYTE_ORDER_MARK = "\ufeff"
_CHUNK, _HEAD = 1 << 20, 1 << 16
_LINE_ENDS = {"text": re.compile(r"\r\n?|\n"), "json": re.compile(r"\n")}

# How files begin that are no text. UTF-16 may be asked for.
_OTHERS = {
    b"\x1f\x8b": "gzip without the ending .gz",
    b"\x28\xb5\x2f\xfd": "Zstandard without the ending .zst",
    b"PK\x03\x04": "a ZIP archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PAR1": "Parquet without the ending .parquet",
}


def check_head(source: Source, reading: Reading) -> None:
    """Refuse at once what the beginning of a file shows.

    Raises:
        ValueError: for a file that begins with something else than its name and
            `reading` say.
    """
    if source.kind == "parquet":
        check_column(source, reading)
    else:
        next(_decoded(Part(source), reading, _HEAD))


def read_documents(
    part: Part, reading: Reading, max_bytes: float = float("inf")
) -> Iterator[str]:
    """The documents of a part of a file.

    In text files, blank lines stand between documents. Lines end as on any system, and
    have no white space around them; blank ones are left out.

    Args:
        part: `Part`.
        reading: `Reading`.
        max_bytes: a document is cut at the end of the line with which it gets longer
            than this. Pieces but the first begin with `CONTINUES`.

    Yields:
        Strings that aren't empty.

    Raises:
        OSError: if a file can't be read.
        ValueError: for text of another encoding, a file of another format, or a line
            that is too long: which, and where in it.
    """
    return _pieces(_lines(part, reading), max_bytes)


def read_lines(part: Part, reading: Reading) -> Iterator[str]:
    """The lines of the documents of `read_documents`, with its errors."""
    for lines in _lines(part, reading):
        yield from filter(None, lines)


def tidy_lines(value: Any, part: Part, reading: Reading, place: str) -> list[str]:
    """The lines of a text that is a value of a table, as text files give them.

    Args:
        value: str, bytes in UTF-8, or `None`.
        part: `Part`, for the error.
        reading: `Reading`.
        place: where the value is, for the error.

    Returns:
        A list of strings without white space around them, of which some may be blank.

    Raises:
        ValueError: for a value that isn't text, or a line that is too long.
    """
    name = part.source.name
    if value is None:
        return []
    try:
        if isinstance(value, bytes):
            value = value.decode()
        value.encode()
    except UnicodeError as error:
        raise ValueError(
            f"{name} must be UTF-8. Received, in the text of {place}: {error}."
        ) from error
    except AttributeError:
        raise ValueError(
            f"{name} must have texts as {reading.feature!r}, `feature`. Received, in "
            f"{place}: {value!r}."
        ) from None
    lines = _split_lines(value)
    if _longest(lines) > reading.max_line_length:
        raise _too_long(part, reading, f"in the text of {place}")
    return [line.strip(WHITE_SPACE) for line in lines]


def _pieces(blocks: Iterable[list[str]], max_bytes: float) -> Iterator[str]:
    """Documents, or pieces of them, of lines; an empty line ends a document."""
    lines: list[str] = []
    size, before = 0, ""
    for block in blocks:
        for line in block:
            if line:
                lines.append(line)
                size += len(line) if line.isascii() else len(line.encode())
                if size > max_bytes:
                    yield before + "\n".join(lines)
                    lines, size, before = [], 0, CONTINUES
            elif lines or before:
                if lines:
                    yield before + "\n".join(lines)
                lines, size, before = [], 0, ""


def _lines(part, reading):
    """Lists of lines without white space around them, an empty one at documents' ends.

    It ends the last document, too.
    """
    kind = part.source.kind
    if kind == "text":
        for _, found in _blocks(part, reading):
            lines = [line.strip(WHITE_SPACE) for line in found]
            yield [*filter(None, lines)] if reading.one_per_file else lines
        yield [""]
        return
    if kind == "json":
        values = _json_values(part, reading)
    else:
        rows = enumerate(parquet_values(part, reading))
        values = ((f"row {row}", value) for row, value in rows)
    for place, value in values:
        yield [*filter(None, tidy_lines(value, part, reading, place)), ""]


def _json_values(part, reading):
    name = part.source.name
    for at, lines in _blocks(part, reading):
        for line in lines:
            place = f"the line at byte {at}"
            at += reading.size(line + "\n")
            if not line.strip(WHITE_SPACE):
                continue
            try:
                value = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                raise ValueError(
                    f"{name} must have a JSON object a line. Received, in {place}: "
                    f"{error}."
                ) from error
            if not isinstance(value, dict) or reading.feature not in value:
                raise ValueError(
                    f"{name} must have objects with the field {reading.feature!r}, "
                    f"`feature`. Received, in {place}: {line[:80]!r}."
                )
            yield place, value[reading.feature]


def _blocks(part, reading):
    """Lists of whole lines, about a MiB at once, and the byte where they begin."""
    kind = part.source.kind
    rest: list[str] = []  # of a line whose end is still to come
    begin = None
    for text, end, last in _decoded(part, reading, _CHUNK):
        if begin is None:
            begin = end - reading.size(text)
            if not begin and text.startswith(_BYTE_ORDER_MARK):
                begin, text = reading.size(_BYTE_ORDER_MARK), text[1:]
        cut = len(text) if last else text.rfind("\n") + 1
        if not cut and kind == "text":
            cut = text.rfind("\r", 0, -1) + 1  # the last may be half of an end
        if cut or last:
            block = "".join([*rest, text[:cut]])
            lines = _split_lines(block) if kind == "text" else block.split("\n")
            if _longest(lines) > reading.max_line_length:
                at = begin + reading.size(_before_longest(block, kind))
                raise _too_long(part, reading, f"at byte {at}")
            if not last:
                lines.pop()  # what follows the last end
            yield begin, lines
            begin, rest = end - reading.size(text[cut:]), []
        rest.append(text[cut:])
        if sum(map(len, rest)) > reading.max_line_length:
            raise _too_long(part, reading, f"at byte {begin}")


def _split_lines(text):
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.split("\n")


def _longest(lines):
    return max(map(len, lines))


def _too_long(part, reading, place):
    return ValueError(
        f"{part.source.name} must have lines of at most {reading.max_line_length} "
        f"characters, `max_line_length`. Received a longer one, {place}."
    )


def _before_longest(block, kind):
    ends = [0, *(found.end() for found in _LINE_ENDS[kind].finditer(block)), len(block)]
    longest = max(itertools.pairwise(ends), key=lambda pair: pair[1] - pair[0])
    return block[: longest[0]]


def _decoded(part, reading, chunk_size):
    """What is decoded, the byte up to which it has been, and whether it is the last."""
    source = part.source
    decoder = codecs.getincrementaldecoder(reading.encoding)()
    with opened(source) as file:
        at = file.seek(part.start) if part.start else 0
        while True:
            size = chunk_size if part.end < 0 else min(chunk_size, part.end - at)
            chunk = _read(file, size, source, at)
            if not at:
                _check_format(chunk, source)
            before = len(decoder.getstate()[0])
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:
                raise _undecoded(error, source, reading, at - before) from error
            at += len(chunk)
            yield text, at - len(decoder.getstate()[0]), not chunk
            if not chunk:
                return


def _read(file, size, source, at):
    try:
        return file.read(size)
    except Exception as error:  # each library has its own
        if not source.compressed:
            raise
        raise ValueError(
            f"{source.name} must be a whole compressed file. Received, after {at} "
            f"bytes of text: {error}"
        ) from error


def _check_format(head, source):
    for mark, kind in _OTHERS.items():
        if head.startswith(mark):
            raise ValueError(
                f"{source.name} must be text, or have the ending of what it is. "
                f"Received: what begins as {kind}."
            )


def _undecoded(error, source, reading, at):
    found = str(error)
    if isinstance(error, UnicodeDecodeError):
        at += error.start
        found = f"{error.object[error.start : error.start + 4]!r}, {error.reason}"
    return ValueError(
        f"{source.name} must be text in {reading.encoding.upper()}, `encoding`. "
        f"Received, at byte {at}: {found}."
    )
