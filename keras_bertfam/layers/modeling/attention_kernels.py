"""How attention is computed, by backend, by device and by what is asked.

All attention of the library that has queries, keys and values of its own comes here.
`explicit_attention` says what the result is; every other way must give the same, to
rounding, and is taken only where it is known to. Keras's own
`ops.dot_product_attention` isn't used: on TPUs under JAX, Keras 3.15 gives causal,
unscaled attention where no mask is given, leaves a bias out, and uses the first row's
mask for all rows.

| backend | where | how |
|---|---|---|
| TensorFlow | everywhere | the explicit form, which XLA fuses |
| JAX | TPUs, lengths in 128s, no dropout or bias | splash attention |
| JAX | NVIDIA's GPUs, half precision, no dropout | cuDNN's kernel |
| JAX | else without dropout | `jax.nn.dot_product_attention`, by XLA |
| PyTorch | without dropout; on GPUs with it as well | `scaled_dot_product_attention` |
| each | what is left, and where probabilities are asked for | the explicit form |

A query that sees no key at all, such as padding in a packed row, gets some mean of the
values; which one differs between kernels. Nothing reads it.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator

import keras
from keras import ops

from keras_bertfam.layers.modeling.dropout import Dropout
from keras_bertfam.layers.modeling.sight import causal_mask, hiding
from keras_bertfam.types import Tensor

# Lengths that the kernel of TPUs takes are multiples of it.
LANES = 128
# What a TPU's kernel has in its memory at a time, the longest first that fits.
_BLOCKS = (512, 256, 128)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is asked of attention.

    Args:
        query: float tensor `(batch, queries, num_heads, head_dim)`.
        key: float tensor `(batch, keys, num_heads, head_dim)`.
        value: as the key.
        scale: float. What the scores are multiplied by.
        mask: bool tensor of rank 4 that broadcasts to the scores, true where a key is
            seen; or a float tensor that `prepared` made of one; or `None`.
        bias: float tensor of rank 4 that broadcasts to the scores, or `None`.
        causal: bool. Whether a query sees the keys up to its own place only.
        numbers: int tensor `(batch, length)`, or `None`. The mask in other words, for
            kernels that take these: queries see the keys of their own number.
        window: int. If it isn't 0, queries see the keys up to `window // 2` away; only
            what `kernel_for` has a kernel for.
        dropout: `Dropout` of the probabilities, `None` for none.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    mask: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False
    numbers: Tensor | None = None
    window: int = 0
    dropout: Dropout | None = None

    @property
    def dtype(self) -> str:
        return keras.backend.standardize_dtype(self.query.dtype)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A way to compute attention.

    Args:
        name: str.
        takes: function of what is asked: whether it gives what the explicit form does.
        compute: function of what is asked, to the means of values
            `(batch, queries, num_heads, head_dim)`.
    """

    name: str
    takes: Callable[[Asked], bool]
    compute: Callable[[Asked], Tensor]


def kernel_for(asked: Asked) -> Kernel | None:
    """The kernel for what is asked; `None` for the explicit form."""
    kernels = _KERNELS[keras.backend.backend()]
    return next((kernel for kernel in kernels if kernel.takes(asked)), None)


def knows_windows() -> bool:
    """Whether there are kernels here that know windows."""
    return keras.backend.backend() == "jax" and jax_platform() == "tpu"


def attend(asked: Asked) -> Tensor:
    """Means of values `(batch, queries, num_heads, head_dim)`."""
    kernel = kernel_for(asked)
    return explicit_attention(asked)[0] if kernel is None else kernel.compute(asked)


def explicit_attention(asked: Asked) -> tuple[Tensor, Tensor]:
    """Attention by its definition, with a softmax in float32.

    Returns:
        The means of values `(batch, queries, num_heads, head_dim)`, and the
        probabilities `(batch, num_heads, queries, keys)` before dropout, float32.
    """
    query = ops.transpose(asked.query * asked.scale, (0, 2, 1, 3))
    scores = ops.matmul(query, ops.transpose(asked.key, (0, 2, 3, 1)))
    scores = ops.cast(scores, "float32")
    if asked.bias is not None:
        scores += ops.cast(asked.bias, "float32")
    mask = _whole_mask(asked)
    if mask is not None:
        added = hiding(mask, "float32") if _is_bool(mask) else mask
        scores += ops.cast(added, "float32")
    scores = ops.softmax(scores)
    kept = ops.cast(scores, asked.dtype)
    if asked.dropout is not None:
        kept = asked.dropout(kept, training=True)
    context = ops.matmul(kept, ops.transpose(asked.value, (0, 2, 1, 3)))
    return ops.transpose(context, (0, 2, 1, 3)), scores


