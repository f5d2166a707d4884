"""Preset directories that were damaged, or made to do harm."""

import json
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

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone, EncoderBackbone, XLNetBackbone
from keras_bertfam.presets import kerashub
from keras_bertfam.tasks import (
    MaskedLM,
    MaskedLMPreprocessor,
    PermutationLM,
    SpanBoundaryLM,
    TextClassifier,
    TextClassifierPreprocessor,
)

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]


def make(num_layers=1, vocabulary=VOCABULARY, **kwargs):
    sizes = dict(num_heads=2, hidden_dim=8, intermediate_dim=16, max_sequence_length=8)
    tokenizer = BertTokenizer(vocabulary)
    backbone = BertBackbone(
        vocabulary_size=kwargs.pop("rows", len(VOCABULARY)),
        num_layers=num_layers,
        **sizes,
    )
    return MaskedLM(backbone, MaskedLMPreprocessor(tokenizer, 8))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "preset"
    make().save_to_preset(str(path))
    return path


@pytest.fixture
def preset(saved, tmp_path):
    """A copy of a whole preset, to be damaged."""
    return shutil.copytree(saved, tmp_path / "preset")


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def refused(preset, message, cls=MaskedLM):
    with pytest.raises(ValueError, match=message):
        cls.from_preset(str(preset))


# === Classes and code ===

LAMBDA = {
    "module": "keras.layers",
    "class_name": "Lambda",
    "config": {"function": "x"},
    "registered_name": None,
}
ELSEWHERE = {
    "module": "subprocess",
    "class_name": "Popen",
    "config": {"args": ["touch", "ran"]},
    "registered_name": None,
}
SAVED_MODEL = {**LAMBDA, "class_name": "TFSMLayer", "config": {"filepath": "/"}}
BYTECODE = {"class_name": "__lambda__", "config": {"value": "4wAAAA=="}}
FILES = ["config.json", "preprocessor.json", "tokenizer.json", "task.json"]


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
    refused(preset, "not a subclass|truncated or damaged", BertBackbone)


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


FILES_READ = [*FILES, "model.weights.h5", "task.weights.h5"]


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


# === Sizes ===


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("vocabulary_size", 10**12),
        ("vocabulary_size", -1),
        ("vocabulary_size", 1e9),
        ("hidden_dim", 10**9),
        ("intermediate_dim", 10**9),
        ("num_layers", 10**9),
        ("max_sequence_length", 10**9),
        ("head_dim", 10**9),
        ("num_segments", 10**9),
    ],
)
def test_sizes_are_checked_before_anything_is_allocated(argument, value, preset):
    edit(preset / "config.json", lambda c: c["config"].update({argument: value}))
    refused(preset, f"doesn't fit its weights.*{argument}")


def test_weights_that_declare_more_than_they_store(preset):
    with h5py.File(preset / "model.weights.h5", "r+") as file:
        file.create_dataset("x", (10**6, 10**6), "f4", chunks=(1, 10**6))
    refused(preset, "are stored")


@pytest.fixture
def task_preset(request, tmp_path):
    """A preset of a task with sizes of its own."""
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16)
    backbone = make().backbone
    if request.param is PermutationLM:
        backbone = XLNetBackbone(vocabulary_size=11, **sizes)
    arguments = {
        TextClassifier: dict(num_classes=3),
        SpanBoundaryLM: {},
        PermutationLM: dict(memory_length=4, reuse_length=2, batch_size=2),
    }[request.param]
    request.param(backbone, **arguments).save_to_preset(str(tmp_path / "task"))
    return request.param, tmp_path / "task"


DECLARED = [
    (TextClassifier, {"num_classes": 300_000}),
    (TextClassifier, {"num_classes": 3.0}),
    (TextClassifier, {"num_classes": None, "label_names": list(map(str, range(9)))}),
    (SpanBoundaryLM, {"max_span_length": 10**9}),
    (SpanBoundaryLM, {"position_dim": 10**9}),
    (PermutationLM, {"memory_length": 10**9}),
    (PermutationLM, {"batch_size": 10**9}),
]


