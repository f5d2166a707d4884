"""Modeling and preprocessing layers and dataset transformations."""

from keras_bertfam.layers import modeling, preprocessing
from keras_bertfam.layers.modeling import *  # noqa: F403
from keras_bertfam.layers.preprocessing import *  # noqa: F403

__all__ = [*modeling.__all__, *preprocessing.__all__]
