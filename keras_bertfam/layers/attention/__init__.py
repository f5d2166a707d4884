"""Attention: which keys are seen, by which kernel, and the layers that attend."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.attention.self_attention import SelfAttention

__all__ = [
    "SelfAttention",
]

lazy.attach(__name__)