def _is_bool(mask):
    return keras.backend.standardize_dtype(mask.dtype) == "bool"


def _whole_mask(asked):
    """The mask, with what causal attention doesn't see."""
    if not asked.causal:
        return asked.mask
    seen = causal_mask(ops.shape(asked.query)[1], ops.shape(asked.key)[1])
    seen = ops.expand_dims(seen, 1)
    if asked.mask is None:
        return seen
    if _is_bool(asked.mask):
        return ops.logical_and(asked.mask, seen)
    return asked.mask + hiding(seen, asked.dtype)


def prepared(mask: Tensor, dtype: str) -> Tensor:
    """A mask as the kernels here want it, to be made once for many layers.

    Args:
        mask: bool tensor `(batch, queries, keys)`.
        dtype: name of the dtype of queries and keys.

    Returns:
        Under PyTorch, whose kernels add masks to scores, a float tensor of the same
        shape; else the mask.
    """
    if keras.backend.backend() != "torch":
        return mask
    import torch

    return _hiding_in_torch(mask, getattr(torch, dtype))


def _hiding_in_torch(mask, dtype):
    """`hiding`, without numbers from the host, for which a GPU would be waited for."""
    import torch

    least = -3e4 if dtype == torch.float16 else -1e9
    added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return added.masked_fill_(~mask, least)


# === PyTorch ===


def _sdpa_takes(asked):
    if asked.window:
        return False
    if asked.dropout is None:
        return True
    # On CPUs it would draw from PyTorch's generator, one number at a time, and compute
    # the scores as the explicit form does. `torch.compile` can't set a generator.
    import torch

    return asked.query.is_cuda and not torch.compiler.is_compiling()


def _sdpa(asked):
    """PyTorch's kernels: flash, cuDNN's, memory-efficient or for CPUs, as it chooses.

    Hidden keys have scores of -1e9, as everywhere here, and not -inf: rows that see no
    key would be NaN in some kernels.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    added, causal = asked.mask, asked.causal
    if causal and (added is not None or asked.bias is not None):
        added, causal = _whole_mask(asked), False  # they don't go together
    if added is not None and added.dtype == torch.bool:
        added = _hiding_in_torch(added, asked.query.dtype)
    elif added is not None:
        added = added.to(asked.query.dtype)
    if asked.bias is not None:
        bias = asked.bias.to(asked.query.dtype)
        added = bias if added is None else bias + added
    rate, scope = 0.0, contextlib.nullcontext()
    if asked.dropout is not None:
        rate = 1 - asked.dropout.kept_rate
        scope = asked.dropout.generator_of(asked.query.device)
    with scope:
        context = scaled_dot_product_attention(
            asked.query.transpose(1, 2),
            asked.key.transpose(1, 2),
            asked.value.transpose(1, 2),
            attn_mask=added,
            dropout_p=rate,
            is_causal=causal,
            scale=asked.scale,
        )
    return context.transpose(1, 2)


# === JAX ===

_lowered_for: contextvars.ContextVar = contextvars.ContextVar(
    "lowered_for", default=None
)


@contextlib.contextmanager
def lowered_for(platform: str, interpreted: bool = False) -> Iterator[None]:
    """Choose kernels of JAX as for another platform than this process computes on.

    For `jax.export` to a device that isn't here, and for tests.

    Args:
        platform: str. `"cpu"`, `"gpu"` or `"tpu"`.
        interpreted: bool. Whether kernels of TPUs are computed by Pallas's interpreter,
            on any device.
    """
    token = _lowered_for.set((platform, interpreted))
    try:
        yield
    finally:
        _lowered_for.reset(token)


def jax_platform() -> str:
    """The platform that JAX computes on: `"cpu"`, `"gpu"` or `"tpu"`.

    It is that of the default device, by which a whole process computes.
    `jax.lax.platform_dependent` would know more exactly, but it traces all branches:
    cuDNN's refuses to be traced where there is no cuDNN, and a gradient keeps what
    each of the branches needs, so the scores that no kernel has would be kept.
    """
    import jax

    chosen = _lowered_for.get()
    if chosen is not None:
        return chosen[0]
    device = jax.config.jax_default_device
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


def _interpreted():
    chosen = _lowered_for.get()
    return chosen is not None and chosen[1]


def _splash_takes(asked):
    if jax_platform() != "tpu" or asked.dropout is not None or asked.bias is not None:
        return False
    queries, keys = asked.query.shape[1], asked.key.shape[1]
    if queries % LANES or keys % LANES or not queries or not keys:
        return False
    if asked.causal and queries != keys:
        return False
    if _devices() > 1:
        # A kernel of Pallas isn't split over devices by XLA.
        return False
    return asked.mask is None or asked.numbers is not None or _hides_keys(asked)


def _devices():
    """Over how many devices Keras distributes."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.device_mesh.devices.size


