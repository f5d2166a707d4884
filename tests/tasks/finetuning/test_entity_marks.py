"""Entities that a tagger finds become marks."""

import keras
import pytest
import tensorflow as tf

from keras_bertfam.datasets import load_examples
from keras_bertfam.metrics import compute_metrics
from keras_bertfam.models import BertBackbone
from keras_bertfam.tasks import (
    TokenClassifier,
    TokenClassifierPreprocessor,
    mark_entities,
)
from keras_bertfam.tokenizers import train_word_piece
from tests.tiny_fine_tuning import make_backbone, make_tokenizer

NAMES = ["O", "B-person", "I-person", "B-place"]


class Known(TokenClassifier):
    """A tagger whose labels are known."""

    def tag(self, sentences, batch_size=32, verbose=None):
        labels = {"Ada": "B-person", "King": "I-person", "London": "B-place"}
        assert all(sentences)
        return [[(w, labels.get(w, "O"), 1.0) for w in words] for words in sentences]


@pytest.fixture(scope="module")
def tagger():
    preprocessor = TokenClassifierPreprocessor(make_tokenizer(), 16)
    return Known(make_backbone(), preprocessor=preprocessor, label_names=NAMES)


def test_marks_and_types(tagger):
    text = "Ada King, in London.\n\n ⟪King Ada⟫ King"
    marked = "⟦Ada King⟧, in ⟦London⟧.\n\n ⟪⟦King⟧ ⟦Ada⟫ King⟧"
    assert mark_entities(tagger, text) == marked
    assert mark_entities(tagger, [marked, "", "no"]) == [marked, "", "no"]
    assert mark_entities(tagger, "Ada, London", types=["place"]) == "Ada, ⟦London⟧"
    assert mark_entities(tagger, "London", "phrase") == "⟪London⟫"


@pytest.mark.slow
def test_a_real_tagger():
    preprocessor = TokenClassifierPreprocessor(make_tokenizer(), 16)
    model = TokenClassifier(
        make_backbone(), preprocessor=preprocessor, label_names=NAMES
    )
    text = "the cat sat . the dog ran\n\na mat"
    marked = mark_entities(model, text)
    assert marked.replace("⟦", "").replace("⟧", "") == text


def test_errors(tagger):
    with pytest.raises(ValueError, match="`types` must be some of .*Received.*'time'"):
        mark_entities(tagger, "Ada", types=["time"])
    with pytest.raises(ValueError, match="`kind` must be one of"):
        mark_entities(tagger, "Ada", "noun")
    plain = TokenClassifier(make_backbone(), 3)
    with pytest.raises(ValueError, match="`label_names` that mark entities"):
        mark_entities(plain, "Ada")


@pytest.mark.slow("release")
@pytest.mark.any_backend
@pytest.mark.data
def test_wnut17(data_dir):
    """Six types, by a small tagger without pre-training."""
    keras.utils.set_random_seed(0)
    train, test = (
        load_examples("wnut17", split=split, data=data_dir / "wnut17")
        for split in ("train", "test")
    )
    documents = tf.data.Dataset.from_tensor_slices([" ".join(row) for row in train.x])
    tokenizer = train_word_piece(documents, 4000, lowercase=False)
    size = tokenizer.vocabulary_size()
    backbone = BertBackbone(size, 2, 2, 64, 128, max_sequence_length=64)
    model = TokenClassifier(
        backbone,
        preprocessor=TokenClassifierPreprocessor(tokenizer, 64),
        label_names=train.label_names,
    )
    model.compile(learning_rate=1e-3, jit_compile=keras.backend.backend() == "jax")
    model.fit(train.x, train.y, epochs=6, batch_size=32, verbose=0)
    sentences = [[*row] for row in test.x]
    tagged = [[label for _, label, _ in row] for row in model.tag(sentences, verbose=0)]
    (score,) = compute_metrics(["entity_f1"], test.y, tagged).values()
    print(f"entity F1 {score:.3f}")
    assert score > 0.02
    texts = [" ".join(row) for row in sentences[:300]]
    marked = mark_entities(model, texts)
    assert sum("⟦" in text for text in marked) > 5
    bare = [text.replace("⟦", "").replace("⟧", "") for text in marked]
    assert bare == texts
