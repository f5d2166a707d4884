"""Rates of dropout in the trunk of a task, given to `from_preset`."""

import functools
import warnings

import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.presets import CheckpointError
from tests import tiny_fine_tuning as tiny

RATES = {"dropout": 0.3, "attention_dropout": 0.6}


def native(backbone, path):
    backbone.save_to_preset(path)


def keras_hub(backbone, path):
    backbone.to_keras_hub().save_to_preset(path)


def transformers(backbone, path):
    pytest.importorskip("safetensors")
    backbone.export_to_transformers(path)


def dropped(layer):
    """The share of elements that a layer sets to zero in training."""
    ones = layer(ops.ones((64, 64)), training=True)
    return float(np.mean(ops.convert_to_numpy(ones) == 0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*loaded in part")
@pytest.mark.parametrize("write", [native, keras_hub, transformers])
@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_rates_reach_the_layers(family, write, tmp_path):
    activation = {"bert": "gelu_tanh", "xlnet": "gelu"}[family]  # as KerasHub has them
    backbone = tiny.make_backbone(family, dropout=0.1, activation=activation)
    write(backbone, str(tmp_path / "preset"))
    model = tasks.TextClassifier.from_preset(
        str(tmp_path / "preset"), num_classes=2, dropout=0.8, backbone_arguments=RATES
    )
    trunk = [
        layer for layer in model.backbone._flatten_layers() if type(layer) is Dropout
    ]
    # The embeddings' and two of each block's two sub-layers, and one of attention;
    # XLNet's also of positions, outputs and within the feed-forward sub-layers.
    rates = sorted(round(dropped(layer), 1) for layer in trunk if layer.rate)
    assert rates == [0.3] * {"bert": 5, "xlnet": 9}[family] + [0.6] * 2
    heads = [
        layer
        for layer in model.head._flatten_layers()
        if isinstance(layer, Dropout) and layer.rate
    ]
    assert [round(dropped(layer), 1) for layer in heads] == [0.8]
    assert model.get_config()["dropout"] == 0.8
    config = model.backbone.get_config()
    assert {name: config[name] for name in RATES} == RATES


def test_the_forward_pass_drops(tmp_path):
    native(tiny.make_backbone(dropout=0.0), str(tmp_path))
    model = tasks.TokenClassifier.from_preset(
        str(tmp_path), num_classes=2, dropout=0.0, backbone_arguments={"dropout": 0.3}
    )
    ids = ops.ones((16, 24), "int32")
    states = model.backbone.embeddings(ids, training=True)
    assert np.mean(ops.convert_to_numpy(states) == 0) == pytest.approx(0.3, abs=0.03)
    outputs = [
        ops.convert_to_numpy(model({"token_ids": ids}, training=training))
        for training in (True, True, False, False)
    ]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3
    np.testing.assert_array_equal(outputs[2], outputs[3])


@pytest.mark.any_backend
def test_other_arguments_and_errors(tmp_path):
    native(tiny.make_backbone(), str(tmp_path))
    model = tasks.MaskedLM.from_preset(
        str(tmp_path), False, backbone_arguments={"num_layers": 1}
    )
    assert model.backbone.num_layers == 1
    named = tasks.MaskedLM.from_preset(
        "bert_tiny_en_uncased", False, backbone_arguments=RATES, dtype="bfloat16"
    )
    assert isinstance(named.backbone, models.BertBackbone)
    assert named.backbone.dropout == 0.3 and named.backbone.compute_dtype == "bfloat16"
    with pytest.raises(ValueError, match=r"`dropout` must be a finite number from 0.0"):
        tasks.MaskedLM.from_preset(str(tmp_path), backbone_arguments={"dropout": 2})


@pytest.mark.any_backend
def test_arguments_that_do_not_fit_are_no_fault_of_the_files(tmp_path):
    tasks.TextClassifier(tiny.make_backbone(), 2).save_to_preset(str(tmp_path))
    load = functools.partial(models.BertBackbone.from_preset, str(tmp_path))
    for given, message in (
        ({"hidden_dim": 64}, "don't fit.*in place of .* own arguments: hidden_dim=64"),
        ({"drop": 0.1}, "BertBackbone has no argument 'drop'. It has vocabulary_size"),
        ({"dtype": "fp16"}, "`dtype` must be .*: 'fp16'"),
    ):
        with warnings.catch_warnings(), pytest.raises(ValueError, match=message) as got:
            warnings.simplefilter("ignore")  # Keras's, of weights
            load(**given)
        assert got.type is ValueError
    with pytest.raises(ValueError, match="has no argument 'num_labels'") as got:
        tasks.TextClassifier.from_preset(str(tmp_path), num_labels=2)
    assert got.type is ValueError
    weights = tmp_path / "model.weights.h5"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        load(dropout=0.3)
    with pytest.raises(ValueError, match="no argument 'vocab_size', 'hidden_size'"):
        models.BertBackbone(vocab_size=100, hidden_size=16)