@pytest.mark.parametrize(("task_preset", "changes"), DECLARED, indirect=["task_preset"])
def test_sizes_of_a_task_are_checked_before_it_is_built(
    changes, task_preset, monkeypatch
):
    cls, path = task_preset
    cls.from_preset(str(path))
    edit(path / "task.json", lambda c: c["config"].update(changes))
    monkeypatch.setattr(cls, "__init__", None)
    refused(path, "doesn't fit its weights|far more than is stored", cls)


@pytest.mark.parametrize("task_preset", [TextClassifier], indirect=True)
def test_sizes_of_a_task_that_stores_nothing(task_preset, monkeypatch):
    cls, path = task_preset
    os.remove(path / "task.weights.h5")
    cls.from_preset(str(path))
    edit(path / "task.json", lambda c: c["config"].update(num_classes=300_000))
    refused(path, "far more than is stored", cls)
    os.remove(path / "task.json")
    tokenizer = BertTokenizer(VOCABULARY)
    preprocessor = TextClassifierPreprocessor(tokenizer, 8, num_classes=300_000)
    preprocessor.save_to_preset(str(path))
    refused(path, "far more than is stored", cls)


@pytest.mark.parametrize("task_preset", [TextClassifier], indirect=True)
def test_a_backbone_of_other_sizes_in_a_task(task_preset):
    cls, path = task_preset
    size = {"hidden_dim": 1}
    edit(path / "task.json", lambda c: c["config"]["backbone"]["config"].update(size))
    refused(path, "hidden_dim=8 of that beside it. Received: 1", cls)


# === Damaged files ===


@pytest.mark.parametrize("file", FILES_READ)
@pytest.mark.parametrize("content", [b"", b"\x80\x02}q\x00.", b"[" * 100_000, b"[1]"])
def test_wrong_content(file, content, preset):
    if file == "tokenizer.json":
        os.remove(preset / "preprocessor.json")
    (preset / file).write_bytes(content)
    refused(preset, "truncated or damaged|must hold|config.json")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("file", ["model.weights.h5", "task.weights.h5"])
def test_truncated_weights(file, share, preset):
    path = preset / file
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    refused(preset, "truncated or damaged")


QKV = "encoder/attention_layers/residual_sublayer/sublayer/qkv/vars"


@pytest.mark.parametrize(
    ("file", "name"),
    [("model.weights.h5", f"{QKV}/0"), ("task.weights.h5", "head/dense/vars/0")],
)
@pytest.mark.parametrize("damage", ["shape", "missing"])
def test_a_weight_of_another_shape_or_none(file, name, damage, preset):
    with h5py.File(preset / file, "r+") as weights:
        del weights[name]
        if damage == "shape":
            weights[name] = np.zeros((3, 5), "f4")
    refused(preset, "")


@pytest.mark.parametrize("file", ["model.weights.h5", "task.weights.h5"])
def test_a_weight_too_many_is_named(file, preset):
    with h5py.File(preset / file, "r+") as weights:
        weights["other/vars/0"] = np.zeros(3, "f4")
    with pytest.warns(UserWarning, match="nothing here takes: /other/vars/0"):
        MaskedLM.from_preset(str(preset))


@pytest.mark.parametrize(
    ("file", "name", "path"),
    [
        ("model.weights.h5", f"{QKV}/1", "qkv/bias"),
        ("task.weights.h5", "head/vars/0", "output_bias"),
    ],
)
def test_weights_that_are_not_finite(file, name, path, preset):
    with h5py.File(preset / file, "r+") as weights:
        weights[name][1] = np.nan
    with pytest.warns(UserWarning, match=f"NaN or infinite: .*{path}$"):
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
    except ValueError:
        pass


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
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            task.save_to_preset(str(preset))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {p: p.read_bytes() for p in preset.rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["preset"]
    MaskedLM.from_preset(str(preset))
