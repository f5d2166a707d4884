"""A real masked LM with the span boundary objective, small enough to run anywhere."""

import keras

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import SpanBertBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import SpanBoundaryLM, SpanBoundaryLMPreprocessor
from tests.tiny_masked_lm import SPECIALS, WORDS, documents


def make_model(dropout=0.0, **kwargs):
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS, "##s"], lowercase=True)
    backbone = SpanBertBackbone(
        tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=16,
        dropout=dropout,
    )
    preprocessor = SpanBoundaryLMPreprocessor(
        tokenizer,
        sequence_length=16,
        mask_selection_rate=0.3,
        skip_special_boundaries=True,  # targets are spread unevenly
    )
    model = SpanBoundaryLM(backbone, preprocessor, span_boundary_weight=0.5, **kwargs)
    optimizer = pretraining_optimizer(1e-2, 40, 2, global_clipnorm=0.05)
    model.compile(optimizer=optimizer, jit_compile=keras.backend.backend() == "jax")
    return model


def stream(model, batch_size=8, **kwargs):
    return model.preprocessor.dataset(
        documents(), batch_size, break_lines=False, **kwargs
    )
