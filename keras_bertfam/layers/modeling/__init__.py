"""Backend-agnostic layers."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.modeling.adaptive import (
        AdaptiveEmbedding,
        AdaptiveSoftmax,
    )
    from keras_bertfam.layers.modeling.attention import SelfAttention
    from keras_bertfam.layers.modeling.character_encoder import (
        CharacterEncoder,
        Highway,
    )
    from keras_bertfam.layers.modeling.cross_attention import CrossAttention
    from keras_bertfam.layers.modeling.detection import (
        CopyingMaskedLMHead,
        ReplacedTokenHead,
    )
    from keras_bertfam.layers.modeling.dropout import Dropout
    from keras_bertfam.layers.modeling.embedding import EncoderEmbedding, TokenEmbedding
    from keras_bertfam.layers.modeling.head_gates import HeadGates
    from keras_bertfam.layers.modeling.heads import (
        MaskedLMHead,
        Pooler,
        SentencePairHead,
    )
    from keras_bertfam.layers.modeling.lm_head import LanguageModelHead
    from keras_bertfam.layers.modeling.local_attention import LocalSelfAttention
    from keras_bertfam.layers.modeling.memory import SegmentMemory, StateMemory
    from keras_bertfam.layers.modeling.projected_lstm import (
        BidirectionalLSTM,
        ProjectedLSTMCell,
    )
    from keras_bertfam.layers.modeling.projection import VectorProjection
    from keras_bertfam.layers.modeling.relative_attention import (
        RelativeAttention,
        relative_sinusoids,
    )
    from keras_bertfam.layers.modeling.relative_bias import RelativePositionBias
    from keras_bertfam.layers.modeling.relative_block import RelativeTransformerBlock
    from keras_bertfam.layers.modeling.relative_transformer import (
        RelativeTransformerStack,
    )
    from keras_bertfam.layers.modeling.sampled_logits import SampledLogits
    from keras_bertfam.layers.modeling.sampling import SampleTokens
    from keras_bertfam.layers.modeling.scalar_mix import ScalarMix
    from keras_bertfam.layers.modeling.span_boundary import SpanBoundaryHead
    from keras_bertfam.layers.modeling.span_head import (
        ConditionalSpanHead,
        SpanHead,
        TransformedSpanHead,
    )
    from keras_bertfam.layers.modeling.span_scores import SpanScores
    from keras_bertfam.layers.modeling.stack_heads import NoAttention
    from keras_bertfam.layers.modeling.sublayers import FeedForward, ResidualSublayer
    from keras_bertfam.layers.modeling.summary_head import SummaryHead
    from keras_bertfam.layers.modeling.tied_logits import TiedLogits
    from keras_bertfam.layers.modeling.transformer import TransformerStack

__all__ = [
    "AdaptiveEmbedding",
    "AdaptiveSoftmax",
    "BidirectionalLSTM",
    "CharacterEncoder",
    "ConditionalSpanHead",
    "CopyingMaskedLMHead",
    "CrossAttention",
    "Dropout",
    "EncoderEmbedding",
    "FeedForward",
    "HeadGates",
    "Highway",
    "LanguageModelHead",
    "LocalSelfAttention",
    "MaskedLMHead",
    "NoAttention",
    "Pooler",
    "ProjectedLSTMCell",
    "RelativeAttention",
    "RelativePositionBias",
    "RelativeTransformerBlock",
    "RelativeTransformerStack",
    "ReplacedTokenHead",
    "ResidualSublayer",
    "SampleTokens",
    "SampledLogits",
    "ScalarMix",
    "SegmentMemory",
    "SelfAttention",
    "SentencePairHead",
    "SpanBoundaryHead",
    "SpanHead",
    "SpanScores",
    "StateMemory",
    "SummaryHead",
    "TiedLogits",
    "TokenEmbedding",
    "TransformedSpanHead",
    "TransformerStack",
    "VectorProjection",
    "relative_sinusoids",
]

lazy.attach(__name__)
