"""Pre-training tasks, each beside the preprocessor that feeds it."""

from keras_bertfam.layers.preprocessing.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.layers.preprocessing.masked_lm_sentence_pair_preprocessor import (
    MaskedLMSentencePairPreprocessor,
)
from keras_bertfam.tasks.losses import MaskedCrossentropy, Perplexity
from keras_bertfam.tasks.masked_lm import MaskedLM
from keras_bertfam.tasks.masked_lm_sentence_pair import MaskedLMSentencePair

__all__ = [
    "MaskedCrossentropy",
    "MaskedLM",
    "MaskedLMPreprocessor",
    "MaskedLMSentencePair",
    "MaskedLMSentencePairPreprocessor",
    "Perplexity",
]
