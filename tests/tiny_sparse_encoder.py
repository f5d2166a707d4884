"""A real sparse encoder and real data, small enough to run anywhere."""

import keras
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import SparseEncoder, SparseEncoderPreprocessor
from tests import tiny_dual_encoder
from tests.tiny_masked_lm import SPECIALS, WORDS


def make_model(dropout=0.0):
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    preprocessor = SparseEncoderPreprocessor(tokenizer, 16)
    backbone = tiny_dual_encoder.make_backbone(dropout=dropout)
    model = SparseEncoder(backbone, preprocessor)
    model.compile(
        optimizer=pretraining_optimizer(1e-2, 40, 2, global_clipnorm=0.5),
        jit_compile=keras.backend.backend() == "jax",
        query_penalty=0.03,
        passage_penalty=0.01,
    )
    return model


def stream(model, batch_size=8, **kwargs):
    documents = [text.split("\n") for text in tiny_dual_encoder.texts()]
    queries = [lines[k] for k in (0, 2) for lines in documents]
    passages = [lines[k] for k in (1, 3) for lines in documents]
    data = tf.data.Dataset.from_tensor_slices((queries, passages))
    return model.preprocessor.dataset(data, batch_size, **kwargs)
