"""Dense layers applied to `(batch, length, width)` tensors."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from keras_bertfam.types import Tensor


def flat_dense(layer: keras.layers.Dense, x: Tensor) -> Tensor:
    """Apply a `Dense` layer as one 2-D matrix product.

    Compilers turn a product with a 3-D operand into slower code: JAX on a CPU
    takes 1.6 times as long for the feed-forward sub-layer.

    Args:
        layer: a built `keras.layers.Dense`.
        x: float tensor of shape `(..., width)`.

    Returns:
        Float tensor of shape `(..., layer.units)`.
    """
    if _is_plain(layer, x):
        return _with_bias(layer, x)
    shape = ops.shape(x)
    flat = layer(ops.reshape(x, (-1, x.shape[-1])))
    return ops.reshape(flat, (*shape[:-1], layer.units))


def mark_matrices(layer: keras.layers.Dense, *widths: int) -> None:
    """Say that a layer's kernel is matrices of these widths, side by side.

    `keras_bertfam.optimizers.Muon` updates each of them by itself.

    Args:
        layer: a built `keras.layers.Dense` of a Transformer block.
        *widths: int, numbers of columns; none if the kernel is one matrix.
    """
    if layer.quantization_mode is None:  # others have no kernel to train
        layer.kernel.matrix_widths = widths or (layer.units,)
        in_16_bits = layer.compute_dtype == "bfloat16"
        layer.kernel.matrix_dtype = "bfloat16" if in_16_bits else "float32"


def _is_plain(layer, x):
    """Tell whether PyTorch can compute a dense layer's product and bias in one call.

    Keras adds the bias in a separate pass, and the Python code around its call takes
    as long as the product on a GPU.
    """
    return (
        keras.backend.backend() == "torch"
        and type(layer) is keras.layers.Dense
        and layer.built
        and layer.use_bias
        and layer.quantization_mode is None
        and not layer.lora_enabled
        and layer.activation is keras.activations.linear
        and str(x.dtype) == f"torch.{layer.compute_dtype}"
    )


# Within `weights_cast_once`: weights in 16 bits, by variable.
_casts: contextvars.ContextVar[dict[Any, Any] | None] = contextvars.ContextVar(
    "casts", default=None
)


@contextlib.contextmanager
def weights_cast_once() -> Iterator[None]:
    """Let PyTorch cast weights to 16 bits once in this context, not in every call.

    The weights must not change meanwhile.
    """
    token = _casts.set({})
    try:
        yield
    finally:
        _casts.reset(token)


def _cast(weight, x):
    import torch

    compiles = torch.compiler.is_compiling()
    casts = None if compiles or torch.is_grad_enabled() else _casts.get()
    if casts is None:
        return weight.value.to(x.dtype)
    # Keras also calls layers on a device without numbers, to learn shapes.
    key = id(weight), x.dtype, x.device
    if key not in casts:
        casts[key] = weight.value.to(x.dtype)
    return casts[key]


def _with_bias(layer, x):
    import torch

    # Cast the weights here, since the layer's own autocast scope is skipped.
    kernel, bias = (_cast(weight, x) for weight in (layer.kernel, layer.bias))
    flat = torch.addmm(bias, x.reshape(-1, x.shape[-1]), kernel)
    return flat.reshape(*x.shape[:-1], layer.units)


def take_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Take the states at given positions of each row.

    Args:
        x: tensor of shape `(batch, length, width)`.
        positions: int tensor of shape `(batch, count)`.

    Returns:
        Tensor of shape `(batch, count, width)`.
    """
    batch, length, width = ops.shape(x)
    rows = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)
    indices = ops.cast(positions, "int32") + rows
    return ops.take(ops.reshape(x, (-1, width)), indices, axis=0)


def get_activation(name: str | None) -> Callable[[Tensor], Tensor]:
    """Find an activation by name.

    `"gelu"` is the exact form with erf, `"gelu_tanh"` its approximation by tanh. They
    differ by up to 5e-4, so a checkpoint needs the one that it was trained with.

    Raises:
        ValueError: for another name.
    """
    if name == "gelu_tanh":
        return _gelu_tanh
    if name == "gelu":
        return _gelu_erf
    try:
        return keras.activations.get(name)
    except (TypeError, ValueError) as error:
        raise ValueError(
            '`activation` must be "gelu", "gelu_tanh" or the name of an activation of '
            f"Keras. Received: activation={name!r}."
        ) from error


def _gelu_erf(x):
    return ops.gelu(x, approximate=False)


def _gelu_tanh(x):
    return ops.gelu(x, approximate=True)
