"""Values of settings, as options and files give them."""

import contextlib
import types
import typing
from collections.abc import Iterable
from typing import Any


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise a `ValueError` for a value that isn't one of the choices."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {[*choices]}. Received: {value!r}.")


def checked(name: str, kind: Any, value: Any) -> Any:
    """Convert a value to its field's type; YAML has lists, and `1e-4` is a string.

    Args:
        name: of the setting.
        kind: type of the field, or a union of it and `None`.
        value: what is given.

    Raises:
        ValueError: for a value of another type.
    """
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    wanted = typing.get_origin(kinds[0]) or kinds[0]
    if value is None and type(None) in kinds:
        return None
    if wanted is tuple:
        value = (value,) if isinstance(value, str) else value
        if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
            return tuple(value)
    elif wanted is float and isinstance(value, (str, int)):
        with contextlib.suppress(ValueError):
            return float(value)
    elif isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    what = "a list of strings" if wanted is tuple else wanted.__name__
    raise ValueError(f"`{name}` must be of type {what}. Received: {value!r}.")
