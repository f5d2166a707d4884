"""Documents and lines of files in any format, compression and encoding."""

import codecs
import contextlib
import gzip
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from keras_bertfam.parsing import parse_json
from keras_bertfam.text_files.parquet import check_column, parquet_values
from keras_bertfam.text_files.sources import (
    Part,
    Reading,
    Source,
    compression_of,
)

# The beginning of a piece that continues a document's piece before: a zero byte, which
# tokenizers drop or take for a space.
CONTINUES = "\0"

_BYTE_ORDER_MARK = "\ufeff"
_CHUNK, _HEAD = 1 << 20, 1 << 16
_LINE_ENDS = {"text": re.compile(r"\r\n?|\n"), "json": re.compile(r"\n")}

# The beginnings of files that aren't text. UTF-16 is allowed if it is the `encoding`.
_OTHERS = {
    b"\x1f\x8b": "gzip without the ending .gz",
    b"\x28\xb5\x2f\xfd": "Zstandard without the ending .zst",
    b"PK\x03\x04": "a ZIP archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PAR1": "Parquet without the ending .parquet",
}


def check_head(source: Source, reading: Reading) -> None:
    """Check the beginning of a file, so that a wrong file is refused at once.

    Raises:
        ValueError: for a file whose beginning doesn't fit its name and `reading`.
    """
    if source.kind == "parquet":
        check_column(source, reading)
    elif source.kind == "json":
        next(_texts(Part(source), reading), None)
    else:
        next(_decoded(Part(source), reading, _HEAD))


def read_documents(
    part: Part, reading: Reading, max_bytes: float = float("inf")
) -> Iterator[str]:
    """Read the documents of a part of a file.

    In text files, blank lines separate documents. Lines can end as on any system. White
    space around lines is removed, and blank lines are left out.

    Args:
        part: `Part`.
        reading: `Reading`.
        max_bytes: a longer document is cut into pieces: each piece ends with the first
            line by which it exceeds this size. All pieces except the first begin with
            `CONTINUES`.

    Yields:
        Strings that aren't empty.

    Raises:
        OSError: if a file can't be read.
        ValueError: for text in another encoding, a file in another format, or a line
            that is too long. The error names the file and the place in it.
    """
    return _pieces(_texts(part, reading), max_bytes)


def read_lines(part: Part, reading: Reading) -> Iterator[str]:
    """Read the lines of documents; see `read_documents`."""
    for text in _texts(part, reading):
        yield from filter(None, text.split("\n"))


def read_every_line(part: Part, reading: Reading) -> Iterator[str]:
    """Read the lines of a part of a file, blank ones too, with the same errors.

    Of JSON and Parquet, a text is a line, whose own line ends become spaces.
    """
    if part.source.kind != "text":
        for text in _texts(part, reading):
            yield text.rstrip("\n").replace("\n", " ")
        return
    line = None  # what follows the last end is no line
    for _, lines in _blocks(part, reading, _split_aligned):
        for following in lines:
            if line is not None:
                yield line
            line = following.strip(WHITE_SPACE)
    if line:
        yield line


def tidy_text(value: Any, part: Part, reading: Reading, place: str) -> str:
    """Bring a value of a table into the form of a document of a text file.

    Args:
        value: str, bytes in UTF-8, or `None`.
        part: `Part`, for the error.
        reading: `Reading`.
        place: the place of the value, for the error.

    Returns:
        Lines without white space around them, and without blank lines.

    Raises:
        ValueError: for a value that isn't text, or a line that is too long.
    """
    name = part.source.name
    if value is None:
        return ""
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
            f"{name} must have texts in {reading.feature!r}, the `feature`. Received, "
            f"in {place}: {value!r}."
        ) from None
    lines = _split_lines(value)
    if _is_too_long(value, lines, reading):
        raise _too_long(part, reading, f"in the text of {place}")
    return "\n".join(filter(None, (line.strip(WHITE_SPACE) for line in lines)))


def _pieces(texts: Iterable[str], max_bytes: float) -> Iterator[str]:
    """Join texts of whole lines to documents, or to pieces of documents."""
    parts: list[str] = []  # of a document that isn't complete yet
    size, before, line_end = 0, "", "\n"
    for text in texts:
        text = line_end + text
        line_end = "\n\n" if text.endswith("\n") else "\n"  # after a blank line
        for number, part in enumerate(text.split("\n\n")):
            if number:
                if parts:
                    yield before + "\n".join(parts)
                parts, size, before = [], 0, ""
            part = part.strip("\n")
            while size + _bytes_of(part) > max_bytes:
                data = part.encode()
                end = data.find(b"\n", max(0, int(max_bytes) - size))
                end = len(data) if end < 0 else end
                yield before + "\n".join([*parts, data[:end].decode()])
                parts, size, before = [], 0, CONTINUES
                part = data[end + 1 :].decode()
            if part:
                parts.append(part)
                size += _bytes_of(part)
    if parts:
        yield before + "\n".join(parts)


def _bytes_of(text):
    return len(text) if text.isascii() else len(text.encode())


