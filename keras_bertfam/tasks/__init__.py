"""Pre-training tasks, each beside the preprocessor that feeds it."""

from keras_bertfam.layers.preprocessing.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.tasks.losses import MaskedCrossentropy, Perplexity
from keras_bertfam.tasks.masked_lm import MaskedLM

__all__ = [
    "MaskedCrossentropy",
    "MaskedLM",
    "MaskedLMPreprocessor",
    "Perplexity",
]
