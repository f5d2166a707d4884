"""Whether a run has been told to end, by the signal that schedulers send."""

import signal
import threading
from types import FrameType
from typing import Any

# What shells and schedulers take for "ended by SIGTERM".
EXIT_CODE = 128 + signal.SIGTERM


class Termination:
    """Notes SIGTERM from `start()` to `stop()`, in place of dying of it at once.

    A second one ends the process at once. TensorFlow and JAX ignore the signal in runs
    of several processes; they have set their handler before.

    Attributes:
        received: bool. Whether the signal has come.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: Any = None
        self._watches = False

    def start(self) -> None:
        """Watch, if this is the main thread; only there Python can."""
        self.received = False
        if not self._watches and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
            self._watches = True

    def stop(self) -> None:
        """Leave the signal to whoever had it before."""
        if self._watches:
            self._watches = False
            # `None` is a handler that isn't Python's, as TensorFlow's.
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            self.stop()
            signal.raise_signal(signal.SIGTERM)
        self.received = True


def end_at_once() -> None:
    """Let SIGTERM end this process again where a framework has it ignored."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
