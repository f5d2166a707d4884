"""Control what a command shows: lines, errors in a user's words, logs if wanted."""

import contextlib
import contextvars
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from keras_bertfam import lazy

# Levels at which C++ code logs nothing: TensorFlow, gRPC, and others with glog.
_VARIABLES = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "GRPC_VERBOSITY": "NONE",
    "GLOG_minloglevel": "3",
}
_quiet = False


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the frameworks' logs from the screen, and show a warning in a line.

    An exception reports a failure without the logs. Environment variables that a user
    has set stay as they are.
    """
    global _quiet
    before, shown = logging.root.manager.disable, warnings.formatwarning
    new = {name: v for name, v in _VARIABLES.items() if name not in os.environ}
    os.environ.update(new)
    logging.disable(logging.ERROR)
    warnings.formatwarning = _in_a_line
    _quiet = True
    try:
        with warnings.catch_warnings():
            # Such a warning is for programmers.
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        _quiet = False
        warnings.formatwarning = shown
        logging.disable(before)
        for name in new:
            os.environ.pop(name, None)


class _Lasting:
    """A stream whose reader may go: what is written then is dropped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._until_closed(self._stream.write, text) or len(text)

    def flush(self) -> None:
        self._until_closed(self._stream.flush)

    def _until_closed(self, function, *arguments):
        try:
            return function(*arguments)
        except BrokenPipeError:
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), self._stream.fileno())
            print("Nobody reads this output any more. Going on.", file=sys.stderr)


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """Let work go on when the reader of its outputs, such as `head`, ends."""
    out, errors = _Lasting(sys.stdout), _Lasting(sys.stderr)  # which may be one pipe
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        yield


def _in_a_line(message, category, filename, lineno, line=None):
    return f"Warning: {' '.join(as_options(str(message)).split())}\n"


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load the library and the frameworks, and hide what they print meanwhile.

    C++ writes to the file descriptor of standard error, partly before a logging level
    could be set. If an import fails, everything that was written is shown.
    """
    with _kept() if _quiet else contextlib.nullcontext():
        lazy.load_all()
        yield


@contextlib.contextmanager
def _kept():
    """Hold back what is written to standard error; show it only after an exception."""
    sys.stderr.flush()
    try:
        screen = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            _restore(screen)
            file.seek(0)
            os.write(2, file.read())
            raise
        _restore(screen)


def _restore(screen):
    sys.stderr.flush()
    os.dup2(screen, 2)
    os.close(screen)


# Arguments of the library whose options have other names.
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
    """Say which command's options `as_options` names within this context.

    Args:
        command: typer's object of a command, with its `params`.
    """
    before = _command.set(command)
    try:
        yield
    finally:
        _command.reset(before)


def as_options(message: str) -> str:
    """Replace arguments in a message by the options of the running command.

    Args:
        message: text such as "`learning_rate` must be ...".

    Returns:
        The text with "`--learning-rate`"; outside of a command, the same text.
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
