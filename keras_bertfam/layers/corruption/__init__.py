"""Which positions of a batch, what replaces them, and what the targets are."""

from keras_bertfam.layers.corruption.mask_tokens import MaskTokens
from keras_bertfam.layers.corruption.permutation import PermuteTokens
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.layers.corruption.token_strategies import (
    IndependentTokens,
    SmoothedTokens,
)
from keras_bertfam.layers.corruption.word_strategies import (
    GeometricSpans,
    GivenSpans,
    NGrams,
    WholeWords,
)

__all__ = [
    "GeometricSpans",
    "GivenSpans",
    "IndependentTokens",
    "MaskTokens",
    "MaskingStrategy",
    "NGrams",
    "PermuteTokens",
    "SmoothedTokens",
    "WholeWords",
]
