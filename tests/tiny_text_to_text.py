"""Backbones that read from left to right or write a text, as small as can be."""

import keras
import numpy as np

from keras_bertfam import models

SIZES = dict(
    vocabulary_size=30, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=12
)
# Large initial weights: states must depend on what they see.
SETTINGS = {**SIZES, "dropout": 0.0, "attention_dropout": 0.0}
GATED = {"gated": True, "activation": "gelu_tanh", "tie_embeddings": False}


def make(name, **kwargs):
    """A backbone by its class's name, or `"T5Gated"`, with large weights."""
    keras.utils.set_random_seed(1)
    settings = {**SETTINGS, **kwargs}
    if name.startswith("T5"):
        settings = {"activation_dropout": 0.0, "output_dropout": 0.0, **settings}
        settings |= GATED if name == "T5Gated" else {}
        return models.T5Backbone(head_dim=3, relative_distance=20, **settings)
    settings = {"initializer_range": 0.3, "max_sequence_length": 16, **settings}
    settings = {key: x for key, x in settings.items() if x is not None}
    return getattr(models, f"{name}Backbone")(**settings)


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(3, 30, shape).astype("int32")
