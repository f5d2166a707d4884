"""Processes on this machine that do the work of a pipeline's steps.

Beam has processes of its own (`direct_running_mode=multi_processing`). If the system
kills one of them, such as for lack of memory, Beam waits for it forever. So Beam's
threads here give the work to a pool, which reports a killed process.

This process is a worker too. A new process takes as long to import TensorFlow as to
work on some 20 MB of text. So new ones begin as copies of this one where that is safe:
before TensorFlow has threads.
"""

import contextlib
import errno
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import keras
import tensorflow as tf

_pool: ProcessPoolExecutor | None = None
_this_process = threading.Lock()  # whose thread works here


@contextlib.contextmanager
def process_pool(workers: int) -> Iterator[None]:
    """Start processes for `call`, if `workers` is more than 1.

    An inner context uses the processes of the outer one.

    Args:
        workers: int. Number of processes, this one included.
    """
    global _pool
    if workers <= 1 or _pool is not None:
        yield
        return
    copied = _may_be_copied()
    context = multiprocessing.get_context("fork" if copied else "spawn")
    pool = ProcessPoolExecutor(workers - 1, context, initializer=_end_with_parent)
    if copied:
        # A fork warns of threads; BLAS has some, and JAX may have some.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pool.submit(os.getpid).result()  # starts all processes
    _pool = pool
    try:
        yield
    finally:
        _pool = None
        pool.shutdown(cancel_futures=True)


def _may_be_copied():
    """Tell whether a fork of this process can work.

    A fork of a process with TensorFlow's threads may hang.
    """
    alone = threading.active_count() == 1 and keras.backend.backend() == "tensorflow"
    if sys.platform != "linux" or not alone:
        return False
    threads = tf.config.threading
    try:  # raises an error if TensorFlow has threads already
        threads.set_inter_op_parallelism_threads(
            threads.get_inter_op_parallelism_threads()
        )
    except RuntimeError:
        return False
    return True


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in this process, or in one of the pool if this one is busy.

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
    """End this process when its parent is killed."""
    parent = multiprocessing.parent_process()

    def wait():
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
