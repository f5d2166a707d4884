"""Files that are damaged or hostile: named errors, nothing run, nothing allocated."""

import copy
import json
import os
import pathlib
import pickle
import struct
import warnings

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import AlbertBackbone, BertBackbone
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.presets import CheckpointError, reading
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.tasks import MaskedLM, TextClassifier

safetensors_numpy = pytest.importorskip("safetensors.numpy")
SIZES = dict(
    num_layers=1,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=8,
    vocabulary_size=11,
    max_sequence_length=6,
)
WEIGHTS, CONFIG = "model.safetensors", "config.json"
INDEX = f"{WEIGHTS}.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The content of a checkpoint's files, by name."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    BertBackbone(**SIZES).export_to_transformers(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        (folder / name).write_bytes(content)
    return str(folder)


def load(folder, **kwargs):
    return BertBackbone.from_preset(str(folder), **kwargs)


def tensors_of(files):
    return safetensors_numpy.load(files[WEIGHTS])


def with_tensors(files, change):
    tensors = tensors_of(files)
    change(tensors)
    return {**files, WEIGHTS: safetensors_numpy.save(tensors)}


def with_config(files, **changes):
    return {**files, CONFIG: {**json.loads(files[CONFIG]), **changes}}


def header(content):
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(content)) + content


TOO_LARGE = {"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}}
OVERLAPPING = {
    name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in "ab"
}
DAMAGED = {
    "empty": b"",
    "wrong magic": b"\x89HDF\r\n\x1a\n" + bytes(200),
    "a header of 2^62 bytes": struct.pack("<Q", 2**62) + bytes(100),
    "a header that isn't JSON": header(b"{" * 40),
    "a deep header": header(b"[" * 60_000),
    "a tensor larger than the file": header(TOO_LARGE) + bytes(8),
    "overlapping tensors": header(OVERLAPPING) + bytes(8),
    "an odd dtype": header(
        {"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}
    )
    + bytes(8),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_safetensors(kind, whole, tmp_path):
    folder = write(tmp_path, {**whole, WEIGHTS: DAMAGED[kind]})
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load(folder)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.99])
def test_a_truncated_file(share, whole, tmp_path):
    content = whole[WEIGHTS]
    cut = content[: int(len(content) * share)]
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load(write(tmp_path, {**whole, WEIGHTS: cut}))


def test_a_directory_in_place_of_a_file(whole, tmp_path):
    for name in (WEIGHTS, CONFIG):
        rest = {key: value for key, value in whole.items() if key != name}
        folder = pathlib.Path(write(tmp_path / name, rest))
        (folder / name).mkdir()
        with pytest.raises(CheckpointError, match="is not a file"):
            load(folder)
    with pytest.raises(CheckpointError, match="is not a file"):
        reading.read_safetensors(tmp_path)
    with pytest.raises(CheckpointError, match="can't be read"):
        reading.read_json(tmp_path / "nowhere.json")


def test_missing_extra_and_misshapen_tensors(whole, tmp_path):
    name = "encoder.layer.0.attention.self.key.weight"
    with pytest.raises(CheckpointError, match=f"lacks {name}"):
        load(write(tmp_path, with_tensors(whole, lambda tensors: tensors.pop(name))))
    for shape in ((8, 9), (64,), (8, 8, 1), (0, 8)):

        def change(tensors, shape=shape):
            tensors[name] = np.zeros(shape, "float32")

        with pytest.raises(CheckpointError, match=f"{name}.*(8, 9)|64|8, 8, 1|floats"):
            load(write(tmp_path, with_tensors(whole, change)))

    def add(tensors):
        tensors["extra"] = np.zeros((2, 2), "float32")

    with pytest.warns(UserWarning, match="left out: extra"):
        load(write(tmp_path, with_tensors(whole, add)))

    def integers(tensors):
        tensors[name] = np.zeros((8, 8), "int32")

    with pytest.raises(CheckpointError, match="of floats. Received: int32"):
        load(write(tmp_path, with_tensors(whole, integers)))


def test_values_that_are_not_finite(whole, tmp_path):
    for value in (np.nan, np.inf):

        def change(tensors, value=value):
            tensors["pooler.dense.bias"][3] = value

        folder = write(tmp_path, with_tensors(whole, change))
        with pytest.warns(UserWarning, match="NaN or infinite values: pooler.dense.b"):
            backbone = load(folder)
        bias = keras.ops.convert_to_numpy(backbone.pooler.dense.bias)
        assert not np.isfinite(bias[3]) and np.isfinite(np.delete(bias, 3)).all()


BAD_CONFIGS = {
    "no size": {"hidden_size": None},
    "a size as text": {"hidden_size": "8"},
    "a size as a float": {"num_hidden_layers": 1.0},
    "a size as a bool": {"num_hidden_layers": True},
    "a negative size": {"vocab_size": -1},
    "heads that don't divide": {"num_attention_heads": 3},
    "more heads than width": {"num_attention_heads": 2**30},
    "a rate above 1": {"hidden_dropout_prob": 1.5},
    "an epsilon that isn't a number": {"layer_norm_eps": "NaN"},
    "an unknown activation": {"hidden_act": "exec"},
    "an activation that isn't text": {"hidden_act": ["gelu"]},
    "another model": {"model_type": "t5"},
    "a model that isn't text": {"model_type": ["bert"]},
    "a decoder": {"is_decoder": True},
    "relative positions": {"position_embedding_type": "relative_key"},
    "more layers than tensors": {"num_hidden_layers": 9999},
    "layers without end": {"num_hidden_layers": 10**12},
    "a wider model than the tensors": {
        "hidden_size": 2**20,
        "intermediate_size": 2**20,
    },
    "more rows than the tensor": {"vocab_size": 2**31 - 1},
    "a few more rows than the tensor": {"vocab_size": 12},
    "more positions than the tensor": {"max_position_embeddings": 7},
}


@pytest.mark.parametrize("kind", BAD_CONFIGS)
def test_configs_of_no_model(kind, whole, tmp_path):
    folder = write(tmp_path, with_config(whole, **BAD_CONFIGS[kind]))
    with pytest.raises(CheckpointError, match="conf|famil|tensors") as caught:
        load(folder)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 50_000])
