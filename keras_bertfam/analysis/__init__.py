"""What trained models have learned."""

from keras_bertfam.analysis.layerwise import layer_transitions
from keras_bertfam.analysis.likelihood import pseudo_log_likelihood

__all__ = ["layer_transitions", "pseudo_log_likelihood"]
