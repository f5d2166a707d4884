"""Documents of a part of a source, in clean UTF-8."""

from collections.abc import Iterator

from keras_bertfam.corpora.preparing.compression import opened
from keras_bertfam.corpora.preparing.parts import Part, Reading
from keras_bertfam.corpora.preparing.tables import dataset_examples, parquet_values
from keras_bertfam.parsing import parse_json

_BYTE_ORDER_MARK = "\ufeff"
_SPACES = " \t\r\v\f"


def read_documents(part: Part, reading: Reading) -> Iterator[str]:
    """The documents of a part of a source.

    In text files, blank lines stand between documents. Lines have no white space
    around them.

    Args:
        part: `Part`.
        reading: `Reading`.

    Yields:
        Strings that aren't empty.

    Raises:
        OSError: if a file can't be read.
        ValueError: for text that isn't UTF-8, or a file of another format: which,
            and where in it.
    """
    kind = part.source.kind
    if kind == "text":
        yield from _texts(part, reading)
        return
    if kind == "json":
        values = _json_values(part, reading)
    elif kind == "parquet":
        values = enumerate(parquet_values(part, reading))
    else:
        values = enumerate(dataset_examples(part, reading), part.start)
    for place, value in values:
        if text := _tidy(value, part, reading, place):
            yield text


def _texts(part, reading):
    lines: list[str] = []
    for offset, line in _lines(part):
        if text := _decoded(line.strip(), part, offset + _indent(line)):
            lines.append(text)
        elif lines and not reading.one_per_file:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def _indent(line):
    return len(line) - len(line.lstrip())


def _lines(part):
    """The lines of a part with the bytes where they begin."""
    with opened(part.source) as file:
        offset = file.seek(part.start) if part.start else 0
        try:
            for line in file:
                if offset >= part.end >= 0:
                    return
                yield offset, line
                offset += len(line)
        except Exception as error:  # each library has its own
            if not part.source.compressed:
                raise
            raise ValueError(
                f"{part.source.name} must be a whole compressed file. Received, after "
                f"{offset} bytes of text: {error}"
            ) from error


def _decoded(line, part, offset):
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{part.source.name} must be UTF-8. Received, at byte "
            f"{offset + error.start}: {line[error.start : error.start + 4]!r}, "
            f"{error.reason}."
        ) from error
    return text if offset else text.removeprefix(_BYTE_ORDER_MARK).lstrip(_SPACES)


def _json_values(part, reading):
    for offset, line in _lines(part):
        text = _decoded(line, part, offset).strip()
        if not text:
            continue
        try:
            value = parse_json(text, nan=True)
        except ValueError as error:
            raise ValueError(
                f"{part.source.name} must have a JSON object a line. Received, in "
                f"the line at byte {offset}: {error}."
            ) from error
        if not isinstance(value, dict) or reading.feature not in value:
            raise ValueError(
                f"{part.source.name} must have objects with the field "
                f"{reading.feature!r}, `feature`. Received, in the line at byte "
                f"{offset}: {text[:80]!r}."
            )
        yield offset, value[reading.feature]


def _tidy(value, part, reading, place):
    """A text with clean lines, as text files give them."""
    if value is None:
        return ""
    try:
        if isinstance(value, bytes):
            value = value.decode()
        value.encode()
    except UnicodeError as error:
        raise ValueError(
            f"{part.source.name} must be UTF-8. Received, in the text of "
            f"{_where(part, place)}: {error}."
        ) from error
    except AttributeError:
        raise ValueError(
            f"{part.source.name} must have texts as {reading.feature!r}, `feature`. "
            f"Received, in {_where(part, place)}: {value!r}."
        ) from None
    lines = (line.strip(_SPACES) for line in value.split("\n"))
    return "\n".join(filter(None, lines))


def _where(part, place):
    return f"the line at byte {place}" if part.source.kind == "json" else f"row {place}"
