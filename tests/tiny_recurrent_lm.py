"""A real Transformer-XL with memory and real data, small enough to run anywhere."""

import keras

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import TransformerXLBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import RecurrentLM, RecurrentLMPreprocessor
from tests.tiny_masked_lm import SPECIALS, WORDS, documents

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}


def make_model(dropout=0.0, memory_length=12, batch_size=4, **kwargs):
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS, "##s"], lowercase=True)
    settings = {"dropout": dropout, "initializer_range": 0.1, **SIZES, **kwargs}
    backbone = TransformerXLBackbone(tokenizer.vocabulary_size(), **settings)
    preprocessor = RecurrentLMPreprocessor(tokenizer, sequence_length=10)
    model = RecurrentLM(
        backbone, preprocessor, memory_length=memory_length, batch_size=batch_size
    )
    optimizer = pretraining_optimizer(1e-2, 80, 2, global_clipnorm=0.05)
    model.compile(optimizer=optimizer, jit_compile=keras.backend.backend() == "jax")
    return model


def stream(model, **kwargs):
    return model.preprocessor.dataset(documents(), 4, break_lines=False, **kwargs)
