"""Features of a frozen backbone, ELMo's and BERT's, under a mix and an LSTM."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import FeatureBackbone
from keras_bertfam.tasks import (
    ElmoTextClassifierPreprocessor,
    ElmoTokenClassifierPreprocessor,
    TextClassifier,
    TokenClassifier,
)
from tests.tiny_bidirectional_lm import make_backbone, make_tokenizer
from tests.tiny_families import FAMILIES, backbone_of, is_pair
from tests.tiny_fine_tuning import compiled, texts
from tests.tiny_fine_tuning import make_backbone as make_bert


def make_classifier():
    keras.utils.set_random_seed(0)
    features = FeatureBackbone(make_backbone(), lstm_dim=8, dropout=0.0)
    preprocessor = ElmoTextClassifierPreprocessor(
        make_tokenizer(), 18, label_names=["a", "b"], buckets=(18,)
    )
    return TextClassifier(features, preprocessor=preprocessor)


@pytest.mark.slow
def test_a_frozen_backbone_and_saving(tmp_path):
    model = make_classifier()
    features = model.backbone
    assert model.dropout == 0.5 and features.record is not None
    assert not features.backbone.trainable_variables
    assert {v.path for v in model.trainable_variables} >= {features.mix.gamma.path}
    model.save_to_preset(tmp_path / "features")
    again = TextClassifier.from_preset(str(tmp_path / "features"))
    assert isinstance(again.backbone, FeatureBackbone) and again.backbone.frozen
    x = model.preprocessor(["a word never seen"])
    x = {name: np.asarray(value) for name, value in x.items()}
    one, other = (ops.convert_to_numpy(m(x)) for m in (model, again))
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.any_backend
@pytest.mark.parametrize("family", FAMILIES)
def test_features_of_each_family_by_its_recipe(family):
    """Its rates by layer, too, as ELECTRA and XLNet have them."""
    if is_pair(family):
        pytest.skip("texts are written by it")
    features = FeatureBackbone(backbone_of(family), lstm_dim=4)
    model = TextClassifier(features, num_classes=2)
    assert model.compiled
    features.trainable = False
    again = FeatureBackbone.from_config(features.get_config())
    assert not again.trainable_variables


@pytest.mark.slow
@pytest.mark.any_backend
def test_text_classifier_and_saving(tmp_path):
    model = make_classifier()
    features = model.backbone
    before = [ops.convert_to_numpy(w) for w in features.backbone.weights]
    compiled(model)
    x, y = texts(48)
    history = model.fit(x, [["a", "b"][k] for k in y], epochs=6, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    for old, new in zip(before, features.backbone.weights, strict=True):
        np.testing.assert_array_equal(old, ops.convert_to_numpy(new))
    model.save_to_preset(tmp_path / "features")
    again = TextClassifier.from_preset(str(tmp_path / "features"))
    np.testing.assert_allclose(
        again.predict(x[:5], verbose=0), model.predict(x[:5], verbose=0), atol=1e-5
    )
    assert len(model.classify("a word never seen")) == 2
    pairs = model.predict((x[:3], x[3:6]), verbose=0)
    assert pairs.shape == (3, 2)


def make_tagger():
    keras.utils.set_random_seed(0)
    features = FeatureBackbone(make_backbone(), lstm_dim=8, dropout=0.0)
    preprocessor = ElmoTokenClassifierPreprocessor(make_tokenizer(), 18)
    return TokenClassifier(features, preprocessor=preprocessor, label_names=["O", "B"])


@pytest.mark.slow
def test_words_of_a_tagger():
    model = make_tagger()
    x = model.preprocessor([["the", "redder", "cat"], ["a"]])
    x = {name: np.asarray(value) for name, value in x.items()}
    assert x["word_positions"][0, :3].tolist() == [1, 2, 3]
    assert x["character_ids"].shape == (2, 8, 8)
    assert x["word_mask"].sum() == 4
    logits = ops.convert_to_numpy(model(x))
    assert logits.shape == (2, 8, 2) and np.isfinite(logits).all()
    signature = model.input_signature()["character_ids"]
    assert signature.shape == (None, None, 8)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_token_classifier():
    model = make_tagger()
    compiled(model)
    x = [text.split() for text in texts(48)[0]]
    y = [["B" if len(word) > 2 else "O" for word in row] for row in x]
    history = model.fit(x, y, epochs=8, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] - 0.05
    tagged = model.tag([["zebra", "of", "Ada", "."], ["x"] * 20])
    assert [len(row) for row in tagged] == [4, 20]
    right = [label == "B" for _, label, _ in tagged[0]]
    assert len(right) == 4


def test_any_backbone_and_what_a_mix_is_of():
    backbone = make_bert("bert")
    features = FeatureBackbone(backbone, frozen=False)
    ids = {"token_ids": np.array([[2, 5, 6, 3]]), "padding_mask": np.ones((1, 4), bool)}
    states = backbone(ids, return_hidden_states=True)["hidden_states"]
    mean = np.mean([ops.convert_to_numpy(state) for state in states], axis=0)
    outputs = features(ids, return_hidden_states=True)
    found = ops.convert_to_numpy(outputs["sequence_output"])
    np.testing.assert_allclose(found, mean, atol=1e-5)
    assert len(outputs["hidden_states"]) == 4 and features.hidden_dim == 16
    assert backbone.trainable
    model = TextClassifier(features, 2)
    assert model.head_style == "bert" and not model.reads_pooler
    assert model(ids).shape == (1, 2)
    with pytest.raises(ValueError, match="`return_pooled` must be false"):
        features(ids, return_pooled=True)
    with pytest.raises(ValueError, match="`tokenizer` must be an `ElmoTokenizer`"):
        ElmoTextClassifierPreprocessor(object())
