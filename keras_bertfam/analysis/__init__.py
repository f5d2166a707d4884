"""What trained models have learned."""

from keras_bertfam.analysis.layerwise import layer_transitions

__all__ = ["layer_transitions"]
