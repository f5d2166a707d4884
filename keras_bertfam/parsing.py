"""The library's reader of JSON and YAML, which is safe for files made to do harm.

Every fault raises a `ValueError` with a sentence. Among the faults are deeply nested
lists, for which Python's readers raise a `RecursionError`; numbers of thousands of
digits; aliases of YAML, by which a short text stands for a huge one; and pipes in place
of files, which would wait for ever.
"""

import functools
import itertools
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_bertfam.types import Path

_MAX_DEPTH, _MAX_COUNT = 50, 50_000  # Objects and lists: nested, and in total
_MAX_DIGITS = 300  # of an integer, so that it can be a float as well


class Pairs(list):
    """An object as pairs of names and values, which may have a name twice."""


def parse_json(
    text: str | bytes, pairs: bool = False, many: bool = False, nan: bool = False
) -> Any:
    """Parse a JSON text.

    Args:
        text: str, or bytes in UTF-8.
        pairs: bool. Whether objects become `Pairs`, a type of its own beside lists.
        many: bool. Whether any number of objects and lists is allowed.
        nan: bool. Whether NaN and infinite numbers are allowed, which aren't JSON.

    Returns:
        A Python value.

    Raises:
        ValueError: for a text that isn't JSON; numbers of hundreds of digits; and
            deeply nested or too many lists and objects, which would take much time.
    """
    options: dict[str, Any] = {} if nan else {"parse_constant": _refuse}
    try:
        content = json.loads(
            text,
            object_pairs_hook=Pairs if pairs else None,
            parse_int=_integer,
            **options,
        )
    except RecursionError:
        raise _too_deep() from None
    kinds = dict | list | tuple
    level, count = [content] if isinstance(content, kinds) else [], 0
    for _ in range(_MAX_DEPTH):
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        values = itertools.chain.from_iterable(inner)
        level = [value for value in values if isinstance(value, kinds)]
        count += len(level)
    if level:
        raise _too_deep()
    if count > _MAX_COUNT and not many:
        raise ValueError(f"there must be at most {_MAX_COUNT} lists and objects")
    return content


def _too_deep():
    return ValueError(f"there must be at most {_MAX_DEPTH} lists in each other")


def _integer(text):
    _check_digits(text)
    return int(text)


def _check_digits(text):
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number must have at most {_MAX_DIGITS} digits")


def _refuse(name):
    raise ValueError(f"there must be no {name}")


def parse_yaml(text: str) -> Any:
    """Parse a YAML text of plain values, lists and mappings.

    Args:
        text: str.

    Returns:
        A Python value.

    Raises:
        ValueError: for a text that isn't YAML, or has aliases, tags of classes, numbers
            of hundreds of digits, or deeply nested lists.
    """
    import yaml

    depth = 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"there must be no aliases, such as *{event.anchor}")
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                if event.value[:1] in {*"+-0123456789"}:
                    _check_digits(event.value)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise _too_deep()
        return yaml.load(text, _loader())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


@functools.cache
def _loader():
    """Make a safe loader that reads `1e-6` as a number, as YAML 1.2 does."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    _read_exponents(Loader)
    return Loader


def _read_exponents(cls):
    number = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
    cls.add_implicit_resolver("tag:yaml.org,2002:float", number, [*"+-.0123456789"])


def to_yaml(value: Any) -> str:
    """Write lists, dicts, numbers and strings as YAML that `parse_yaml` reads back."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    _read_exponents(Dumper)  # so that a string such as "1e-3" is quoted
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def parse_json_lines(text: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a text of JSON lines, each with its place.

    Args:
        text: str. Blank lines are left out.
        name: str, the file's name, for errors.

    Yields:
        Tuples of a place, such as `"a.jsonl, line 3"`, and the object.

    Raises:
        ValueError: for a line that isn't an object, and for what `parse_json` refuses.
            The error has the place.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            value = parse_json(line)
        except ValueError as error:
            raise ValueError(f"{place}: expected JSON. Received: {error}.") from error
        if not isinstance(value, dict):
            raise ValueError(f"{place}: expected an object. Received: {value!r}.")
        yield place, value


def check_keys(
    place: str, value: Mapping[str, Any], needed: Iterable[str], known: Iterable[str]
) -> None:
    """Raise a `ValueError` for an object that lacks a key, or has an unknown one.

    Args:
        place: str, the object's place, for the error.
        value: the object.
        needed: keys that it must have.
        known: all keys that it may have.
    """
    missing = [key for key in needed if key not in value]
    if missing:
        raise ValueError(
            f"{place}: expected {', '.join(missing)}. Received: {', '.join(value)}."
        )
    unknown = sorted(value.keys() - set(known))
    if unknown:
        raise ValueError(
            f"{place}: expected no other keys than {', '.join(sorted(known))}. "
            f"Received: {', '.join(unknown)}."
        )


def check_regular(path: Path) -> None:
    """Raise a `ValueError` for a folder, a pipe or a device.

    Raises:
        OSError: if there is no such file.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise ValueError(f"{os.fspath(path)!r} must be a file. Received: {kind}.")


def read_text(path: Path) -> str:
    """Read the text of a file in UTF-8.

    Raises:
        OSError: for a file that doesn't exist or can't be read.
        ValueError: for a folder, pipe or device, and for text that isn't UTF-8. The
            error has the line.
    """
    check_regular(path)
    with open(path, "rb") as file:
        return decoded(file.read(), os.fspath(path))


def decoded(content: bytes, name: str) -> str:
    """Decode a file's content, and leave out a byte-order mark.

    Args:
        content: bytes in UTF-8.
        name: str, the file's name, for errors.

    Raises:
        ValueError: for text that isn't UTF-8. The error has the line.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{name}, line {line}: text must be UTF-8. Received: {error}."
        ) from error


def read_json(path: Path, many: bool = False, nan: bool = False) -> Any:
    """Read a JSON file, see `parse_json`.

    Raises:
        OSError, ValueError: see `read_text` and `parse_json`. The error has the path.
    """
    text = read_text(path)
    try:
        return parse_json(text, many=many, nan=nan)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} must be JSON: {error}.") from error


def read_yaml(path: Path) -> Any:
    """Read a YAML file, see `parse_yaml`.

    Raises:
        OSError, ValueError: see `read_text` and `parse_yaml`. The error has the path.
    """
    text = read_text(path)
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} must be YAML. {error}.") from error
