"""Read the files in which benchmark data comes."""

import csv
import gzip
import itertools
import json
import os
import re
import zlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from keras_bertfam import parsing
from keras_bertfam.metrics.squad import right_texts
from keras_bertfam.parsing import parse_json
from keras_bertfam.text_files.reading import opened
from keras_bertfam.text_files.sources import source_of, suffix_of
from keras_bertfam.types import Config, Path

ANY = object  # the form of values that aren't read here


def decoded_lines(path: Path) -> Iterator[str]:
    """Read lines of a UTF-8 text file with their ends, without a byte-order mark.

    Files that end in `.gz` or `.zst` are decompressed. Only `\\n` and `\\r\\n` end a
    line: text may contain other characters that Python takes for line ends.

    Raises:
        ValueError: for a line that isn't UTF-8, with its number, and a damaged file.
    """
    parsing.check_regular(path)
    number = 0
    try:
        with opened(source_of(os.fspath(path))) as file:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path!s}, line {number}: text must be UTF-8. Received: {error}."
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path!s} must be a complete compressed file, as its name says. "
            f"Received, after line {number}: {error}."
        ) from error


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of `decoded_lines` without their ends."""
    for line in decoded_lines(path):
        yield line.removesuffix("\n").removesuffix("\r")


def read_table(
    path: Path,
    columns: Sequence[str],
    header: Sequence[str] = (),
    renamed: dict[str, str] | None = None,
    limit: int | None = None,
    broken: list[str] | None = None,
) -> list[dict[str, str]]:
    """Read tab-separated values. Quotation marks are plain characters.

    Args:
        path: path of a file.
        columns: names that a first line must have to count as a header.
        header: names of the columns of a file without one.
        renamed: dict from names in the file to names to return.
        limit: int or `None`. The most lines to read.
        broken: a list that gets a message for each line without a value for each
            column; such lines are then left out. Or `None`.

    Returns:
        A list of dicts of strings, with white space around them removed. Values beyond
        the header are left out.

    Raises:
        ValueError: for a file without a header if no `header` is given, or a line with
            too few values.
    """
    renamed = renamed or {}
    lines = [line.split("\t") for line in itertools.islice(read_lines(path), limit)]
    names = [renamed.get(name, name) for name in lines[0]] if lines else []
    first = 0
    if set(columns) <= set(names):
        first = 1
    elif header:
        names = list(header)
    else:
        raise ValueError(
            f"{path!s} must begin with a line of names, {sorted(columns)} among them. "
            f"Received: {names}."
        )
    needed = len(names)
    if broken is None:
        # A file may lack the last columns: a test part has no labels.
        needed = max(names.index(name) for name in columns) + 1
    records = []
    for number, values in enumerate(lines[first:], first + 1):
        if values == [""]:
            continue
        if len(values) < needed:
            message = (
                f"{path!s}, line {number}: expected at least {needed} values, "
                f"{names}. Received: {values}."
            )
            if broken is None:
                raise ValueError(message)
            broken.append(message)
            continue
        records.append({n: v.strip() for n, v in zip(names, values, strict=False)})
    return records


def read_parallel(
    paths: Sequence[Path], columns: Sequence[str]
) -> list[dict[str, str]]:
    """Read files with one column each, which have a line for each example.

    Args:
        paths: paths of as many files as there are columns.
        columns: names of the columns.

    Returns:
        A list of dicts of strings.

    Raises:
        ValueError: for files with unequal numbers of lines, or more or fewer files than
            columns.
    """
    if len(paths) != len(columns):
        raise ValueError(
            f"`data` must be a file for each of {[*columns]}. Received: {[*paths]}."
        )
    lines = [[*read_lines(path)] for path in paths]
    counts = [len(each) for each in lines]
    if len({*counts}) > 1:
        raise ValueError(
            f"`data` must be files of equally many lines. Received: {counts} in "
            f"{[*map(str, paths)]}."
        )
    return [dict(zip(columns, row, strict=True)) for row in zip(*lines, strict=True)]


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read comma-separated values after a line of names; quotation marks count.

    Returns:
        A list of dicts of strings. A short row has no value for the last names.

    Raises:
        ValueError: for a row with more values than names, and as `read_records`.
    """
    rows = read_records(path, ",")
    _, names = next(rows, (1, []))
    records = []
    for number, values in rows:
        if len(values) > len(names):
            raise ValueError(
                f"{path!s}, line {number}: expected at most {len(names)} values, "
                f"{names}. Received: {values}."
            )
        records.append(dict(zip(names, values, strict=False)))
    return records


