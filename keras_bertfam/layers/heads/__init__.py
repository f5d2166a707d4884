"""From states to what an objective predicts: tokens, spans, classes, vectors."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.heads.adaptive import AdaptiveEmbedding, AdaptiveSoftmax
    from keras_bertfam.layers.heads.detection import (
        CopyingMaskedLMHead,
        ReplacedTokenHead,
    )
    from keras_bertfam.layers.heads.heads import MaskedLMHead, Pooler, SentencePairHead
    from keras_bertfam.layers.heads.lm_head import LanguageModelHead
    from keras_bertfam.layers.heads.projection import VectorProjection
    from keras_bertfam.layers.heads.sampled_logits import SampledLogits
    from keras_bertfam.layers.heads.sampling import SampleTokens
    from keras_bertfam.layers.heads.scalar_mix import ScalarMix
    from keras_bertfam.layers.heads.span_boundary import SpanBoundaryHead
    from keras_bertfam.layers.heads.span_heads import (
        ConditionalSpanHead,
        SpanHead,
        SpanScores,
        TransformedSpanHead,
    )
    from keras_bertfam.layers.heads.summary_head import SummaryHead
    from keras_bertfam.layers.heads.tied_logits import TiedLogits

__all__ = [
    "AdaptiveEmbedding",
    "AdaptiveSoftmax",
    "ConditionalSpanHead",
    "CopyingMaskedLMHead",
    "LanguageModelHead",
    "MaskedLMHead",
    "Pooler",
    "ReplacedTokenHead",
    "SampleTokens",
    "SampledLogits",
    "ScalarMix",
    "SentencePairHead",
    "SpanBoundaryHead",
    "SpanHead",
    "SpanScores",
    "SummaryHead",
    "TiedLogits",
    "TransformedSpanHead",
    "VectorProjection",
]

lazy.attach(__name__)
