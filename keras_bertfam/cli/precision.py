"""Know in which number formats a machine computes fast."""

import pathlib
import re

import keras

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
# Instructions of processors that multiply matrices of bfloat16 in hardware.
_BFLOAT16 = {"avx512_bf16", "amx_bf16"}


def device_and_bfloat16() -> tuple[str, bool]:
    """Name what Keras computes on, and tell whether bfloat16 is sure to be faster.

    It is on GPUs and TPUs that have it and, with PyTorch, on CPUs that have
    instructions for it. On CPUs JAX multiplies bfloat16 no faster than float32.
    TensorFlow does, but only models as wide as BERT base gain more by it than by being
    compiled.

    Returns:
        Tuple of `"CPU"`, `"GPU"` or `"TPU"`, and a bool.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        if torch.cuda.is_available():
            return "GPU", torch.cuda.is_bf16_supported(including_emulation=False)
        if torch.backends.mps.is_available():
            return "GPU", False  # not measured
        return "CPU", bool(_BFLOAT16 & _instructions())
    if backend == "jax":
        import jax

        device = jax.local_devices()[0]
        if device.platform == "tpu":
            return "TPU", True
        if device.platform != "gpu":
            return "CPU", False
        capability = getattr(device, "compute_capability", "0.0")
    else:
        import tensorflow as tf

        if tf.config.list_logical_devices("TPU"):
            return "TPU", True
        gpus = tf.config.list_physical_devices("GPU")
        if not gpus:
            return "CPU", False
        details = tf.config.experimental.get_device_details(gpus[0])
        capability = ".".join(map(str, details.get("compute_capability", (0, 0))))
    # NVIDIA's since Ampere; AMD's are named otherwise, as "gfx90a".
    major = re.match(r"\d+", str(capability))
    return "GPU", major is not None and int(major[0]) >= 8


def _instructions():
    """List the instruction sets of the processor, as far as the system tells them."""
    try:
        text = _CPU_INFO.read_text()
    except OSError:  # not Linux
        return set()
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return {*flags[1].split()} if flags else set()
