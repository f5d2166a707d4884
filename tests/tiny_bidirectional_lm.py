"""A real ELMo with memory and real data, small enough to run anywhere."""

import keras

from keras_bertfam.models import ElmoBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import BidirectionalLM, BidirectionalLMPreprocessor
from keras_bertfam.tokenizers import ElmoTokenizer
from tests.tiny_masked_lm import WORDS, documents

SIZES = {
    "num_layers": 2,
    "hidden_dim": 16,
    "cell_dim": 24,
    "embedding_dim": 4,
    "filters": [(1, 8), (3, 8)],
    "num_highways": 1,
    "max_characters": 8,
}
SPECIALS = ["<S>", "</S>", "<UNK>"]


def make_tokenizer(**kwargs):
    words = [word for word in WORDS if word != "red"]  # which is unknown
    return ElmoTokenizer([*SPECIALS, *words], max_characters=8, **kwargs)


def make_backbone(**kwargs):
    keras.utils.set_random_seed(3)
    settings = {"vocabulary_size": 18, "dropout": 0.0, **SIZES, **kwargs}
    return ElmoBackbone(**settings)


def make_model(dropout=0.0, batch_size=4, **kwargs):
    backbone = make_backbone(dropout=dropout)
    preprocessor = BidirectionalLMPreprocessor(make_tokenizer(), sequence_length=6)
    model = BidirectionalLM(backbone, preprocessor, batch_size=batch_size, **kwargs)
    optimizer = pretraining_optimizer(1e-2, 80, 2, global_clipnorm=0.05)
    model.compile(optimizer=optimizer, jit_compile=keras.backend.backend() == "jax")
    return model


def stream(model, **kwargs):
    return model.preprocessor.dataset(documents(), 4, break_lines=False, **kwargs)
