"""Processes of this machine that do the work of a pipeline's steps.

Beam's own (`direct_running_mode=multi_processing`) leave a pipeline waiting forever for
a worker that was killed, such as by a system without memory. So its threads hand the
work to a pool, which tells. This process is a worker as well. Another takes as long to
import TensorFlow as for some 20 MB of text, so it begins as a copy of this one where
that is safe: before TensorFlow has threads.
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
    """Let `call` use processes, if there is to be more than one.

    Within another such context, its processes are used.

    Args:
        workers: int. How many, with this one.
    """
    global _pool
    if workers <= 1 or _pool is not None:
        yield
        return
    copied = _may_be_copied()
    context = multiprocessing.get_context("fork" if copied else "spawn")
    pool = ProcessPoolExecutor(workers - 1, context, initializer=_end_with_parent)
    if copied:
        with warnings.catch_warnings():  # of threads, which BLAS has, and JAX may
            warnings.simplefilter("ignore")
            pool.submit(os.getpid).result()  # which begins all of them
    _pool = pool
    try:
        yield
    finally:
        _pool = None
        pool.shutdown(cancel_futures=True)


def _may_be_copied():
    """Tell whether a fork of this process can work.

    That of a process with TensorFlow's threads may never end.
    """
    alone = threading.active_count() == 1 and keras.backend.backend() == "tensorflow"
    if sys.platform != "linux" or not alone:
        return False
    threads = tf.config.threading
    try:  # which can't be set once there are some
        threads.set_inter_op_parallelism_threads(
            threads.get_inter_op_parallelism_threads()
        )
    except RuntimeError:
        return False
    return True


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function here, or in a process of the pool if this one works.

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
    """End this process when its parent is killed, which else it would outlive."""
    parent = multiprocessing.parent_process()

    def wait():
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
