"""Backend-agnostic layers."""

from keras_bertfam.layers.modeling.attention import SelfAttention
from keras_bertfam.layers.modeling.detection import (
    CopyingMaskedLMHead,
    ReplacedTokenHead,
)
from keras_bertfam.layers.modeling.dropout import Dropout
from keras_bertfam.layers.modeling.embedding import EncoderEmbedding, TokenEmbedding
from keras_bertfam.layers.modeling.heads import (
    MaskedLMHead,
    Pooler,
    SentencePairHead,
)
from keras_bertfam.layers.modeling.sampling import SampleTokens
from keras_bertfam.layers.modeling.span_boundary import SpanBoundaryHead
from keras_bertfam.layers.modeling.sublayers import FeedForward, ResidualSublayer
from keras_bertfam.layers.modeling.transformer import TransformerStack

__all__ = [
    "CopyingMaskedLMHead",
    "Dropout",
    "EncoderEmbedding",
    "FeedForward",
    "MaskedLMHead",
    "Pooler",
    "ReplacedTokenHead",
    "ResidualSublayer",
    "SampleTokens",
    "SelfAttention",
    "SentencePairHead",
    "SpanBoundaryHead",
    "TokenEmbedding",
    "TransformerStack",
]
