"""Texts with any number of classes and scores: what `transformers` makes of them."""

import json

import numpy as np
import pytest

from keras_bertfam import tasks
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import huggingface
from keras_bertfam.presets.converting.heads import task_name
from tests.conformance.test_hf_round_trips import CONFIGS, IDS, json_of, make_theirs
from tests.from_transformers import max_difference
from tests.marks import in_ci

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
X = {"token_ids": IDS, "padding_mask": np.ones(IDS.shape, bool)}
OLD = "sbert_ce_default_activation_function"


def logits_of(theirs):
    with torch.no_grad():
        return theirs(torch.tensor(IDS).long()).logits


def edit(folder, **changes):
    config = json_of(folder) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "family", in_ci((name for name in CONFIGS if name != "Longformer"), "Bert")
)
def test_sets_of_labels_and_single_outputs(family, tmp_path):
    name = f"{family}ForSequenceClassification"
    sets = make_theirs(name, num_labels=3, problem_type="multi_label_classification")
    sets.save_pretrained(tmp_path / "sets")
    assert task_name(huggingface.open_source(tmp_path / "sets")) == "TextClassifier"
    ours = tasks.TextClassifier.from_preset(str(tmp_path / "sets"))
    expected = torch.sigmoid(logits_of(sets))
    assert ours.multi_label
    assert max_difference(ours.probabilities(ours(X)), expected) < 1e-4
    ours.export_to_transformers(tmp_path / "out")
    again = type(sets).from_pretrained(tmp_path / "out")
    assert again.config.problem_type == "multi_label_classification"
    assert torch.allclose(torch.sigmoid(logits_of(again)), expected, atol=1e-6)

    one = make_theirs(name, num_labels=1)
    one.save_pretrained(tmp_path / "one")
    folder = str(tmp_path / "one")
    assert task_name(huggingface.open_source(folder)) == "TextRegressor"
    with pytest.raises(ValueError, match="single class is always right.*TextRegressor"):
        tasks.TextClassifier.from_preset(folder)
    score = logits_of(one)[:, 0]
    assert max_difference(tasks.TextRegressor.from_preset(folder)(X), score) < 1e-4
    edit(tmp_path / "one", **{OLD: "torch.nn.modules.activation.Sigmoid"})
    ours = tasks.TextRegressor.from_preset(folder)
    assert max_difference(ours(X), torch.sigmoid(score)) < 1e-4
    edit(tmp_path / "one", **{OLD: "torch.nn.modules.activation.Tanh"})
    with pytest.raises(CheckpointError, match="activation of a cross-encoder .*Tanh"):
        tasks.TextRegressor.from_preset(folder)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_sentence_transformers_gives_our_scores(activation, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
    backbone = BertBackbone(len(words), 1, 2, 8, 12, max_sequence_length=16)
    preprocessor = tasks.TextRegressorPreprocessor(BertTokenizer(words), 16)
    ours = tasks.TextRegressor(backbone, preprocessor, activation=activation)
    ours.export_to_transformers(tmp_path)
    pairs = [("a b", "c"), ("d", "e f a b"), ("c", "")]
    expected = library.CrossEncoder(str(tmp_path)).predict(pairs)
    np.testing.assert_allclose(ours.predict(pairs, verbose=0), expected, atol=1e-5)
    again = tasks.TextRegressor.from_preset(str(tmp_path))
    assert again.activation == activation


@pytest.mark.any_backend
def test_names_of_classes_that_are_equal(tmp_path):
    names = {0: "O", 1: "B", 2: "B"}
    theirs = make_theirs("BertForTokenClassification", num_labels=3, id2label=names)
    theirs.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"aren't used, .* one of its own: \['O', 'B'"):
        ours = tasks.TokenClassifier.from_preset(str(tmp_path))
    assert ours.label_names is None and ours.num_classes == 3


@pytest.mark.any_backend
def test_names_of_classes_that_are_numbers(tmp_path):
    theirs = make_theirs("BertForTokenClassification", num_labels=3)
    theirs.config.id2label = {0: 1, 1: 5, 2: "many"}
    theirs.save_pretrained(tmp_path)
    ours = tasks.TokenClassifier.from_preset(str(tmp_path))
    assert ours.label_names == ["1", "5", "many"]
