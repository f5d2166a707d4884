"""Processes of this machine that do the work of a pipeline's steps.

Beam's own (`direct_running_mode=multi_processing`) leave a pipeline waiting forever for
a worker that was killed, such as by a system without memory. So its threads hand the
work to a pool, which tells. This process is a worker as well: another takes as long to
import TensorFlow as for some 20 MB of text.
"""

import contextlib
import errno
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

_pool: ProcessPoolExecutor | None = None
_this_process = threading.Lock()  # whose thread works here


@contextlib.contextmanager
def process_pool(workers: int) -> Iterator[None]:
    """Let `call` use processes, if there is to be more than one.

    Args:
        workers: int. How many, with this one.
    """
    global _pool
    if workers == 1:
        yield
        return
    # A fork of a process with TensorFlow's threads may never end.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers - 1, context, initializer=_end_with_parent)
    _pool = pool
    try:
        yield
    finally:
        _pool = None
        pool.shutdown(cancel_futures=True)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns: here, or in a process of the pool if this one works.

    Raises:
        OSError: if a process of the pool was killed.
    """
    if _pool is None:
        return function(*args)
    if _this_process.acquire(blocking=False):
        try:
            return function(*args)
        finally:
            _this_process.release()
    try:
        return _pool.submit(function, *args).result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            errno.ECHILD,
            "A worker was killed, as the system does where memory runs out: use fewer "
            "`workers`. The work goes on from here when it is started again",
        ) from error


def _end_with_parent():
    """Ends this process when its parent is killed, which else it would outlive."""
    parent = multiprocessing.parent_process()

    def wait():
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
