"""Whether models begin with zeros."""

import contextlib
import contextvars

_blank = contextvars.ContextVar("blank", default=False)


@contextlib.contextmanager
def blank_weights():
    """Backbones made in this context begin with zeros.

    For weights that are about to be read: random ones take time, and leave holes in
    memory.
    """
    token = _blank.set(True)
    try:
        yield
    finally:
        _blank.reset(token)


def is_blank():
    """Whether the call is in the context of `blank_weights`."""
    return _blank.get()
