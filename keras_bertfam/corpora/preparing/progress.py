"""How far a pipeline is, by what is in its working folder."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_SECONDS = 5.0


@contextlib.contextmanager
def progress(
    folders: Callable[[], dict[str, tuple[str, int]]],
    report: Callable[[str], Any],
    seconds: float = _SECONDS,
) -> Iterator[None]:
    """Report every few seconds how many things are in folders, while it changes.

    Args:
        folders: function without arguments that returns a dict from what is counted
            to the folder and how many there will be.
        report: function that takes a line of text.
        seconds: float. How long to wait between two lines.
    """
    done = threading.Event()
    start = time.monotonic()
    reported: list[str] = []

    def report_change():
        parts = [
            f"{what} {_count(folder)} of {total}"
            for what, (folder, total) in folders().items()
        ]
        line = ", ".join(parts)
        if [line] != reported[-1:]:
            reported.append(line)
            report(f"{time.monotonic() - start:6.0f} s: {line}")

    def watch():
        while not done.wait(seconds):
            report_change()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
        done.set()
        thread.join()
        report_change()
    finally:
        done.set()
        thread.join()


def _count(folder):
    """Count the whole things in a folder."""
    with contextlib.suppress(FileNotFoundError):
        return sum(not name.startswith(".") for name in os.listdir(folder))
    return 0
