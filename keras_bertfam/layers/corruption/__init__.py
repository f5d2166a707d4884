"""Which positions of a batch, what replaces them, and what the targets are."""

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
    from keras_bertfam.layers.corruption.objectives import (
        Corrupted,
        DenoisingObjective,
        DenoisingVocabulary,
    )
    from keras_bertfam.layers.corruption.permute_tokens import PermuteTokens
    from keras_bertfam.layers.corruption.span_objectives import (
        IidDrop,
        IidReplaceSpans,
        PrefixLM,
        RandomSpans,
        random_spans_lengths,
    )
    from keras_bertfam.layers.corruption.strategies import (
        IndependentTokens,
        MaskingStrategy,
        SmoothedTokens,
    )
    from keras_bertfam.layers.corruption.text_objectives import (
        BertStyle,
        Deshuffling,
        Mass,
        MassFragment,
    )
    from keras_bertfam.layers.corruption.word_strategies import (
        GeometricSpans,
        GivenSpans,
        KnowledgeMasking,
        NGrams,
        SalientSpans,
        WholeWords,
    )

__all__ = [
    "BertStyle",
    "Corrupted",
    "DenoiseTokens",
    "DenoisingObjective",
    "DenoisingVocabulary",
    "Deshuffling",
    "DocumentRotation",
    "GeometricSpans",
    "GivenSpans",
    "IidDrop",
    "IidReplaceSpans",
    "IndependentTokens",
    "KnowledgeMasking",
    "MaskTokens",
    "MaskingStrategy",
    "Mass",
    "MassFragment",
    "Mixture",
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
    "random_spans_lengths",
]

lazy.attach(__name__)
