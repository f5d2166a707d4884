"""Pre-training tasks, each beside the preprocessor that feeds it."""

from keras_bertfam.layers.preprocessing.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.layers.preprocessing.masked_lm_sentence_pair_preprocessor import (
    MaskedLMSentencePairPreprocessor,
)
from keras_bertfam.layers.preprocessing.permutation_lm_preprocessor import (
    PermutationLMPreprocessor,
)
from keras_bertfam.layers.preprocessing.replaced_token_detection_preprocessor import (
    ReplacedTokenDetectionPreprocessor,
)
from keras_bertfam.layers.preprocessing.span_boundary_lm_preprocessor import (
    SpanBoundaryLMPreprocessor,
)
from keras_bertfam.tasks.distillation import DISTILLATION_RECIPES
from keras_bertfam.tasks.distiller import Distiller
from keras_bertfam.tasks.losses import MaskedCrossentropy, Perplexity
from keras_bertfam.tasks.masked_lm import MaskedLM
from keras_bertfam.tasks.masked_lm_sentence_pair import MaskedLMSentencePair
from keras_bertfam.tasks.permutation_lm import PermutationLM
from keras_bertfam.tasks.replaced_token_detection import ReplacedTokenDetection
from keras_bertfam.tasks.span_boundary_lm import SpanBoundaryLM

__all__ = [
    "DISTILLATION_RECIPES",
    "Distiller",
    "MaskedCrossentropy",
    "MaskedLM",
    "MaskedLMPreprocessor",
    "MaskedLMSentencePair",
    "MaskedLMSentencePairPreprocessor",
    "PermutationLM",
    "PermutationLMPreprocessor",
    "Perplexity",
    "ReplacedTokenDetection",
    "ReplacedTokenDetectionPreprocessor",
    "SpanBoundaryLM",
    "SpanBoundaryLMPreprocessor",
]
