"""On real text, objectives with two answers get below the entropy of the answers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import corpus
from keras_bertfam.layers import train_word_piece
from keras_bertfam.models import BertBackbone, ElectraBackbone
from keras_bertfam.tasks import (
    MaskedLMSentencePair,
    MaskedLMSentencePairPreprocessor,
    ReplacedTokenDetection,
    ReplacedTokenDetectionPreprocessor,
)

pytestmark = [pytest.mark.slow("release"), pytest.mark.any_backend]
LENGTH = 32
XLA = keras.backend.backend() == "jax"  # takes TensorFlow longer than it saves


@pytest.fixture(scope="module")
def documents():
    return tf.data.Dataset.from_tensor_slices(corpus.python_documentation()[:40])


@pytest.fixture(scope="module")
def tokenizer(documents):
    return train_word_piece(documents, 300)


def make_backbone(cls, tokenizer):
    keras.utils.set_random_seed(0)
    return cls(
        tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=LENGTH,
        dropout=0.0,
        initializer_range=0.05,
    )


@pytest.mark.parametrize(("objective", "epochs"), [("nsp", 3), ("sop", 8)])
def test_sentence_pairs(objective, epochs, documents, tokenizer):
    preprocessor = MaskedLMSentencePairPreprocessor(
        tokenizer, sequence_length=LENGTH, sentence_objective=objective
    )
    model = MaskedLMSentencePair(
        make_backbone(BertBackbone, tokenizer),
        preprocessor,
        sentence_objective=objective,
    )
    model.compile(learning_rate=2e-3, warmup_steps=0.1, jit_compile=XLA)
    data = preprocessor.dataset(documents, 32)
    history = model.fit(data, epochs=epochs, verbose=0).history
    assert history["sentence_loss"][-1] < np.log(2) - 0.03
    assert history["sentence_accuracy"][-1] > 0.55


def test_replaced_tokens(documents, tokenizer):
    preprocessor = ReplacedTokenDetectionPreprocessor(tokenizer, sequence_length=LENGTH)
    model = ReplacedTokenDetection(
        make_backbone(ElectraBackbone, tokenizer), preprocessor, seed=0
    )
    model.compile(learning_rate=5e-3, warmup_steps=0.1, jit_compile=XLA)
    data = preprocessor.dataset(preprocessor.pack(documents, "full").cache(), 64)
    history = model.fit(data, epochs=6, verbose=0).history
    last = {name.split("_")[1]: h[-1] for name, h in history.items() if "disc" in name}
    # Wrong are the replaced tokens, less those found, and the false alarms.
    found, precision = last["recall"], max(last["precision"], 1e-6)
    replaced = (1 - last["accuracy"]) / (1 - found + found * (1 / precision - 1))
    entropy = -replaced * np.log(replaced) - (1 - replaced) * np.log(1 - replaced)
    assert 0.1 < replaced < 0.15
    assert last["loss"] < entropy - 0.008 and last["auc"] > 0.55
