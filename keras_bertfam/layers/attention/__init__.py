"""Attention: which keys are seen, by which kernel, and the layers that attend."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.attention.cross_attention import CrossAttention
    from keras_bertfam.layers.attention.head_gates import HeadGates
    from keras_bertfam.layers.attention.local_attention import LocalSelfAttention
    from keras_bertfam.layers.attention.relative_bias import RelativePositionBias
    from keras_bertfam.layers.attention.self_attention import SelfAttention
    from keras_bertfam.layers.attention.stack_heads import NoAttention

__all__ = [
    "CrossAttention",
    "HeadGates",
    "LocalSelfAttention",
    "NoAttention",
    "RelativePositionBias",
    "SelfAttention",
]

lazy.attach(__name__)
