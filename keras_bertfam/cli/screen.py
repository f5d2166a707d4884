"""What a command shows: its own lines and errors, and what the frameworks log if asked.

Only commands are quiet. Who imports the library sees all that the frameworks say.
"""

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator

from keras_bertfam import lazy
from keras_bertfam.cli.wording import as_options

# Below what C++ logs nothing: of TensorFlow, of gRPC, of glog in others.
_VARIABLES = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "GRPC_VERBOSITY": "NONE",
    "GLOG_minloglevel": "3",
}
_quiet = False


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the frameworks' logs from the screen, and show a warning in a line.

    What fails raises an exception, which says so without the logs. Variables of the
    environment that are set stay as they are.
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
            # It is for who writes the code.
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        _quiet = False
        warnings.formatwarning = shown
        logging.disable(before)
        for name in new:
            os.environ.pop(name, None)


def _in_a_line(message, category, filename, lineno, line=None):
    return f"Warning: {' '.join(as_options(str(message)).split())}\n"


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load the library and the frameworks; what these print meanwhile isn't shown.

    C++ writes to the descriptor of standard error, in part before a level of logging
    could be set. If an import fails, all that was written is shown.
    """
    with _kept() if _quiet else contextlib.nullcontext():
        lazy.load_all()
        yield


@contextlib.contextmanager
def _kept():
    """Keep what is written to standard error, and show it after an exception only."""
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
