"""Preset directories that were damaged, and saving over one."""

import os
import resource
import shutil
import warnings

import h5py
import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_bertfam.models import BertBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.tasks import (
    MaskedLM,
)
from tests.tiny_preset import (
    BYTECODE,
    ELSEWHERE,
    FILES,
    FILES_READ,
    LAMBDA,
    VOCABULARY,
    edit,
    make,
    refused,
)

# === Damaged files ===


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES_READ)
@pytest.mark.parametrize("content", [b"", b"\x80\x02}q\x00.", b"[" * 100_000, b"[1]"])
def test_wrong_content(file, content, preset):
    if file == "tokenizer.json":
        os.remove(preset / "preprocessor.json")
    (preset / file).write_bytes(content)
    refused(preset, "truncated|must hold|config.json")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("file", ["model.weights.h5", "task.weights.h5"])
def test_truncated_weights(file, share, preset):
    path = preset / file
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    refused(preset, "truncated")


QKV = "encoder/attention_layers/residual_sublayer/sublayer/qkv"


@pytest.mark.parametrize(
    ("file", "layer", "name"),
    [("model.weights.h5", QKV, "qkv"), ("task.weights.h5", "head/dense", "dense")],
)
@pytest.mark.parametrize("damage", ["shape", "missing"])
def test_a_weight_of_another_shape_or_none(file, layer, name, damage, preset):
    with h5py.File(preset / file, "r+") as weights:
        del weights[f"{layer}/vars/0"]
        if damage == "shape":
            weights[f"{layer}/vars/0"] = np.zeros((3, 5), "f4")
    refused(preset, f"{file}' don't fit .*Expected weights for '.*{name}/kernel' ")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            {"vocabulary_size": 10},
            r"'.*token_embedding/embeddings' \(10, 8\)\. .*11, 8",
        ),
        ({"intermediate_dim": 8}, r"'.*ffn_0/.*' \(8, 8\) and 2 more\..*8, 16"),
        ({"num_layers": 2}, r"'.*attention_1/.*' .* and 11 more\. .*: none\."),
        ({"dropout": float("nan")}, "must be no NaN"),
    ],
)
def test_a_config_of_another_model_is_told_by_its_weights(argument, message, preset):
    edit(preset / "config.json", lambda config: config["config"].update(argument))
    refused(preset, message)


def test_other_files_of_weights(tmp_path):
    model, path = make(), tmp_path / "a.weights.h5"
    model.save_weights(path)
    with pytest.raises(CheckpointError, match="a.weights.h5' don't fit .*and 11 more"):
        make(num_layers=2).load_weights(path)
    path.write_bytes(path.read_bytes()[:1000])
    for loaded in (model, model.backbone):
        with pytest.raises(CheckpointError, match="a.weights.h5' can't be read"):
            loaded.load_weights(path)
    with pytest.raises(FileNotFoundError, match="none.weights.h5"):
        model.load_weights(tmp_path / "none.weights.h5")


@pytest.mark.parametrize("file", ["model.weights.h5", "task.weights.h5"])
def test_a_weight_too_many_is_named(file, preset):
    with h5py.File(preset / file, "r+") as weights:
        weights["other/vars/0"] = np.zeros(3, "f4")
    with pytest.warns(UserWarning, match="nothing here takes: /other/vars/0"):
        MaskedLM.from_preset(str(preset))


@pytest.mark.parametrize(
    ("file", "name", "path"),
    [
        ("model.weights.h5", f"{QKV}/vars/1", "qkv/bias"),
        ("task.weights.h5", "head/vars/0", "output_bias"),
    ],
)
def test_weights_that_are_not_finite(file, name, path, preset):
    with h5py.File(preset / file, "r+") as weights:
        weights[name][1] = np.nan
    with pytest.warns(UserWarning, match=f"NaN or infinite: .*{path}.$"):
        task = MaskedLM.from_preset(str(preset))
    values = [
        keras.ops.convert_to_numpy(v) for v in task.weights if v.path.endswith(path)
    ]
    assert any(np.isnan(v).any() for v in values)