def _hides_keys(asked):
    """Whether the mask is of keys only, the same for all queries and heads."""
    return asked.mask is not None and tuple(asked.mask.shape[1:3]) == (1, 1)


def _splash(asked):
    """Flash attention of TPUs, with numbers that say which keys a query sees."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    batch, queries, heads, _ = asked.query.shape
    keys = asked.key.shape[1]
    shape = queries, keys
    if asked.causal:
        mask = splash.CausalMask(shape)
    elif asked.window:
        mask = splash.LocalMask(shape, (asked.window // 2, asked.window // 2), 0)
    else:
        mask = splash.FullMask(shape)
    q_block, kv_block = (
        next(block for block in _BLOCKS if length % block == 0) for length in shape
    )
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([mask] * heads),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=splash.BlockSizes(
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
        numbers = splash.SegmentIds(q=ids, kv=ids)
    elif asked.mask is not None:
        seen = jnp.broadcast_to(asked.mask[:, 0, 0], (batch, keys)).astype("int32")
        numbers = splash.SegmentIds(q=jnp.ones((batch, queries), "int32"), kv=seen)
    turned = (
        part.transpose(0, 2, 1, 3)
        # The kernel has no scale.
        for part in (asked.query * asked.scale, asked.key, asked.value)
    )
    axes = (0, 0, 0, None if numbers is None else 0)
    context = jax.vmap(kernel, in_axes=axes)(*turned, numbers)
    return context.transpose(0, 2, 1, 3).astype(asked.query.dtype)


def _cudnn_takes(asked):
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
        # Gradients of what is masked or biased want even lengths.
        and all(shape[1] > 1 and shape[1] % 2 == 0 for shape in shapes)
    )


def _compute_capability():
    """That of the default NVIDIA GPU as two ints, (0, 0) for other makers' GPUs."""
    import jax

    if _lowered_for.get() is not None:
        return 8, 0
    device = jax.local_devices(backend="gpu")[0]
    if "cuda" not in device.client.platform_version.lower():
        return 0, 0
    major, minor = str(device.compute_capability).split(".")
    return int(major), int(minor)


def _cudnn(asked):
    """cuDNN's flash attention, with masks in the layout that it takes."""
    import jax
    import jax.numpy as jnp

    batch, queries, heads, _ = asked.query.shape
    keys, mask, bias = asked.key.shape[1], asked.mask, asked.bias
    if mask is not None:
        # It takes masks of keys as well, but doesn't compute these by the kernel.
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


def _xla_takes(asked):
    # It multiplies half precision in a way that XLA has not on CPUs.
    lacks = asked.dtype == "float16" and jax_platform() == "cpu"
    return asked.dropout is None and not asked.window and not lacks


def _by_xla(asked):
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


_KERNELS: dict[str, tuple[Kernel, ...]] = {
    "tensorflow": (),
    "torch": (Kernel("scaled_dot_product_attention", _sdpa_takes, _sdpa),),
    "jax": (
        Kernel("splash", _splash_takes, _splash),
        Kernel("cudnn", _cudnn_takes, _cudnn),
        Kernel("xla", _xla_takes, _by_xla),
    ),
}
