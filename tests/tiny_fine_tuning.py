"""Backbones of every family and labelled text, small enough to run anywhere."""

import keras
import numpy as np
import pytest

from keras_bertfam import models
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.presets import families
from tests.tiny_masked_lm import SPECIALS, WORDS

ENCODERS = (models.EncoderBackbone, models.XLNetBackbone)
FAMILIES = {
    name: families.BACKBONES[name]
    for name, record in families.FAMILIES.items()
    if record.sizes and not record.arguments.get("causal")
    if issubclass(families.BACKBONES[name], ENCODERS)
}
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
PIECES = ["##s", "##ing"]


def fast_families(*fast):
    """Families to test with; all but these are slow."""
    slow = [pytest.mark.slow, pytest.mark.any_backend]
    return [f if f in fast else pytest.param(f, marks=slow) for f in FAMILIES]


def make_tokenizer():
    return BertTokenizer([*SPECIALS, *WORDS, *PIECES], lowercase=True)


def make_backbone(family="bert", **kwargs):
    keras.utils.set_random_seed(3)
    size = len(SPECIALS) + len(WORDS) + len(PIECES)
    settings = {**SIZES, "dropout": 0.0, **kwargs}
    if family != "xlnet":
        settings.setdefault("max_sequence_length", 24)
    return FAMILIES[family](size, **settings)


def texts(count=40, seed=0):
    """Texts of 1 to 15 words of one half of the vocabulary, their class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count).tolist()
    halves = [WORDS[half::2] for half in (0, 1)]
    words = [rng.choice(halves[k], rng.integers(1, 16)) for k in labels]
    return [" ".join(row) for row in words], labels


def compiled(model, **kwargs):
    """Quick to compile: without XLA where it takes long."""
    jit_compile = keras.backend.backend() == "jax"
    model.compile(**{"learning_rate": 1e-2, "jit_compile": jit_compile, **kwargs})
    return model
