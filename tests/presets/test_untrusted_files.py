"""Preset directories made to do harm."""

import json
import os
import shutil

import h5py
import keras
import numpy as np
import pytest

from keras_bertfam.layers import MaskingStrategy
from keras_bertfam.models import BertBackbone, EncoderBackbone
from keras_bertfam.presets.checkpoints import kerashub
from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor
from tests import tiny_masked_lm
from tests.tiny_preset import (
    BYTECODE,
    ELSEWHERE,
    FILES,
    FILES_READ,
    LAMBDA,
    SAVED_MODEL,
    edit,
    refused,
)

# === Classes and code ===


@pytest.mark.parametrize("value", [LAMBDA, ELSEWHERE, SAVED_MODEL, BYTECODE])
@pytest.mark.parametrize("file", FILES[:2])
@pytest.mark.parametrize("nested", [True, False])
def test_a_config_may_not_name_other_classes(value, file, nested, preset):
    def change(config):
        if nested:
            config["config"]["strategy"] = value
        else:
            config.update({"registered_name": None, **value})

    edit(preset / file, change)
    refused(preset, "may not have")
    assert not os.path.exists("ran")


def test_a_class_of_another_kind(preset):
    edit(
        preset / "tokenizer.json",
        lambda c: c.update(registered_name="keras_bertfam>MaskTokens"),
    )
    os.remove(preset / "preprocessor.json")
    refused(preset, "must hold a preprocessor or a tokenizer")
    edit(
        preset / "config.json",
        lambda c: c.update(registered_name="keras_bertfam>MaskedLM"),
    )
    refused(preset, "must hold a BertBackbone", BertBackbone)


def test_a_class_of_the_user_is_taken(preset):
    @keras.saving.register_keras_serializable("tests_of_presets")
    class MyBackbone(BertBackbone):
        pass

    name = "tests_of_presets>MyBackbone"
    edit(preset / "config.json", lambda c: c.update(registered_name=name))
    assert type(EncoderBackbone.from_preset(str(preset))) is MyBackbone


# === Files elsewhere ===


@pytest.mark.parametrize("name", ["../outside.json", "/etc/passwd", "a/tokenizer.json"])
@pytest.mark.parametrize("file", ["preprocessor.json", "tokenizer.json"])
def test_a_config_may_not_name_a_file_elsewhere(name, file, preset):
    def change(config):
        config = config["config"]
        if "tokenizer" in config:
            config = config["tokenizer"]["config"]
        config["config_file"] = name

    edit(preset / file, change)
    if file == "tokenizer.json":
        os.remove(preset / "preprocessor.json")
    refused(preset, "`config_file`")


@pytest.mark.parametrize("argument", ["vocabulary", "merges", "proto"])
def test_a_vocabulary_may_not_be_a_path(argument, preset):
    os.remove(preset / "preprocessor.json")
    edit(
        preset / "tokenizer.json",
        lambda c: c["config"].update({argument: "/etc/passwd"}),
    )
    refused(preset, f"`{argument}`")


@pytest.mark.parametrize("file", [*FILES_READ, "assets/tokenizer/vocabulary.txt"])
def test_a_link_that_leads_elsewhere(file, preset, tmp_path):
    outside = tmp_path / "outside"
    shutil.move(preset / file, outside)
    (preset / file).symlink_to(outside)
    refused(preset, "must be inside it")


def test_no_config_elsewhere_is_read(tmp_path):
    outside = tmp_path / "outside.json"
    outside.write_text('{"registered_name": "keras_hub>BertBackbone"}')
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / "config.json").symlink_to(outside)
    assert not kerashub.recognises(tmp_path / "preset")


@pytest.mark.parametrize("file", ["config.json", "task.json", "model.weights.h5"])
def test_a_pipe_in_place_of_a_file(file, preset):
    os.remove(preset / file)
    os.mkfifo(preset / file)  # opened, it would wait for ever
    refused(preset, "must be a file. Received: a device or a pipe")


def test_a_link_to_a_directory_elsewhere(preset, tmp_path):
    shutil.move(preset / "assets", tmp_path / "assets")
    (preset / "assets").symlink_to(tmp_path / "assets")
    refused(preset, "must be inside it|no links")


def test_links_within_the_cache_of_a_hub(preset, tmp_path):
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot = tmp_path / "models--a--b" / "snapshots" / "revision"
    shutil.move(preset, blobs)
    for folder, _, files in os.walk(blobs):
        for file in files:
            link = snapshot / os.path.relpath(os.path.join(folder, file), blobs)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.join(folder, file))
    MaskedLM.from_preset(str(snapshot))


@pytest.mark.parametrize("file", FILES_READ)
def test_a_directory_in_place_of_a_file(file, preset):
    if file == "tokenizer.json":  # not read beside a preprocessor
        os.remove(preset / "preprocessor.json")
    os.remove(preset / file)
    (preset / file).mkdir()
    refused(preset, "must be a file|not complete")


@pytest.mark.parametrize("shard", ["../model.weights.h5", "/etc/passwd", ".."])
def test_an_index_may_not_name_a_file_elsewhere(shard, preset):
    os.remove(preset / "model.weights.h5")
    index = {"weight_map": {"a": [shard]}, "metadata": {}}
    (preset / "model.weights.json").write_text(json.dumps(index))
    refused(preset, "files beside it")


@pytest.mark.parametrize(
    "kind", ["external link", "soft link", "external data", "virtual"]
)
def test_weights_may_not_be_in_another_file(kind, preset, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.ones(3)
    with h5py.File(preset / "model.weights.h5", "r+") as file:
        if kind == "external link":
            file["x"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "secret")
        elif kind == "soft link":
            file["x"] = h5py.SoftLink("/embeddings")
        elif kind == "external data":
            place = [(str(tmp_path / "other.h5"), 0, 12)]
            file.create_dataset("x", (3,), "f4", external=place)
        else:
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "secret", (3,))
            file.create_virtual_dataset("x", layout)
    refused(preset, "no links|its own data")


@pytest.mark.parametrize("part", ["task", "strategy"])
def test_a_class_that_is_registered_after_it_was_saved(part, tmp_path):
    class Every(MaskingStrategy):
        def units(self, token_ids, candidates, starts_word, span_ids):
            return candidates, candidates

    class MyTask(MaskedLM):
        pass

    model = tiny_masked_lm.make_model()
    tokenizer = model.preprocessor.tokenizer
    own = MaskedLMPreprocessor(tokenizer, 16, strategy=Every())
    task = {
        "task": lambda: MyTask(model.backbone, model.preprocessor),
        "strategy": lambda: MaskedLM(model.backbone, own),
    }[part]()
    with pytest.warns(UserWarning, match="`from_preset` won't load this.*register_ke"):
        task.save_to_preset(str(tmp_path))
    refused(tmp_path, "an object that a preset may not have", MaskedLM)
    cls = MyTask if part == "task" else Every
    keras.saving.register_keras_serializable("tests_of_presets")(cls)
    loaded = type(task).from_preset(str(tmp_path))
    assert cls in (type(loaded), type(loaded.preprocessor.strategy))
