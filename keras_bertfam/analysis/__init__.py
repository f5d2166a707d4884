"""What trained models have learned."""

from keras_bertfam.analysis import plots
from keras_bertfam.analysis.layerwise import layer_transitions
from keras_bertfam.analysis.likelihood import pseudo_log_likelihood
from keras_bertfam.analysis.report import Report
from keras_bertfam.analysis.word_vectors import embed_words

__all__ = [
    "Report",
    "embed_words",
    "layer_transitions",
    "plots",
    "pseudo_log_likelihood",
]