def _texts(part, reading):
    """Yield texts of whole, stripped lines; a blank line ends a document."""
    kind = part.source.kind
    if kind == "text":
        for _, lines in _blocks(part, reading):
            lines = [line.strip(WHITE_SPACE) for line in lines]
            if reading.one_per_file:
                lines = [*filter(None, lines)]
            if lines:
                yield "\n".join(lines)
        return
    if kind == "json":
        values = _json_values(part, reading)
    else:
        rows = enumerate(parquet_values(part, reading))
        values = ((f"row {row}", value) for row, value in rows)
    for place, value in values:
        yield tidy_text(value, part, reading, place) + "\n\n"


def _json_values(part, reading):
    name = part.source.name
    for at, lines in _blocks(part, reading):
        for line in lines:
            place = f"the line at byte {at}"
            at += reading.size(line + "\n")
            if not line.strip(WHITE_SPACE):
                continue
            try:
                value = parse_json(line, nan=True)
            except ValueError as error:
                raise ValueError(
                    f"{name} must have a JSON object in each line. Received, in "
                    f"{place}: {error}."
                ) from error
            if not isinstance(value, dict) or reading.feature not in value:
                raise ValueError(
                    f"{name} must have objects with the field {reading.feature!r}, "
                    f"the `feature`. Received, in {place}: {line[:80]!r}."
                )
            yield place, value[reading.feature]


def _blocks(part, reading, split=None):
    """Yield blocks of whole lines, of about a MiB, and the byte where each begins."""
    kind = part.source.kind
    rest: list[str] = []  # of a line that isn't complete yet
    begin = None
    for text, end, last in _decoded(part, reading, _CHUNK):
        if begin is None:
            has_mark = "".encode(reading.encoding)  # the decoder leaves the mark out
            begin = end - reading.size(text) if has_mark else part.start
            if not begin and text.startswith(_BYTE_ORDER_MARK):
                begin, text = reading.size(_BYTE_ORDER_MARK), text[1:]
        cut = len(text) if last else text.rfind("\n") + 1
        if not cut and kind == "text":
            cut = text.rfind("\r", 0, -1) + 1  # a last "\r" may be half of a line end
        if cut or last:
            block = "".join([*rest, text[:cut]])
            ends = split or _split_lines
            lines = ends(block) if kind == "text" else block.split("\n")
            if _is_too_long(block, lines, reading):
                at = begin + reading.size(_before_longest(block, kind))
                raise _too_long(part, reading, f"at byte {at}")
            if not last:
                lines.pop()  # the text after the last line end
            yield begin, lines
            begin, rest = end - reading.size(text[cut:]), []
        rest.append(text[cut:])
        if sum(map(len, rest)) > reading.max_line_length:
            raise _too_long(part, reading, f"at byte {begin}")


def _split_aligned(text):
    """Split text into lines by line feeds, which are all that aligned files share."""
    return text.split("\n") if "\n" in text else _split_lines(text)


def _split_lines(text):
    """Split text into lines; a carriage return at a line's end is white space there."""
    if text.count("\r") > text.count("\r\n"):
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.split("\n")


def _is_too_long(text, lines, reading):
    most = reading.max_line_length
    return len(text) > most and max(map(len, lines)) > most


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
    """Yield decoded chunks, each with the byte reached and whether it is the last."""
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
    except Exception as error:  # each library has its own errors
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
                f"{source.name} must be text, or have the ending of its format. "
                f"Received: a file that begins as {kind}."
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


_COMPRESSED = 1 << 16


@contextlib.contextmanager
def opened(source: Source) -> Iterator[Any]:
    """Open a file to read its decompressed bytes."""
    compression = compression_of(source.name)
    if compression == ".gz":
        with gzip.open(source.name) as file:
            yield file
    elif compression == ".zst":
        try:
            import zstandard
        except ImportError as error:
            raise ImportError(
                "Files of Zstandard need a library: pip install keras-bertfam[beam]."
            ) from error
        with open(source.name, "rb") as raw:
            frames = _ZstandardFrames(raw, zstandard.ZstdDecompressor())
            with io.BufferedReader(frames, _COMPRESSED) as file:
                yield file
    else:
        with open(source.name, "rb") as file:
            yield file


class _ZstandardFrames(io.RawIOBase):
    """The content of all Zstandard frames of a file, which must be complete.

    `zstandard.open` reads only the first frame, and gives no error if it was cut off.
    """

    def __init__(self, file, decompressor):
        self._file = file
        self._decompressor = decompressor
        self._frame = None
        self._ready = b""

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._ready:
            left_over = self._frame and self._frame.unused_data
            chunk = left_over or self._file.read(_COMPRESSED)
            if not chunk:
                if self._frame is not None and not self._frame.eof:
                    raise EOFError("its last frame was cut off.")
                return 0
            if self._frame is None or self._frame.eof:
                self._frame = self._decompressor.decompressobj()
            self._ready = self._frame.decompress(chunk)
        given = self._ready[: len(buffer)]
        buffer[: len(given)] = given
        self._ready = self._ready[len(given) :]
        return len(given)


# Python's white space without U+001C to U+001F, which aren't white space in Unicode.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
WHITE_SPACE += "\u2028\u2029\u202f\u205f\u3000"


def between_brackets(characters: str) -> str:
    """Write characters for a class of RE2, whose own `\\s` has only ASCII characters.

    Args:
        characters: the characters of the class.

    Returns:
        The text between `[` and `]`.
    """
    return "".join(rf"\x{{{ord(character):x}}}" for character in characters)
