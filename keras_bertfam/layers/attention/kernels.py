"""The choice of a kernel for attention: by backend, device and inputs.

All attention with queries, keys and values goes through this module.
`explicit_attention` defines the result. Every other kernel must give the same up to
rounding, and is chosen only where it is known to. Keras's own
`ops.dot_product_attention` isn't used, because of three faults of Keras 3.15 with JAX
on TPUs: without a mask its attention is causal and unscaled; it ignores a bias; and it
uses the first row's mask for all rows.

| backend | where | how |
|---|---|---|
| TensorFlow | everywhere | the explicit form, which XLA fuses |
| JAX | TPUs, lengths in 128s, no dropout or bias | splash attention |
| JAX | NVIDIA's GPUs, half precision, no dropout | cuDNN's kernel |
| JAX | elsewhere, without dropout | `jax.nn.dot_product_attention`, by XLA |
| PyTorch | without dropout; on GPUs also with it | `scaled_dot_product_attention` |
| each | all other cases, and if probabilities are wanted | the explicit form |

A query that sees no key at all, such as padding in a packed row, gets some mean of the
values. Kernels differ in which one, and nothing reads it.
"""

import dataclasses
from collections.abc import Callable

import keras
from keras import ops

from keras_bertfam.layers.attention.definition import Asked, explicit_attention
from keras_bertfam.layers.attention.jax_kernels import (
    by_xla,
    cudnn,
    cudnn_takes,
    jax_platform,
    splash,
    splash_takes,
    xla_takes,
)
from keras_bertfam.layers.attention.torch_kernels import (
    hiding_in_torch,
    sdpa,
    sdpa_takes,
)
from keras_bertfam.layers.blocks.recomputation import recomputed
from keras_bertfam.types import Tensor


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A way to compute attention.

    Args:
        name: str.
        takes: function of an `Asked` that tells whether the kernel gives the result of
            the explicit form for it.
        compute: function of an `Asked` that gives the weighted means of the values,
            `(batch, queries, num_heads, head_dim)`.
        keeps_scores: bool. Whether the kernel keeps the scores of all pairs for the
            gradient.
    """

    name: str
    takes: Callable[[Asked], bool]
    compute: Callable[[Asked], Tensor]
    keeps_scores: bool = False


_EXPLICIT = Kernel(
    "explicit",
    lambda asked: True,
    lambda asked: explicit_attention(asked)[0],
    keeps_scores=True,
)
_KERNELS: dict[str, tuple[Kernel, ...]] = {
    "tensorflow": (),
    "torch": (Kernel("scaled_dot_product_attention", sdpa_takes, sdpa),),
    "jax": (
        Kernel("splash", splash_takes, splash),
        Kernel("cudnn", cudnn_takes, cudnn),
        Kernel("xla", xla_takes, by_xla, keeps_scores=True),
    ),
}


def kernel_for(asked: Asked) -> Kernel | None:
    """Choose the kernel for an attention; `None` stands for the explicit form."""
    kernels = _KERNELS[keras.backend.backend()]
    return next((kernel for kernel in kernels if kernel.takes(asked)), None)


def knows_patterns() -> bool:
    """Tell whether this device's kernels take windows, and key masks in causal rows.

    On other devices such patterns become masks of all pairs of query and key.
    """
    return keras.backend.backend() == "jax" and jax_platform() == "tpu"


def attend(asked: Asked, recomputes: bool = False) -> Tensor:
    """Compute an attention by the kernel that `kernel_for` chooses.

    Args:
        asked: `Asked`.
        recomputes: bool. Whether to compute the scores again for the gradient, if the
            kernel would keep them.

    Returns:
        Weighted means of the values, `(batch, queries, num_heads, head_dim)`.
    """
    kernel = kernel_for(asked) or _EXPLICIT
    if not (recomputes and kernel.keeps_scores):
        return kernel.compute(asked)

    def compute(**tensors):
        return kernel.compute(dataclasses.replace(asked, **tensors))

    layers = [] if asked.dropout is None else [asked.dropout]
    tensors = {n: x for n, x in vars(asked).items() if ops.is_tensor(x)}
    return recomputed(compute, layers)(**tensors)


def added_mask(mask: Tensor, dtype: str) -> Tensor | None:
    """Make a mask that kernels add to scores, once for many layers.

    Args:
        mask: bool tensor `(batch, queries, keys)`.
        dtype: name of the dtype of queries and keys.

    Returns:
        Float tensor of the same shape with PyTorch. `None` with the other backends,
        whose kernels take bool masks.
    """
    if keras.backend.backend() != "torch":
        return None
    import torch

    return hiding_in_torch(mask, getattr(torch, dtype))
