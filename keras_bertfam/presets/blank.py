"""Backbones that begin with zeros, for weights that are about to be read."""

import contextlib
import contextvars
from collections.abc import Iterator

_blank = contextvars.ContextVar("blank", default=False)


@contextlib.contextmanager
def blank_weights() -> Iterator[None]:
    """Let backbones made in this context begin with zeros.

    Random initial values would take time, and leave holes in memory.
    """
    token = _blank.set(True)
    try:
        yield
    finally:
        _blank.reset(token)


def is_blank() -> bool:
    """Tell whether the call is in the context of `blank_weights`."""
    return _blank.get()
