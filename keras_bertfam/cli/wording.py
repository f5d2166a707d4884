"""Messages of the library, which speak of arguments, as a command's user knows them."""

import contextlib
import contextvars
import re
from collections.abc import Iterator
from typing import Any

# Arguments of the library by other names than those of their options.
_OTHER_NAMES = {
    "gradient_accumulation_steps": "accumulate",
    "learning_rates": "learning_rate",
    "batch_sizes": "batch_size",
    "seeds": "seed",
    "rules": "rule",
    "test_sets": "test_set",
    "threshold": "near_duplicates",
    "documents": "files",
}


_command: contextvars.ContextVar[Any] = contextvars.ContextVar("command", default=None)


@contextlib.contextmanager
def of_command(command: Any) -> Iterator[None]:
    """Tell within whose options `as_options` names.

    Args:
        command: typer's object of a command, with its `params`.
    """
    before = _command.set(command)
    try:
        yield
    finally:
        _command.reset(before)


def as_options(message: str) -> str:
    """Name options where a message names arguments, of the command that is running.

    Args:
        message: such as "`learning_rate` must be ...".

    Returns:
        The same with "`--learning-rate`", or as it was outside of a command.
    """
    names = _names()
    if not names:
        return message
    known = "|".join(sorted(names, key=len, reverse=True))

    def option(match):
        name, value = names[match["name"]], match["value"]
        if value == "None":
            return f"no {name}"
        return f"{name} {value}"

    message = re.sub(
        rf"\b(?P<name>{known})=(?P<value>[^\s,]+) in `compile\(\)`",
        lambda match: f"`{option(match)}`",
        message,
    )
    message = re.sub(rf"`({known})`", lambda match: f"`{names[match[1]]}`", message)
    return re.sub(
        rf"(?<![\w`.(-])(?P<name>{known})=(?P<value>[^\s,;)]*[^\s,;.)])",
        option,
        message,
    )


def _names():
    """Name arguments as the command line does: `--option`, or `FILES`."""
    names = {}
    for parameter in getattr(_command.get(), "params", ()):
        called = max(parameter.opts, key=len)
        if called.startswith("-"):
            names[called.strip("-").replace("-", "_")] = called
        else:
            called = called.upper()
        names[parameter.name] = called
    for name, other in _OTHER_NAMES.items():
        if other in names:
            names.setdefault(name, names[other])
    return names
