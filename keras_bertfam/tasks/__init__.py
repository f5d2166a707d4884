"""Pre-training tasks, each beside the preprocessor that feeds it."""

from keras_bertfam.tasks.losses import MaskedCrossentropy, Perplexity
from keras_bertfam.tasks.masked_lm import MaskedLM
from keras_bertfam.tasks.masked_lm_preprocessor import MaskedLMPreprocessor

__all__ = [
    "MaskedCrossentropy",
    "MaskedLM",
    "MaskedLMPreprocessor",
    "Perplexity",
]
