"""Corruption: which positions of a batch, what replaces them, and the targets."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.corruption.denoise_tokens import DenoiseTokens
    from keras_bertfam.layers.corruption.document_noises import (
        DocumentRotation,
        Noises,
        SentencePermutation,
        TextInfilling,
        TokenDeletion,
        TokenMasking,
    )
    from keras_bertfam.layers.corruption.mask_tokens import MaskTokens
    from keras_bertfam.layers.corruption.mixture import Mixture
    from keras_bertfam.layers.corruption.objectives import Corrupted, DenoisingObjective
    from keras_bertfam.layers.corruption.permute_tokens import PermuteTokens
    from keras_bertfam.layers.corruption.span_objectives import PrefixLM, RandomSpans
    from keras_bertfam.layers.corruption.strategies import (
        MaskingStrategy,
        SmoothedTokens,
    )
    from keras_bertfam.layers.corruption.text_objectives import MassFragment
    from keras_bertfam.layers.corruption.word_strategies import (
        GeometricSpans,
        GivenSpans,
        KnowledgeMasking,
        NGrams,
        NGramWindows,
        SalientSpans,
        WholeWords,
    )

__all__ = [
    "Corrupted",
    "DenoiseTokens",
    "DenoisingObjective",
    "DocumentRotation",
    "GeometricSpans",
    "GivenSpans",
    "KnowledgeMasking",
    "MaskTokens",
    "MaskingStrategy",
    "MassFragment",
    "Mixture",
    "NGramWindows",
    "NGrams",
    "Noises",
    "PermuteTokens",
    "PrefixLM",
    "RandomSpans",
    "SalientSpans",
    "SentencePermutation",
    "SmoothedTokens",
    "TextInfilling",
    "TokenDeletion",
    "TokenMasking",
    "WholeWords",
]

lazy.attach(__name__)
