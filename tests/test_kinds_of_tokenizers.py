"""What takes text, with every kind of tokenizer and in eager calls of one text, too."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import analysis, models, tasks
from keras_bertfam.export import export_saved_model
from keras_bertfam.tokenizers import (
    train_byte_pair,
    train_sentence_piece,
    train_word_piece,
)

pytestmark = [pytest.mark.slow, pytest.mark.any_backend]
TEXTS = ["the cat sat on the mat", "a dog and a bird met", "red fish, blue! It's (42)."]
WORDS = [text.split() for text in TEXTS]
QUESTION = {"question": ["who sat?"], "context": [f"{TEXTS[2]} {TEXTS[0]}"]}
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
# Of each kind one family, and those whose inputs or attention are others.
BACKBONES = {
    "word_piece": ("ElectraBackbone", {"embedding_dim": 8}),
    "roberta": ("RobertaBackbone", {}),
    "longformer": ("LongformerBackbone", {"attention_window": 8}),
    "modernbert": ("ModernBertBackbone", {}),
    "gpt2": ("GPT2Backbone", {}),
    "albert": ("AlbertBackbone", {"embedding_dim": 8}),
    "xlnet": ("XLNetBackbone", {}),
    "deberta-v2": ("DebertaV2Backbone", {}),
}


def trained(kind):
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 8)
    if kind == "word_piece":
        return train_word_piece(documents, 60)
    if kind in ("albert", "xlnet", "deberta-v2"):
        return train_sentence_piece(documents, 50, family=kind)
    family = "roberta" if kind == "longformer" else kind
    return train_byte_pair(documents, 300, family=family)


@functools.cache
def backbone_and_tokenizer(kind):
    tokenizer = trained(kind)
    name, arguments = BACKBONES[kind]
    if kind != "xlnet":
        arguments = {"max_sequence_length": 64, **arguments}
    keras.utils.set_random_seed(0)
    size = tokenizer.vocabulary_size()
    return getattr(models, name)(size, **SIZES, **arguments), tokenizer


@pytest.fixture(params=BACKBONES)
def kind(request):
    return request.param


def test_analysis(kind):
    backbone, tokenizer = backbone_and_tokenizer(kind)
    given = {"tokenizer": tokenizer}
    assert analysis.attention_view(backbone, TEXTS[0], **given)
    states = analysis.embed_words(backbone, WORDS, **given)
    assert [words for words, _ in states] == WORDS
    [(_, alone)] = analysis.embed_words(backbone, WORDS[:1], **given)
    np.testing.assert_allclose(alone, states[0][1], atol=1e-5)
    assert analysis.word_vectors(backbone, TEXTS, ["cat", "fish"], **given)
    assert analysis.head_roles(backbone, TEXTS, **given)
    labels = [[str(len(word) % 2) for word in words] for words in WORDS]
    assert analysis.probe(backbone, WORDS * 4, labels * 4, epochs=1, **given)


def test_questions_are_answered_and_exported(kind, tmp_path):
    backbone, tokenizer = backbone_and_tokenizer(kind)
    preprocessor = tasks.SpanQuestionAnsweringPreprocessor(
        tokenizer, sequence_length=48, question_length=16, doc_stride=8
    )
    task = tasks.SpanQuestionAnswering(backbone, preprocessor)
    [answer] = task.predict(QUESTION, verbose=0)
    assert answer["text"] in QUESTION["context"][0]
    if keras.backend.backend() == "tensorflow":
        path = str(tmp_path / "served")
        export_saved_model(task, path)
        served = tf.saved_model.load(path).signatures["serving_default"]
        found = served(**{name: tf.constant(x) for name, x in QUESTION.items()})
        texts = {value.numpy().ravel()[0] for value in found.values()}
        assert answer["text"].encode() in texts