def test_a_whole_preset_gives_no_warning(preset):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=UserWarning)
        MaskedLM.from_preset(str(preset))


# === Vocabularies ===


def rewrite_vocabulary(preset, tokens):
    path = preset / "assets" / "tokenizer" / "vocabulary.txt"
    path.write_text("".join(f"{token}\n" for token in tokens))


def test_a_vocabulary_longer_than_the_table(preset):
    rewrite_vocabulary(preset, [*VOCABULARY, "g"])
    refused(preset, "at most vocabulary_size=11.*Received one of 12")


def test_a_vocabulary_shorter_than_the_table(preset):
    rewrite_vocabulary(preset, VOCABULARY[:-1])
    with pytest.warns(UserWarning, match="of 10 tokens, and .* rows for 11"):
        MaskedLM.from_preset(str(preset))


def test_a_token_twice(preset):
    rewrite_vocabulary(preset, [*VOCABULARY[:-1], "a"])
    refused(preset, "once. Received: 'a' 2 times")


def test_a_vocabulary_without_a_special_token(preset):
    rewrite_vocabulary(preset, VOCABULARY[1:])
    refused(preset, r"Missing: \[PAD\]|\[PAD\]")


# === Fuzzing: ValueError and nothing else ===


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([LAMBDA, ELSEWHERE, BYTECODE, "keras_bertfam>BertBackbone"]),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.text(max_size=8), values, max_size=3)
    ),
    max_leaves=5,
)
BOUNDED = settings(
    max_examples=int(os.environ.get("BERTFAM_FUZZ", 12)),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def loads_or_value_error(preset):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MaskedLM.from_preset(str(preset))
    except CheckpointError:
        pass


@pytest.mark.slow
@BOUNDED
@given(data=st.data(), file=st.sampled_from(FILES))
def test_any_value_in_a_config(data, file, saved, tmp_path):
    preset = shutil.copytree(saved, tmp_path / "fuzz", dirs_exist_ok=True)

    def change(config):
        where = config
        if data.draw(st.booleans()):
            where = config["config"]
        key = data.draw(st.sampled_from(sorted(where)))
        where[key] = data.draw(VALUES)

    edit(preset / file, change)
    loads_or_value_error(preset)


@pytest.mark.slow
@BOUNDED
@given(
    file=st.sampled_from([*FILES_READ, "assets/tokenizer/vocabulary.txt"]),
    place=st.floats(0, 1, exclude_max=True),
    junk=st.binary(min_size=1, max_size=20),
)
def test_any_bytes_in_a_file(file, place, junk, saved, tmp_path):
    preset = shutil.copytree(saved, tmp_path / "fuzz", dirs_exist_ok=True)
    content = bytearray((preset / file).read_bytes())
    at = int(place * len(content))
    content[at : at + len(junk)] = junk
    (preset / file).write_bytes(content)
    loads_or_value_error(preset)


# === Saving ===


def test_shards_and_single_files_take_each_others_place(tmp_path):
    path = str(tmp_path / "preset")
    models = [make().backbone for _ in range(3)]
    for backbone, size in zip(models, (10, 1e-6, 10), strict=True):
        backbone.save_to_preset(path, max_shard_size=size)
        loaded = BertBackbone.from_preset(path)
        for ours, theirs in zip(backbone.weights, loaded.weights, strict=True):
            np.testing.assert_array_equal(
                *map(keras.ops.convert_to_numpy, (ours, theirs))
            )
    assert not list(tmp_path.glob("preset/model_*"))


def test_a_full_disk_leaves_the_old_preset(preset, tmp_path):
    before = {p: p.read_bytes() for p in preset.rglob("*") if p.is_file()}
    task = make(num_layers=2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Where HDF5 itself meets it, this process may end, now or with the next file.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        for model in (task, task.backbone):
            with pytest.raises(OSError, match="File too large"):
                model.save_to_preset(str(preset))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {p: p.read_bytes() for p in preset.rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["preset"]
    MaskedLM.from_preset(str(preset))