def read_records(
    path: Path, delimiter: str, quoting: bool = True
) -> Generator[tuple[int, list[str]]]:
    """Read lines of values between delimiters, of any number.

    Args:
        path: path of a file.
        delimiter: str.
        quoting: bool. Whether quotation marks enclose values.

    Yields:
        Tuples of the number of the line in which values begin, and the list of values.
        Blank lines are left out. If the first line has a space after a delimiter,
        spaces after delimiters are left out.

    Raises:
        ValueError: for a value that begins with a quotation mark but doesn't end with
            one.
    """
    limit = csv.field_size_limit(
        2**31 - 1
    )  # texts may be long; the limit is the module's
    number = 1
    try:
        lines = decoded_lines(path)
        begin = [*itertools.islice(lines, 1)]
        reader = csv.reader(
            itertools.chain(begin, lines),
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE,
            skipinitialspace=quoting and has_spaces("".join(begin), delimiter),
            strict=True,
        )
        for values in reader:
            if values:
                yield number, values
            number = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path!s}, line {number}: expected values between delimiters. A value "
            "that begins with a quotation mark must end with one, and double those "
            f"inside; or pass `quoting=False`. Received: {error}."
        ) from error
    finally:
        csv.field_size_limit(limit)


def has_spaces(line: str, delimiter: str) -> bool:
    """Tell whether a line has a space after a delimiter, as in `text, label`."""
    return delimiter not in "\t " and f"{delimiter} " in line


