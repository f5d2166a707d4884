"""Memory of the host that a training step frees and the next one needs again."""

import ctypes
import glob
import os
import sys

# Parameters of glibc's `mallopt`, by the numbers of its `malloc.h`.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_ACCELERATORS = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/accel*", "/dev/vfio/[0-9]*")


def keep_freed_memory() -> bool:
    """Make this process keep what it frees, for what it allocates next.

    JAX and PyTorch allocate a step's tensors by the C library, which gives those of
    megabytes back to the system at once. So each step asks for some 100,000 pages anew,
    which is up to a quarter of its CPU time. Under glibc this is changed for the whole
    process: it stays as large as it was at its peak. After `import keras_bertfam` it is
    done under these backends as soon as Keras is imported, as it has no effect once
    JAX has begun to compute.

    Nothing is changed

    - under TensorFlow, which keeps its memory itself,
    - where there is an accelerator, on whose memory a step works,
    - where a variable of the environment says how to allocate: `GLIBC_TUNABLES`, or
      any whose name begins with `MALLOC_`. So `MALLOC_TRIM_THRESHOLD_=131072` is the
      way out.

    Returns:
        Whether anything was changed.
    """
    import keras  # which decides on the backend, so not with `import keras_bertfam`

    if keras.backend.backend() not in ("jax", "torch") or not _is_left_to_us():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library than glibc
        return False
    # Large blocks from the heap too; one heap, as others are given back when empty.
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
