"""Attention by JAX's kernels, which differ between platforms."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras

from keras_bertfam.layers.attention.definition import Asked
from keras_bertfam.types import Tensor

# The kernel for TPUs takes lengths that are multiples of this.
LANES = 128
# Block lengths of the kernel for TPUs; the first that divides the length is taken.
_BLOCKS = (512, 256, 128)

_lowered_for: contextvars.ContextVar = contextvars.ContextVar(
    "lowered_for", default=None
)


@contextlib.contextmanager
def lowered_for(platform: str, interpreted: bool = False) -> Iterator[None]:
    """Choose JAX's kernels for a given platform instead of this process's own.

    `jax.export` needs this to export for a device that isn't here, and tests do too.

    Args:
        platform: str. `"cpu"`, `"gpu"` or `"tpu"`.
        interpreted: bool. Whether Pallas's interpreter computes the kernels for TPUs,
            which works on any device.
    """
    token = _lowered_for.set((platform, interpreted))
    try:
        yield
    finally:
        _lowered_for.reset(token)


def jax_platform() -> str:
    """Name the platform that JAX computes on: `"cpu"`, `"gpu"` or `"tpu"`.

    It is the platform of the default device, on which the whole process computes.
    `jax.lax.platform_dependent` would be more exact, but it traces all branches. That
    has two faults: cuDNN's branch can't be traced without cuDNN; and the gradient keeps
    what every branch needs, among it the scores, which the kernels exist to avoid.
    """
    import jax

    chosen = _lowered_for.get()
    if chosen is not None:
        return chosen[0]
    config: Any = jax.config
    device = config.jax_default_device
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


def _interpreted():
    chosen = _lowered_for.get()
    return chosen is not None and chosen[1]


def splash_takes(asked: Asked) -> bool:
    """Tell whether the kernel for TPUs computes this attention."""
    if jax_platform() != "tpu" or asked.dropout is not None or asked.bias is not None:
        return False
    queries, keys = asked.query.shape[1], asked.key.shape[1]
    if queries % LANES or keys % LANES or not queries or not keys:
        return False
    if asked.causal and queries != keys:
        return False
    if _devices() > 1:
        # XLA can't split a kernel of Pallas over devices.
        return False
    return asked.mask is None or asked.numbers is not None or _hides_keys(asked)


def _devices():
    """Count the devices that Keras distributes the model over."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.device_mesh.devices.size


def _hides_keys(asked):
    """Tell whether the mask hides the same keys from all queries and heads."""
    return asked.mask is not None and tuple(asked.mask.shape[1:3]) == (1, 1)


def splash(asked: Asked) -> Tensor:
    """Compute attention by the kernel for TPUs; `numbers` say which keys are seen."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu import splash_attention as tpu

    batch, queries, heads, _ = asked.query.shape
    keys = asked.key.shape[1]
    shape = queries, keys
    mask: Any
    if asked.causal:
        mask = tpu.CausalMask(shape)
    elif asked.window:
        mask = tpu.LocalMask(shape, (asked.window // 2, asked.window // 2), 0)
    else:
        mask = tpu.FullMask(shape)
    q_block, kv_block = (
        next(block for block in _BLOCKS if length % block == 0) for length in shape
    )
    kernel = tpu.make_splash_mha(
        tpu.MultiHeadMask([mask] * heads),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=tpu.BlockSizes(
            block_q=q_block,
            block_kv=kv_block,
            block_kv_compute=kv_block,
            block_q_dkv=q_block,
            block_kv_dkv=kv_block,
            block_kv_dkv_compute=kv_block,
            block_q_dq=q_block,
            block_kv_dq=kv_block,
        ),
        interpret=_interpreted(),
    )
    numbers = None
    if asked.numbers is not None:
        ids = asked.numbers.astype("int32")
        numbers = tpu.SegmentIds(q=ids, kv=ids)
    elif asked.mask is not None:
        seen = jnp.broadcast_to(asked.mask[:, 0, 0], (batch, keys)).astype("int32")
        numbers = tpu.SegmentIds(q=jnp.ones((batch, queries), "int32"), kv=seen)
    turned = (
        part.transpose(0, 2, 1, 3)
        # The kernel has no scale.
        for part in (asked.query * asked.scale, asked.key, asked.value)
    )
    axes = (0, 0, 0, None if numbers is None else 0)
    context = jax.vmap(kernel, in_axes=axes)(*turned, numbers)
    return context.transpose(0, 2, 1, 3).astype(asked.query.dtype)


def cudnn_takes(asked: Asked) -> bool:
    """Tell whether cuDNN's kernel computes this attention."""
    if jax_platform() != "gpu" or asked.dropout is not None or asked.window:
        return False
    capability = _compute_capability()
    most = 256 if capability >= (9, 0) else 128
    shapes = asked.query.shape, asked.key.shape
    return (
        capability >= (8, 0)
        and asked.dtype in ("float16", "bfloat16")
        and asked.query.shape[-1] <= most
        and asked.query.shape[-1] % 8 == 0
        # With a mask or a bias, the gradient needs even lengths.
        and all(shape[1] > 1 and shape[1] % 2 == 0 for shape in shapes)
    )


def _compute_capability():
    """Give an NVIDIA GPU's compute capability as two ints; (0, 0) for other GPUs."""
    import jax

    if _lowered_for.get() is not None:
        return 8, 0
    device = jax.local_devices(backend="gpu")[0]
    if "cuda" not in device.client.platform_version.lower():
        return 0, 0
    major, minor = str(device.compute_capability).split(".")
    return int(major), int(minor)


def cudnn(asked: Asked) -> Tensor:
    """Compute attention by cuDNN's kernel, with masks in its layout."""
    import jax
    import jax.numpy as jnp

    batch, queries, heads, _ = asked.query.shape
    keys, mask, bias = asked.key.shape[1], asked.mask, asked.bias
    if mask is not None:
        # JAX takes masks of keys as well, but then doesn't use cuDNN's kernel.
        mask = jnp.broadcast_to(mask, (*mask.shape[:2], queries, keys))
    if bias is not None:
        rows = batch if mask is not None else bias.shape[0]
        bias = jnp.broadcast_to(bias, (rows, heads, queries, keys))
        bias = bias.astype(asked.query.dtype)
    return jax.nn.dot_product_attention(
        asked.query,
        asked.key,
        asked.value,
        bias=bias,
        mask=mask,
        scale=asked.scale,
        is_causal=asked.causal,
        implementation="cudnn",
    )


def xla_takes(asked: Asked) -> bool:
    """Tell whether XLA's form computes this attention."""
    # Its product of float16 tensors doesn't exist in XLA for CPUs.
    lacks = asked.dtype == "float16" and jax_platform() == "cpu"
    return asked.dropout is None and not asked.window and not lacks


def by_xla(asked: Asked) -> Tensor:
    """Compute attention by JAX's form for XLA, which keeps all scores."""
    import jax

    return jax.nn.dot_product_attention(
        asked.query,
        asked.key,
        asked.value,
        bias=None if asked.bias is None else asked.bias.astype(asked.query.dtype),
        mask=asked.mask,
        scale=asked.scale,
        is_causal=asked.causal,
        implementation="xla",
    )