def read_json(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a JSON file: a list, or one object in each line."""
    return [record for _, record in located_json(path)]


def located_json(path: Path) -> list[tuple[str, Any]]:
    """Read objects as `read_json` does, each with its place in the file."""
    lines = list(read_lines(path))
    number = 1
    try:
        if next(filter(str.strip, lines), "").lstrip().startswith("["):
            records = parse_json("\n".join(lines), many=True, nan=True)
            return [(f"item {k}", record) for k, record in enumerate(records)]
        located = []
        for number, line in enumerate(lines, 1):
            if line.strip():
                located.append((f"line {number}", parse_json(line, nan=True)))
        return located
    except json.JSONDecodeError as error:
        number += error.lineno - 1
        raise ValueError(
            f"{path!s} must be a JSON list, or a JSON object a line. Received in line "
            f"{number}: {error.msg}, column {error.colno}."
        ) from error
    except ValueError as error:
        raise ValueError(f"{path!s}, line {number}: {error}.") from error


def read_squad(path: Path) -> list[dict[str, Any]]:
    """Read questions in SQuAD's format, 1.1 or 2.0, or one from each object.

    Args:
        path: path of a file: SQuAD's JSON; or a JSON list, or one object a line, with
            `question`, `context` and `answers`, see `answers_in`, and optionally `id`,
            `title` and `is_impossible`.

    Returns:
        A list of dicts of `id`, `title` of the article, `question`, `context` and
        `answers`, a dict of the lists `text` and `answer_start` (in characters). The
        lists are empty for an impossible question or one without answers.

    Raises:
        ValueError: for a file of another format.
    """
    try:
        if _is_flat(path):
            return [*map(_flat_question, *zip(*located_json(path), strict=True))]
        content = parsing.read_json(path, many=True)
        return [
            {
                "id": question["id"],
                "title": article.get("title", str(number)),
                "question": question["question"],
                "context": paragraph["context"],
                "answers": {
                    name: [answer[name] for answer in _answers(question)]
                    for name in ("text", "answer_start")
                },
            }
            for number, article in enumerate(content["data"])
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path!s} must be in SQuAD's format. Missing: {error}."
        ) from error


def _is_flat(path):
    """Tell whether a file of questions has one object for each question."""
    first = next(filter(str.strip, read_lines(path)), "").lstrip()
    return first.startswith("[") or suffix_of(path) in (".jsonl", ".ndjson")


def _flat_question(place, record):
    answers = [] if record.get("is_impossible") else record["answers"]
    try:
        return {**record, "answers": answers_in(answers, record["context"])}
    except ValueError as error:
        raise ValueError(f"{place}, 'answers': {error}") from error


def _answers(question):
    """List the answers of a question in SQuAD's format that aren't empty."""
    if question.get("is_impossible"):
        return []
    return [each for each in question.get("answers", ()) if each["text"].strip()]


def read_conll(
    path: Path, header: Sequence[str] = (), begins: list[int] | None = None
) -> list[dict[str, list[str]]]:
    """Read words with labels, one word a line, with blank lines between sentences.

    Columns are separated by tabs or spaces. `-DOCSTART-` lines are left out, and so are
    CoNLL-U's comments, ranges and empty words (`1-2`, `1.1`). In other files `#` may be
    a word.

    Args:
        path: path of a file.
        header: names of the first columns. Without them the first column is `tokens`,
            the last is `tags`, those between are `1`, `2` and so on, and every line
            must have the same number of columns.
        begins: a list that gets the numbers of the lines in which sentences begin, or
            `None`.

    Returns:
        A list with a dict of lists of strings for each sentence.

    Raises:
        ValueError: for a line with too few columns, or, without a `header`, too many;
            and without a `header` if each of several sentences seems to begin with a
            comment.
    """
    universal = suffix_of(path) == ".conllu" or header[:1] == ("id",)
    exact = not header
    sentences: list[dict[str, list[str]]] = []
    words: list[list[str]] = []
    for number, line in enumerate([*read_lines(path), ""], 1):
        if not line.strip():
            if words:
                columns = zip(*words, strict=True)
                sentences.append(dict(zip(header, map(list, columns), strict=True)))
            words = []
            continue
        values = line.split("\t" if "\t" in line else None)
        if values[0] == "-DOCSTART-" or (universal and line.startswith("#")):
            continue
        if universal and re.fullmatch(r"\d+[-.]\d+", values[0]):
            continue  # a token of several words, or a word that isn't in the text
        if universal and values[0] != str(len(words) + 1):
            raise ValueError(
                f"{path!s}, line {number}: expected word {len(words) + 1} of its "
                "sentence, or an empty line between sentences. Received: "
                f"{line!r}."
            )
        if not header:
            between = map(str, range(1, len(values) - 1))
            header = ("tokens", *between, "tags")[: len(values)]
        if len(values) < len(header) or (exact and len(values) > len(header)):
            raise ValueError(
                f"{path!s}, line {number}: expected {len(header)} columns, "
                f"{list(header)}. Received: {line!r}."
            )
        if begins is not None and not words:
            begins.append(number)
        words.append(values[: len(header)])
    first = header[0] if header else ""
    if exact and len(sentences) > 1 and all(s[first][0] == "#" for s in sentences):
        raise ValueError(
            f"{path!s} must have words, not comments, in lines that begin with '#', or "
            "be a .conllu file. Received: such a line before each sentence."
        )
    return sentences


def check_form(value: Any, form: Any, where: str) -> None:
    """Raise a `ValueError` unless a JSON value has a certain form.

    Args:
        value: the value that was read.
        form: a type or a tuple of types; `ANY` for values that aren't read; a dict of
            forms by their keys, where keys with a question mark are optional; or a list
            with the one form of all items.
        where: str, for the message.
    """
    kind = type(form) if isinstance(form, (dict, list)) else form
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(each.__name__ for each in kinds)
        raise ValueError(f"{where} must be of type {names}. Received: {value!r}.")
    if isinstance(form, list):
        for number, part in enumerate(value):
            check_form(part, form[0], f"{where}[{number}]")
    if not isinstance(form, dict) or not isinstance(value, dict):
        return
    forms = {name.removesuffix("?"): part for name, part in form.items()}
    missing = [name for name in form if name[-1] != "?" and name not in value]
    unknown = [name for name in value if name not in forms]
    if missing or unknown:
        raise ValueError(
            f"{where} must have {[n for n in form if n[-1] != '?']}, and nothing but "
            f"{[*forms]}. Missing: {missing}. Unknown: {unknown}."
        )
    for name, part in value.items():
        check_form(part, forms[name], f"{where}, {name!r}")


_EXPECTED = (
    "answers: a text that is in the context, a dict of `text` and `answer_start` (in "
    "characters), or a list of either; an empty one for no answer"
)


def is_answers(value: Any) -> bool:
    """Tell whether a value, or JSON, is answers with places, unlike other labels."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            value = parse_json(value)
        except ValueError:
            return False
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and "text" in first


def answers_in(value: Any, context: str) -> Config:
    """Convert answers to the form of SQuAD's reader.

    Args:
        value: str, dict, a list of them, or one of these as JSON. A text without an
            `answer_start` is taken at its first place in the context.
        context: str.

    Returns:
        Dict of the lists `text` and `answer_start`; empty ones for no answer.

    Raises:
        ValueError: for anything else, and for a text that isn't in the context.
    """
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        value = parse_json(value)
    pairs = [pair for part in _parts(value) for pair in _pairs(part, value)]
    found = []
    for text, start in pairs:
        start = context.find(text) if start is None else start
        if start < 0 or context[start : start + len(text)] != text:
            raise ValueError(f"Expected {_EXPECTED}. Received: {text!r}, not there.")
        found.append((text, int(start)))
    return {"text": [t for t, _ in found], "answer_start": [s for _, s in found]}


def _parts(value):
    return value if isinstance(value, list) else [value]


def _pairs(part, value):
    """Pair texts with places; leave out values that aren't answers."""
    part = {"text": part} if isinstance(part, str) else part
    try:
        texts = _parts(part["text"])
        starts = _parts(part.get("answer_start", [None] * len(texts)))
        numbered = all(type(start) in (int, type(None)) for start in starts)
        if not numbered or len(starts) != len(texts):
            raise TypeError
        right = right_texts(part)
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"Expected {_EXPECTED}. Received: {value!r}.") from None
    return [pair for pair in zip(texts, starts, strict=True) if pair[0] in right]
