"""Perturbed embeddings, for adversarial training."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from keras import ops

from keras_bertfam.types import Tensor

# The layer whose embeddings are moved, and the perturbation.
_current: contextvars.ContextVar[tuple[Any, Tensor] | None] = contextvars.ContextVar(
    "perturbation", default=None
)


@contextlib.contextmanager
def perturbing(layer: Any, delta: Tensor) -> Iterator[None]:
    """Let a layer move its embeddings, in all calls in this context.

    Args:
        layer: `EncoderEmbedding` or `TokenEmbedding`.
        delta: float tensor `(batch, length, embedding_dim)`, in units of each vector's
            standard deviation; see `perturbed`.
    """
    token = _current.set((layer, ops.convert_to_tensor(delta, "float32")))
    try:
        yield
    finally:
        _current.reset(token)


def perturbed(layer: Any, x: Tensor) -> Tensor:
    """Move a layer's embeddings, inside `perturbing` for this layer.

    The result is `stop_gradient(x) + deviation * delta`, where `deviation` is the
    standard deviation of each vector's numbers. If a layer norm follows, its output is
    the one for the normalised vector plus `delta`, as in the reference. If none
    follows, the perturbation still has the vector's scale.

    Args:
        layer: the layer that calls.
        x: float tensor `(batch, length, embedding_dim)`.

    Returns:
        Float tensor of that shape: `x` itself outside of `perturbing`.

    Reference: DeBERTa's code, sift.py.
    """
    found = _current.get()
    if found is None or found[0] is not layer:
        return x
    wide = ops.stop_gradient(ops.cast(x, "float32"))
    deviation = ops.sqrt(ops.var(wide, axis=-1, keepdims=True) + 1e-7)
    return ops.cast(wide + deviation * found[1], x.dtype)
