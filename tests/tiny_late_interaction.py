"""A real model of late interaction and real data, small enough to run anywhere."""

import keras

from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import LateInteraction, LateInteractionPreprocessor
from keras_bertfam.tokenizers import BertTokenizer
from tests import tiny_dual_encoder
from tests.tiny_masked_lm import SPECIALS, WORDS

make_backbone, texts = tiny_dual_encoder.make_backbone, tiny_dual_encoder.texts
stream = tiny_dual_encoder.stream


def make_model(dropout=0.0, compiled=True, **settings):
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    settings = {"sequence_length": 16, "query_length": 8, **settings}
    preprocessor = LateInteractionPreprocessor(tokenizer, **settings)
    model = LateInteraction(
        make_backbone(dropout=dropout), preprocessor, 6, compile=compiled
    )
    if compiled:
        model.compile(
            optimizer=pretraining_optimizer(1e-2, 400, 2, global_clipnorm=0.5),
            jit_compile=keras.backend.backend() == "jax",
        )
    return model
