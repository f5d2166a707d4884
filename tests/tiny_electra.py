"""A real ELECTRA and real data, small enough to run anywhere."""

import functools

import keras
import numpy as np

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import ElectraBackbone
from keras_bertfam.tasks import (
    ReplacedTokenDetection,
    ReplacedTokenDetectionPreprocessor,
)
from tests import tiny_masked_lm as tiny


def make_preprocessor(**kwargs):
    tokenizer = BertTokenizer([*tiny.SPECIALS, *tiny.WORDS], lowercase=True)
    settings = {"sequence_length": 16, "mask_selection_rate": 0.3, **kwargs}
    return ReplacedTokenDetectionPreprocessor(tokenizer, **settings)


def make_backbone(**kwargs):
    settings = {
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "embedding_dim": 8,
        "max_sequence_length": 16,
        "dropout": 0.0,
    }
    size = len(tiny.SPECIALS) + len(tiny.WORDS)
    return ElectraBackbone(size, **{**settings, **kwargs})


def make_model(backbone=None, dropout=0.0, **kwargs):
    keras.utils.set_random_seed(3)
    size = {} if kwargs.get("generator") else {"generator_size": 0.5}
    settings = {**size, "seed": 0, **kwargs}
    backbone = make_backbone(dropout=dropout) if backbone is None else backbone
    model = ReplacedTokenDetection(backbone, make_preprocessor(), **settings)
    return compiled(model)


def compiled(model, **kwargs):
    """Without XLA on TensorFlow, which takes 20 s for the first step."""
    jit_compile = keras.backend.backend() == "jax"
    settings = {"learning_rate": 1e-2, "jit_compile": jit_compile, **kwargs}
    model.compile(**settings)
    return model


def stream(model, batch_size=8, **kwargs):
    """The preprocessor's dataset; `training=True` gives 60 // 8 = 7 batches."""
    return model.preprocessor.dataset(
        tiny.documents(), batch_size, packing="doc", break_lines=False, **kwargs
    )


@functools.cache
def rows():
    """All 60 rows, masked once, as NumPy arrays."""
    preprocessor = make_preprocessor()
    data = preprocessor.dataset(
        tiny.documents(), 60, packing="doc", break_lines=False, training=False
    )
    return {name: np.asarray(value) for name, value in next(iter(data)).items()}


def batch(count=8):
    """The first rows, as NumPy arrays."""
    return {name: value[:count] for name, value in rows().items()}
