"""Host memory: keep the memory that a training step frees for the next step."""

import ctypes
import glob
import os
import sys

# Parameters of glibc's `mallopt`, by the numbers of its `malloc.h`.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_ACCELERATORS = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/accel*", "/dev/vfio/[0-9]*")


def keep_freed_memory() -> bool:
    """Make this process keep memory that it frees, for later allocations.

    JAX and PyTorch allocate a step's tensors with the C library. It returns freed
    blocks of megabytes to the system at once, so each step asks for some 100,000 pages
    anew. That takes up to a quarter of its CPU time. With glibc this function changes
    the setting for the whole process, whose memory then stays as large as at its peak.
    After `import keras_bertfam` it runs as soon as Keras is imported with one of these
    backends; once JAX has begun to compute it would have no effect.

    Nothing is changed

    - with TensorFlow, which keeps its memory itself,
    - with an accelerator, whose own memory holds a step's tensors,
    - if an environment variable configures allocation: `GLIBC_TUNABLES`, or a name that
      begins with `MALLOC_`. To switch this off, set `MALLOC_TRIM_THRESHOLD_=131072`.

    Returns:
        Whether anything was changed.
    """
    import keras  # it fixes the backend, so it isn't imported with `keras_bertfam`

    if keras.backend.backend() not in ("jax", "torch") or not _is_left_to_us():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # the C library isn't glibc
        return False
    # Take large blocks from the heap too. Use a single heap, since other heaps are
    # returned when they are empty.
    wanted = {
        _MMAP_MAX: 0,
        _ARENA_MAX: 1,
        _TRIM_THRESHOLD: 2**31 - 1,
        _TOP_PAD: 2**26,
    }
    return all([mallopt(number, value) for number, value in wanted.items()])


def _is_left_to_us():
    settings = [
        name for name in os.environ if name.startswith(("GLIBC_TUNABLES", "MALLOC_"))
    ]
    there = [path for pattern in _ACCELERATORS for path in glob.glob(pattern)]
    return sys.platform == "linux" and not settings and not there
