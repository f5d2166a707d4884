"""EuroBERT against `transformers`: shared keys, pooling, labels, and its tokenizer."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks
from keras_bertfam.presets import CheckpointError
from keras_bertfam.serving import without_padding
from keras_bertfam.tasks.summary import summary_token
from tests.compiled import compiled
from tests.from_transformers import max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 30,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "rope_parameters": {"rope_theta": 250.0, "rope_type": "default"},
}
MASK = np.array([[1] * 7, [1] * 4 + [0] * 3], bool)
IDS = np.random.default_rng(0).integers(3, 30, MASK.shape).astype("int32")


def theirs(architecture, **changes):
    config = transformers.EuroBertConfig(**{**SIZES, **changes})
    return randomize(getattr(transformers, architecture)(config), 0.3)


def outputs(model, **kwargs):
    with torch.no_grad():
        mask = torch.tensor(MASK).long()
        return model(torch.tensor(IDS).long(), attention_mask=mask, **kwargs)


@pytest.mark.parametrize("groups", [1, 2, None])
def test_states_and_logits(groups, tmp_path):
    model = theirs("EuroBertForMaskedLM", num_key_value_heads=groups)
    model.save_pretrained(tmp_path)
    ours = tasks.MaskedLM.from_preset(str(tmp_path))
    assert type(ours.backbone) is models.EuroBertBackbone
    assert ours.backbone.num_key_value_heads == groups
    assert not ours.backbone.tie_embeddings
    expected = outputs(model, output_hidden_states=True)
    x = {"token_ids": IDS, "padding_mask": MASK}
    states = compiled(ours.backbone)(x, return_hidden_states=True)["hidden_states"]
    for state, target in zip(states, expected.hidden_states, strict=True):
        assert max_difference(state, target, MASK) < 1e-5
    assert max_difference(compiled(ours)(x), expected.logits, MASK) < 1e-4


@pytest.mark.parametrize("pooling", ["late", "bos", "mean"])
def test_pooling(pooling, tmp_path):
    name = "EuroBertForSequenceClassification"
    changes = {"classifier_pooling": pooling, "num_labels": 3}
    model = theirs(name, num_key_value_heads=2, **changes)
    model.save_pretrained(tmp_path / "theirs")
    ours = tasks.TextClassifier.from_preset(str(tmp_path / "theirs"))
    style = {"late": "eurobert"}.get(pooling, f"eurobert_{pooling}")
    assert (ours.head_style, ours.dropout) == (style, 0.0)
    x = {"token_ids": IDS, "padding_mask": MASK}
    expected = outputs(model).logits
    assert max_difference(compiled(ours)(x), expected) < 1e-4
    ours.export_to_transformers(tmp_path / "ours")
    again = getattr(transformers, name).from_pretrained(tmp_path / "ours")
    assert again.config.classifier_pooling == pooling
    assert torch.equal(outputs(again).logits, expected)


def test_labels_of_tokens(tmp_path):
    model = theirs("EuroBertForTokenClassification", num_labels=3)
    model.save_pretrained(tmp_path / "theirs")
    ours = tasks.TokenClassifier.from_preset(str(tmp_path / "theirs"))
    assert ours.dropout == 0.0
    x = {"token_ids": IDS, "padding_mask": MASK}
    assert max_difference(compiled(ours)(x), outputs(model).logits, MASK) < 1e-4
    ours.export_to_transformers(tmp_path / "ours")
    again = transformers.EuroBertForTokenClassification.from_pretrained(
        tmp_path / "ours"
    )
    assert torch.equal(outputs(again).logits, outputs(model).logits)


def written(folder, **changes):
    theirs("EuroBertModel").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= changes
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.any_backend
def test_the_config_of_the_release(tmp_path):
    older = {"rope_theta": 250_000, "rope_parameters": None, "clf_pooling": "late"}
    older |= {"hidden_dropout": 0.0, "pretraining_tp": 1, "mask_token": "<|mask|>"}
    backbone = models.Backbone.from_preset(written(tmp_path, **older))
    assert backbone.rotary_base == (250_000.0, 250_000.0)
    assert backbone.max_sequence_length == 16


@pytest.mark.any_backend
def test_the_pooling_of_the_release(tmp_path):
    name = "EuroBertForSequenceClassification"
    theirs(name, num_labels=3).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config.pop("classifier_pooling", None)
    path.write_text(json.dumps({**config, "clf_pooling": "mean"}))
    model = tasks.TextClassifier.from_preset(str(tmp_path))
    assert model.head_style == "eurobert_mean"


@pytest.mark.any_backend
def test_the_first_token_stands_for_a_text():
    backbone = models.EuroBertBackbone(
        30, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8
    )
    assert summary_token(backbone) == "first"


@pytest.mark.any_backend
def test_the_end_token_of_a_row_is_no_padding():
    rows = tf.constant([[1, 5, 6, 2, 2, 2], [1, 5, 6, 7, 8, 2], [1, 2, 2, 2, 2, 2]])
    tokenizer = types.SimpleNamespace(start_token_id=1, end_token_id=2, pad_token_id=2)
    inside = without_padding(rows, tokenizer).numpy()
    assert inside.sum(1).tolist() == [4, 6, 2]
    assert inside[0].tolist() == [True] * 4 + [False] * 2
    tokenizer.start_token_id = 2  # as GPT-2's, which ends no row by itself
    assert without_padding(rows, tokenizer).numpy().sum(1).tolist() == [3, 5, 1]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "'default'"),
        ({"rope_parameters": {"rope_theta": -1}}, "positive 'rope_theta'"),
        (
            {"classifier_pooling": "bos", "clf_pooling": "mean"},
            "Expected the release's 'clf_pooling'",
        ),
        ({"hidden_dropout": 0.1}, "Expected 'hidden_dropout' to be 0"),
        ({"attention_bias": True}, "Expected 'attention_bias' to be False"),
        ({"num_key_value_heads": 3}, "`num_key_value_heads` must divide"),
        ({"num_key_value_heads": 0}, "'num_key_value_heads' to be an integer from 1"),
    ],
)
def test_configs_of_no_model_here(changes, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        models.Backbone.from_preset(written(tmp_path, **changes))


@pytest.mark.any_backend
def test_an_output_table_is_there_or_the_input_is_it(tmp_path):
    backbone = models.Backbone.from_preset(written(tmp_path / "theirs"))
    assert backbone.tie_embeddings
    tasks.MaskedLM(backbone).export_to_transformers(tmp_path / "ours")
    name = transformers.EuroBertForMaskedLM
    again, info = name.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()) and not again.config.tie_word_embeddings
    assert torch.equal(again.lm_head.weight, again.model.embed_tokens.weight)
    # Two tables of equal values stay two.
    again.save_pretrained(tmp_path / "two")
    both = tasks.MaskedLM.from_preset(str(tmp_path / "two"))
    assert not both.backbone.tie_embeddings


@pytest.mark.any_backend
def test_a_pooling_of_no_head_here(tmp_path):
    name = "EuroBertForSequenceClassification"
    theirs(name, classifier_pooling="max").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="'classifier_pooling' to be 'late' or"):
        tasks.TextClassifier.from_preset(str(tmp_path))


@pytest.mark.any_backend
def test_no_model_of_theirs():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
    backbone = models.EuroBertBackbone(9, **sizes, rotary_base=(5.0, 6.0))
    with pytest.raises(ValueError, match="positions of one base"):
        backbone.export_to_transformers("nowhere")
