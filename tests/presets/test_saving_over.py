"""Presets and exports that are saved over others, also while they are read."""

import json
import os
import types
import warnings

import keras
import numpy as np
import pytest

from keras_bertfam.cli import conversion
from keras_bertfam.export import saved_model
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.presets import folders, locks
from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.tasks import (
    MaskedLM,
    MaskedLMPreprocessor,
    SpanQuestionAnswering,
    TextClassifier,
)
from tests.tiny_preset import VOCABULARY, make


def masked_lm(positions=8, length=7):
    backbone = BertBackbone(
        11, 2, 2, 8, 16, max_sequence_length=positions, pooler=False
    )
    return MaskedLM(backbone, MaskedLMPreprocessor(BertTokenizer(VOCABULARY), length))


def assert_same(ours, theirs):
    assert len(ours.weights) == len(theirs.weights)
    for pair in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, pair))


def test_a_backbone_takes_the_place_of_a_task(tmp_path):
    path = str(tmp_path / "preset")
    make().save_to_preset(path)
    backbone = BertBackbone(len(VOCABULARY), 1, 4, 8, 16, max_sequence_length=8)
    backbone.save_to_preset(path)
    assert not {"task.json", "task.weights.h5"} & {*os.listdir(path)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        task = MaskedLM.from_preset(path)
    assert task.backbone.num_heads == 4
    assert_same(task.backbone, backbone)
    assert task.preprocessor.tokenizer.get_vocabulary() == VOCABULARY


def test_a_task_takes_the_place_of_another(tmp_path):
    path = str(tmp_path / "preset")
    make().save_to_preset(path)
    task = make(num_layers=2)
    classifier = TextClassifier(task.backbone, num_classes=3)
    classifier.save_to_preset(path)
    loaded = TextClassifier.from_preset(path)
    assert_same(loaded, classifier)
    assert loaded.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    assert "preprocessor.json" not in os.listdir(path)


def test_a_tokenizer_is_saved_as_a_whole(tmp_path, monkeypatch):
    path = str(tmp_path / "preset")
    make().save_to_preset(path)
    longer = BertTokenizer([*VOCABULARY, "g"])

    def fail(*arguments):
        raise OSError("full")

    for layer in (longer, MaskedLMPreprocessor(longer, 8)):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
            patch.setattr(BertTokenizer, "save_assets", fail)
            layer.save_to_preset(path)
        MaskedLM.from_preset(path)
    longer.save_to_preset(path)
    assert BertTokenizer.from_preset(path).get_vocabulary()[-1] == "g"


def read_task(path):
    return MaskedLM.from_preset(path)


def read_backbone(path):
    backbone = BertBackbone.from_preset(path)
    return types.SimpleNamespace(backbone=backbone, preprocessor=None)


def read_tokenizer(path):
    tokenizer = BertTokenizer.from_preset(path)
    preprocessor = types.SimpleNamespace(tokenizer=tokenizer)
    return types.SimpleNamespace(backbone=None, preprocessor=preprocessor)


def read_preprocessor(path):
    preprocessor = MaskedLMPreprocessor.from_preset(path)
    return types.SimpleNamespace(backbone=None, preprocessor=preprocessor)


def convert(path):
    conversion.convert(path, f"{path}-converted", "keras")
    return MaskedLM.from_preset(f"{path}-converted")


def export(path):
    return saved_model._load(path)[0]


READERS = [read_task, read_backbone, read_tokenizer, read_preprocessor, convert]
CASES = [(read, "preset") for read in (*READERS, export)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*loaded in part")
@pytest.mark.parametrize(
    ("read", "kind"), [*CASES, (read_task, "transformers"), (convert, "transformers")]
)
def test_what_is_replaced_while_it_is_read(read, kind, tmp_path, monkeypatch):
    if kind == "transformers":
        pytest.importorskip("safetensors")
    path = str(tmp_path / "model")
    # `transformers` has no pooler in a masked language model.
    backbone = BertBackbone(12, 2, 2, 8, 16, max_sequence_length=8, pooler=False)
    tokenizer = BertTokenizer([*VOCABULARY, "g"])
    new = MaskedLM(backbone, MaskedLMPreprocessor(tokenizer, 7))

    def save(task):
        if kind == "preset":
            task.save_to_preset(path)
        else:
            task.export_to_transformers(path)

    save(make())
    monkeypatch.setattr(locks, "_PATIENCE", 0)
    original, names = reading.read_json, []

    def read_json(file, *arguments, **options):
        names.append(file)
        content = original(file, *arguments, **options)
        if len(names) == 1:
            save(new)
        return content

    monkeypatch.setattr(reading, "read_json", read_json)
    loaded = read(path)
    if loaded.backbone is not None:
        assert_same(loaded.backbone, new.backbone)
    if loaded.preprocessor is not None:
        assert loaded.preprocessor.tokenizer.get_vocabulary()[-1] == "g"
        if kind == "preset" and read is not read_tokenizer:
            assert loaded.preprocessor.sequence_length == 7


@pytest.mark.any_backend
def test_a_preset_is_not_saved_over_a_checkpoint_of_transformers(tmp_path):
    pytest.importorskip("safetensors")
    model = masked_lm()
    path = tmp_path / "exported"
    model.export_to_transformers(path)
    before = {each.name: each.read_bytes() for each in path.iterdir()}
    tokenizer = model.preprocessor.tokenizer
    for saved in (model, model.backbone, tokenizer, model.preprocessor):
        with pytest.raises(ValueError, match="another folder than a checkpo"):
            saved.save_to_preset(path)
    with pytest.raises(ValueError, match="another folder than a checkpoint"):
        folders.check_preset_destination(path)
    assert before == {each.name: each.read_bytes() for each in path.iterdir()}
    model.export_to_transformers(path)  # its own kind


@pytest.mark.any_backend
def test_rows_are_as_long_as_a_tokenizer_says(tmp_path):
    pytest.importorskip("safetensors")
    model = masked_lm(40, 40)
    model.export_to_transformers(tmp_path / "a")
    file = tmp_path / "a" / "tokenizer_config.json"
    config = json.loads(file.read_text())
    for told, length, truncate in (
        ({}, 40, "end"),
        ({"model_max_length": 10**30}, 40, "end"),
        ({"model_max_length": 24, "truncation_side": "left"}, 24, "start"),
    ):
        file.write_text(json.dumps({**config, **told}))
        with warnings.catch_warnings():  # of heads that are new
            warnings.simplefilter("ignore")
            made = TextClassifier.from_preset(str(tmp_path / "a"), num_classes=2)
            spans = SpanQuestionAnswering.from_preset(str(tmp_path / "a"))
        assert made.preprocessor.sequence_length == length
        assert made.preprocessor.truncate == truncate
        expected = spans.preprocessor.lengths_for(length)
        config_of_spans = spans.preprocessor.get_config()
        assert {name: config_of_spans[name] for name in expected} == expected
        assert (
            MaskedLM.from_preset(str(tmp_path / "a")).preprocessor.sequence_length == 40
        )


@pytest.mark.any_backend
def test_a_preset_is_not_saved_over_a_tokenizer_of_others(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(ValueError, match=r"whose tokenizer\.json would be replaced"):
        BertTokenizer(VOCABULARY).save_to_preset(tmp_path)
    assert (tmp_path / "tokenizer.json").read_text() == '{"model": {}}'


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "name",
    [
        "generation_config.json",
        "modules.json",
        "spm.model",
        "sentencepiece.bpe.model",
        "added_tokens.json",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "pytorch_model.bin",
        "pytorch_model.generator.bin",
        "generator/pytorch_model.bin",
        "tf_model.h5",
    ],
)
def test_files_of_an_older_export_go(name, tmp_path):
    pytest.importorskip("safetensors")
    model = masked_lm()
    (tmp_path / "a" / name).parent.mkdir(parents=True)
    (tmp_path / "a" / name).write_text("{}")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    model.export_to_transformers(tmp_path / "a")
    assert not (tmp_path / "a" / name).exists()
    assert (tmp_path / "a" / "notes.txt").exists()
    config = json.loads((tmp_path / "a" / "tokenizer_config.json").read_text())
    assert config["model_max_length"] == 8