def test_a_config_that_is_no_object(content, whole, tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(write(tmp_path, {**whole, CONFIG: content}))


def test_an_albert_without_its_projection(tmp_path):
    sizes = {**SIZES, "embedding_dim": 4}
    AlbertBackbone(**sizes).export_to_transformers(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def widen(tensors):
        for name in tensors:
            if tensors[name].shape[-1] == 4:
                shape = (*tensors[name].shape[:-1], 8)
                tensors[name] = np.zeros(shape, "float32")

    files = with_config(with_tensors(files, widen), embedding_size=8)
    with pytest.raises(CheckpointError, match="embedding_hidden_mapping_in.*no place"):
        AlbertBackbone.from_preset(write(tmp_path, files))


def test_an_output_table_of_its_own(tmp_path):
    MaskedLM(BertBackbone(**SIZES)).export_to_transformers(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    table = tensors_of(files)["bert.embeddings.word_embeddings.weight"]
    for tied in (True, False):

        def add(tensors, tied=tied):
            tensors["cls.predictions.decoder.weight"] = table if tied else table + 1

        folder = write(tmp_path, with_tensors(files, add))
        if tied:
            MaskedLM.from_preset(folder)
            continue
        with pytest.raises(CheckpointError, match="decoder.weight.*must equal"):
            MaskedLM.from_preset(folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_output_table_with_nan_is_the_inputs(dtype, tmp_path):
    MaskedLM(BertBackbone(**SIZES)).export_to_transformers(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def change(tensors, tied=True):
        table = tensors["bert.embeddings.word_embeddings.weight"].astype(dtype)
        table[3, 4] = np.nan
        tensors["bert.embeddings.word_embeddings.weight"] = table
        output = tensors["cls.predictions.decoder.weight"] = table.copy()
        output[3, 4] = np.nan if tied else 1

    with pytest.warns(UserWarning, match="NaN or infinite values"):
        MaskedLM.from_preset(write(tmp_path, with_tensors(files, change)))
    untied = with_tensors(files, lambda tensors: change(tensors, tied=False))
    with pytest.raises(CheckpointError, match="decoder.weight.*must equal"):
        MaskedLM.from_preset(write(tmp_path, untied))


@pytest.mark.parametrize("change", [{"weight": None}, {"bias": 4}, {"weight": (4, 1)}])
def test_the_number_of_classes_is_the_heads(change, tmp_path):
    TextClassifier(BertBackbone(**SIZES), 3).export_to_transformers(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def damage(tensors):
        for name, shape in change.items():
            del tensors[f"classifier.{name}"]
            if shape is not None:
                tensors[f"classifier.{name}"] = np.zeros(shape, "float32")

    folder = write(tmp_path, with_tensors(files, damage))
    with pytest.raises(ValueError, match="num_classes|must be of the shapes"):
        TextClassifier.from_preset(folder)


def test_a_folder_without_weights_says_so(whole, tmp_path):
    folder = write(tmp_path, {CONFIG: whole[CONFIG]})
    with pytest.raises(CheckpointError, match="no weights.*one of.*model.safetensors"):
        load(folder)
    assert load(folder, load_weights=False).hidden_dim == 8


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "xlnet"])
def test_an_old_config_without_weights(family, tmp_path):
    name = FAMILIES[family].backbones[0]
    cls = keras.saving.get_registered_object(f"keras_bertfam>{name}")
    sizes = {k: v for k, v in SIZES.items() if family != "xlnet" or k[:3] != "max"}
    cls(**sizes).export_to_transformers(tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    del config["model_type"]
    (tmp_path / WEIGHTS).unlink()
    files = {CONFIG: config, "vocab.json" if family == "roberta" else "other": b"{}"}
    loaded = TokenBackbone.from_preset(write(tmp_path, files), load_weights=False)
    assert type(loaded) is cls and loaded.hidden_dim == 8
    tokens = "[PAD] [UNK] [CLS] [SEP] [MASK] a".split()
    if family == "bert":
        write(tmp_path, {"vocab.txt": "\n".join(tokens).encode()})
        assert BertTokenizer.from_preset(str(tmp_path)).vocabulary_size() == 6


def sharded(files, shards=("a.safetensors", "b.safetensors")):
    tensors = tensors_of(files)
    names = {name: shards[i % 2] for i, name in enumerate(tensors)}
    parts = {
        shard: safetensors_numpy.save(
            {name: tensor for name, tensor in tensors.items() if names[name] == shard}
        )
        for shard in shards
    }
    return {CONFIG: files[CONFIG], INDEX: {"weight_map": names}, **parts}


def test_shards_that_lead_elsewhere(whole, tmp_path):
    files = sharded(whole)
    load(write(tmp_path / "model", files))
    (tmp_path / "secret.safetensors").write_bytes(files["b.safetensors"])
    names = files[INDEX]["weight_map"]
    for name in (
        "../secret.safetensors",
        str(tmp_path / "secret.safetensors"),
        "..",
        "",
    ):
        changed = {k: name if v[0] == "b" else v for k, v in names.items()}
        write(tmp_path / "model", {INDEX: {"weight_map": changed}})
        with pytest.raises(CheckpointError, match="in its folder|not a file|is a link"):
            load(tmp_path / "model")
    write(tmp_path / "model", files)
    (tmp_path / "model" / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"b\.safetensors' is not a file"):
        load(tmp_path / "model")
    os.symlink("../secret.safetensors", tmp_path / "model" / "b.safetensors")
    with pytest.raises(CheckpointError, match="is a link to another folder"):
        load(tmp_path / "model")


def test_links_within_a_cache_of_the_hub(whole, tmp_path):
    blobs = pathlib.Path(write(tmp_path / "blobs", whole))
    folder = tmp_path / "snapshots" / "1"
    folder.mkdir(parents=True)
    for name in whole:
        (folder / name).symlink_to(blobs / name)
    load(folder)


def test_an_index_that_lies(whole, tmp_path):
    files = sharded(whole)
    names = dict(files[INDEX]["weight_map"])
    first = next(iter(names))
    names[first] = "b.safetensors"
    for content, message in (
        ({"weight_map": names}, "which isn't there"),
        ({"weight_map": {first: 3}}, "must map names to files"),
        ({"weight_map": []}, "must map names to files"),
        ({}, "must map names to files"),
        (b"nothing", "can't be read"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load(write(tmp_path, {**files, INDEX: content}))


class Payload:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_runs_nothing(whole, tmp_path):
    torch = pytest.importorskip("torch")
    bomb = tmp_path / "exploded"
    payload = Payload(str(bomb))
    for index, content in enumerate(
        (
            pickle.dumps(Payload(str(bomb))),
            pickle.dumps({"a": Payload(str(bomb))}),
            b"x",
        )
    ):
        folder = write(
            tmp_path / str(index),
            {CONFIG: whole[CONFIG], "pytorch_model.bin": content},
        )
        with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
            load(folder)
        path = pathlib.Path(folder, "pytorch_model.bin")
        torch.save({"a": payload}, path)
        with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
            load(folder)
        torch.save([torch.zeros(2)], path)
        with pytest.raises(CheckpointError, match="must hold a dict of tensors"):
            load(folder)
    assert not bomb.exists()


def test_a_pickle_without_pytorch(whole, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    files = {CONFIG: whole[CONFIG], "pytorch_model.bin": b"x"}
    with pytest.raises(ImportError, match="only PyTorch reads without running it"):
        load(write(tmp_path, files))


@pytest.mark.parametrize("version", ["2.5.1", "1.13.0+cu117"])
def test_a_pickle_with_a_pytorch_that_may_run_it(version, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.zeros(2)}, tmp_path / "pytorch_model.bin")
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ImportError, match="may run what is in it.*safetensors"):
        reading.read_pytorch(tmp_path / "pytorch_model.bin")


def test_a_pickle_that_declares_more_than_it_stores(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    for tensor in (
        torch.zeros(1).expand(10_000, 10_000),
        torch.empty(10_000, 10_000, device="meta"),
        torch.eye(3).to_sparse(),
    ):
        torch.save({"a": tensor}, path)
        with pytest.raises(CheckpointError, match="must have 400000000 b|dense, real"):
            reading.read_pytorch(path)


def test_a_pickle_is_read_when_a_tensor_is(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12.0).reshape(4, 3).T
    torch.save({"a": tensor}, tmp_path / "pytorch_model.bin")
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "contiguous", None)
        lazy = reading.read_pytorch(tmp_path / "pytorch_model.bin")["a"]
    np.testing.assert_array_equal(np.asarray(lazy), tensor.numpy())


def mutated(draw, content):
    """Bytes with some of them changed, cut out or put in."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        count = draw(st.integers(0, 6))
        content[at : at + count] = draw(st.binary(max_size=6))
    return bytes(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def damaged(draw, files):
    """A checkpoint of which one thing is wrong."""
    files = copy.copy(files)
    kind = draw(st.sampled_from(["value", "bytes", "header", "index"]))
    if kind == "value":
        config = json.loads(files[CONFIG])
        config[draw(st.sampled_from(sorted(config)))] = draw(JSON)
        files[CONFIG] = json.dumps(config).encode()
    elif kind == "bytes":
        files[CONFIG] = mutated(draw, files[CONFIG])
    elif kind == "header":
        length = 8 + struct.unpack("<Q", files[WEIGHTS][:8])[0]
        head = mutated(draw, files[WEIGHTS][:length])
        files[WEIGHTS] = head + files[WEIGHTS][length:]
    else:
        files = sharded(files)
        names = files[INDEX]["weight_map"]
        names[draw(st.sampled_from(sorted(names)))] = draw(JSON)
        files[INDEX] = mutated(draw, json.dumps(files[INDEX]).encode())
    return files


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_fuzzed_checkpoints_load_or_say_what_is_wrong(data, whole, tmp_path):
    files = data.draw(damaged(whole))
    for path in tmp_path.iterdir():
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that something is left out
        try:
            backbone = TokenBackbone.from_preset(write(tmp_path, files))
        except CheckpointError:
            return
    assert backbone.hidden_dim == 8
