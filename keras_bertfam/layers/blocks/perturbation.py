"""Embeddings that are moved a little, for adversarial training."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from keras import ops

from keras_bertfam.types import Tensor

# The layer that is moved, and by what.
_current: contextvars.ContextVar[tuple[Any, Tensor] | None] = contextvars.ContextVar(
    "perturbation", default=None
)


@contextlib.contextmanager
def perturbing(layer: Any, delta: Tensor) -> Iterator[None]:
    """Let a layer move what it embeds, in calls that are made in this context.

    Args:
        layer: `EncoderEmbedding` or `TokenEmbedding`.
        delta: float tensor `(batch, length, embedding_dim)`. A vector's numbers are
            moved by so many times their deviation; see `perturbed`.
    """
    token = _current.set((layer, ops.convert_to_tensor(delta, "float32")))
    try:
        yield
    finally:
        _current.reset(token)


def perturbed(layer: Any, x: Tensor) -> Tensor:
    """Move the embeddings of a layer, if it is asked for by `perturbing`.

    What comes out is `stop_gradient(x) + deviation * delta`, with the deviation of each
    vector. A norm that follows makes of it what it would make of the normalised vector
    and `delta`, as in the reference; and where none follows, what is moved has its own
    scale.

    Args:
        layer: the layer.
        x: float tensor `(batch, length, embedding_dim)`.

    Reference: DeBERTa's code, sift.py.
    """
    found = _current.get()
    if found is None or found[0] is not layer:
        return x
    wide = ops.stop_gradient(ops.cast(x, "float32"))
    deviation = ops.sqrt(ops.var(wide, axis=-1, keepdims=True) + 1e-7)
    return ops.cast(wide + deviation * found[1], x.dtype)
