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
        takes: function of what is asked: whether it gives what the explicit form does.
        compute: function of what is asked, to the means of values
            `(batch, queries, num_heads, head_dim)`.
        keeps_scores: bool. Whether those of all pairs are kept for the gradient.
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
    """Choose the kernel for what is asked; `None` for the explicit form."""
    kernels = _KERNELS[keras.backend.backend()]
    return next((kernel for kernel in kernels if kernel.takes(asked)), None)


def knows_patterns() -> bool:
    """Tell whether kernels here know windows, and masks of keys in causal rows.

    Elsewhere such patterns are masks of all pairs.
    """
    return keras.backend.backend() == "jax" and jax_platform() == "tpu"


def attend(asked: Asked, recomputes: bool = False) -> Tensor:
    """Compute what is asked by the kernel for it.

    Args:
        asked: `Asked`.
        recomputes: bool. Whether scores of all pairs are computed again for the
            gradient, where a kernel would keep them.

    Returns:
        Means of values `(batch, queries, num_heads, head_dim)`.
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
    """Make what hides keys when a kernel adds it to scores, once for many layers.

    Args:
        mask: bool tensor `(batch, queries, keys)`.
        dtype: name of the dtype of queries and keys.

    Returns:
        Float tensor of the same shape under PyTorch; `None` where kernels take bools.
    """
    if keras.backend.backend() != "torch":
        return None
    import torch

    return hiding_in_torch(mask, getattr(torch, dtype))
