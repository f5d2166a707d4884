"""JSON that may be made to do harm."""

import itertools
import json
from typing import Any

_MAX_DEPTH, _MAX_COUNT = 50, 50_000  # Objects and lists: in each other, and in all


class Pairs(list):
    """An object as pairs of names and values, which may have a name twice."""


def parse_json(text: str, pairs: bool = False, many: bool = False) -> Any:
    """What a JSON text holds.

    Args:
        text: str.
        pairs: bool. Whether objects are `Pairs`, which their type tells from lists.
        many: bool. Whether there may be any number of objects and lists.

    Returns:
        A value of Python.

    Raises:
        ValueError: for what is no JSON, such as NaN, and for lists in lists in lists
            or too many of them: what checks and builds them takes its time.
        RecursionError: for even more of them.
    """
    hook = Pairs if pairs else None
    content = json.loads(text, object_pairs_hook=hook, parse_constant=_refuse)
    level, count = [content], 0
    for _ in range(_MAX_DEPTH):
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        values = itertools.chain.from_iterable(inner)
        level = [value for value in values if isinstance(value, dict | list | tuple)]
        count += len(level)
    if count > _MAX_COUNT and not many:
        raise ValueError(f"there must be at most {_MAX_COUNT} lists and objects.")
    if level:
        raise ValueError(f"there must be at most {_MAX_DEPTH} lists in each other.")
    return content


def _refuse(name):
    raise ValueError(f"there must be no {name}.")
