"""A real XLNet with memory and real data, small enough to run anywhere."""

import keras

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import XLNetBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import PermutationLM, PermutationLMPreprocessor
from tests.tiny_masked_lm import SPECIALS, WORDS, documents

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}


def make_model(dropout=0.0, both_directions=True):
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS, "##s"], lowercase=True)
    backbone = XLNetBackbone(tokenizer.vocabulary_size(), dropout=dropout, **SIZES)
    preprocessor = PermutationLMPreprocessor(
        tokenizer,
        sequence_length=16,
        reuse_length=8,
        both_directions=both_directions,
        next_rate=0.5,
    )
    model = PermutationLM(backbone, preprocessor, memory_length=12, batch_size=4)
    optimizer = pretraining_optimizer(1e-2, 80, 2, global_clipnorm=0.05)
    model.compile(optimizer=optimizer, jit_compile=keras.backend.backend() == "jax")
    return model


def stream(model, **kwargs):
    return model.preprocessor.dataset(documents(), 4, break_lines=False, **kwargs)
