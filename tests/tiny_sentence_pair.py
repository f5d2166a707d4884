"""A real masked LM with a sentence objective, small enough to run anywhere."""

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import MaskedLMSentencePair, MaskedLMSentencePairPreprocessor
from tests.tiny_masked_lm import SPECIALS, WORDS


def documents(count=60):
    """Of one to four lines: unevenly many masks, and rows without a label."""
    rng = np.random.default_rng(0)
    texts = [
        "\n".join(" ".join(rng.choice(WORDS, 4)) for _ in range(rng.integers(1, 5)))
        for _ in range(count)
    ]
    return tf.data.Dataset.from_tensor_slices(texts)


def make_model(objective="sop", backbone_cls=BertBackbone, **settings):
    """Takes the arguments of the backbone."""
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    backbone = backbone_cls(
        tokenizer.vocabulary_size(),
        **{
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 24,
            "max_sequence_length": 16,
            "dropout": 0.0,
            "dtype": keras.config.dtype_policy(),
            **settings,
        },
    )
    preprocessor = MaskedLMSentencePairPreprocessor(
        tokenizer,
        sequence_length=16,
        sentence_objective=objective,
        mask_selection_rate=0.3,
    )
    model = MaskedLMSentencePair(backbone, preprocessor, sentence_weight=0.5)
    model.compile(
        optimizer=pretraining_optimizer(1e-2, 40, 2, global_clipnorm=0.05),
        jit_compile=keras.backend.backend() == "jax",
    )
    return model


def stream(model, batch_size=8, **kwargs):
    return model.preprocessor.dataset(
        documents(), batch_size, break_lines=False, **kwargs
    )
