"""A real dual encoder and real data, small enough to run anywhere."""

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import DualEncoder, DualEncoderPreprocessor
from tests.tiny_masked_lm import SPECIALS, WORDS


def texts(count=40):
    """Documents of six lines of four words, all of them two words' of its own."""
    rng = np.random.default_rng(0)
    own = [rng.choice(WORDS, 2, replace=False) for _ in range(count)]
    return ["\n".join(" ".join(rng.choice(x, 4)) for _ in range(6)) for x in own]


def make_backbone(cls=BertBackbone, **settings):
    return cls(
        len(SPECIALS) + len(WORDS),
        **{
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 24,
            "max_sequence_length": 16,
            "initializer_range": 0.3,
            "dropout": 0.0,
            "dtype": keras.config.dtype_policy(),
            **settings,
        },
    )


def make_model(dropout=0.0, towers=1, **settings):
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    preprocessor = DualEncoderPreprocessor(tokenizer, 16, 8)
    settings = {"projection_dim": 6, "dropout": dropout, **settings}
    if towers == 2:
        settings["passage_backbone"] = make_backbone(dropout=dropout)
    model = DualEncoder(make_backbone(dropout=dropout), preprocessor, **settings)
    model.compile(
        optimizer=pretraining_optimizer(1e-2, 40, 2, global_clipnorm=0.5),
        jit_compile=keras.backend.backend() == "jax",
    )
    return model


def stream(model, batch_size=8, **kwargs):
    documents = tf.data.Dataset.from_tensor_slices(texts())
    return model.preprocessor.dataset(
        documents, batch_size, break_lines=False, **kwargs
    )
