"""Checkpoints that are damaged or hostile: named errors, nothing allocated."""

import contextlib
import json
import pathlib
import struct

import keras
import numpy as np
import pytest

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import AlbertBackbone, BertBackbone
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.tasks import MaskedLM, TextClassifier
from tests.tiny_checkpoint import (
    CONFIG,
    SIZES,
    WEIGHTS,
    load,
    tensors_of,
    with_config,
    with_tensors,
)
from tests.written_files import write


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
    with pytest.raises(CheckpointError, match=f"lacks {name}, but has 'my.{name}'"):

        def rename(tensors):
            tensors[f"my.{name}"] = tensors.pop(name)

        load(write(tmp_path, with_tensors(whole, rename)))
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
    with pytest.raises(CheckpointError, match="has no '.*embedding_hidden_mapping"):
        AlbertBackbone.from_preset(write(tmp_path, files))


SQUARE = {**SIZES, "embedding_dim": SIZES["hidden_dim"]}
MAPPING = "encoder.embedding_hidden_mapping_in"


def test_an_albert_of_one_width(tmp_path):
    """`transformers` always has a mapping between the widths; the original hasn't."""
    backbone = AlbertBackbone(**SQUARE)
    backbone.export_to_transformers(tmp_path / "out")
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    np.testing.assert_array_equal(tensors_of(files)[f"{MAPPING}.weight"], np.eye(8))
    np.testing.assert_array_equal(tensors_of(files)[f"{MAPPING}.bias"], np.zeros(8))
    inputs = {"token_ids": np.array([[1, 2, 3]])}

    def without(tensors):
        del tensors[f"{MAPPING}.weight"], tensors[f"{MAPPING}.bias"]

    for number, content in enumerate((files, with_tensors(files, without))):
        loaded = AlbertBackbone.from_preset(write(tmp_path / str(number), content))
        got, expected = (b(inputs)["sequence_output"] for b in (loaded, backbone))
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (got, expected)))
    for part in ("weight", "bias"):

        def change(tensors, part=part):
            tensors[f"{MAPPING}.{part}"] = tensors[f"{MAPPING}.{part}"] + 0.1

        folder = write(tmp_path / part, with_tensors(files, change))
        expected = rf"has no '.*{part}'. Expected: an identity.* Received: .*8.*\.$"
        with pytest.raises(CheckpointError, match=expected):
            AlbertBackbone.from_preset(folder)


def test_an_albert_whose_file_has_inner_groups(tmp_path):
    AlbertBackbone(**{**SIZES, "embedding_dim": 4}).export_to_transformers(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def repeat(tensors):
        for name in list(tensors):
            other = name.replace("albert_layers.0", "albert_layers.1")
            tensors[other] = tensors[name]

    folder = write(tmp_path, with_tensors(files, repeat))
    expected = r"'inner_group_num' 1\. Received: the tensor '.*albert_layers\.1\..*'\.$"
    with pytest.raises(CheckpointError, match=expected) as caught:
        AlbertBackbone.from_preset(folder)
    assert str(tmp_path) in str(caught.value)


def test_an_output_table_of_its_own(tmp_path):
    MaskedLM(BertBackbone(**SIZES)).export_to_transformers(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    name = "cls.predictions.decoder.weight"
    words = "bert.embeddings.word_embeddings.weight"
    for more, said, tied in (
        (1.0, False, False),
        (1.0, True, False),
        (0.0, True, True),
        (0.0, False, False),
        (None, False, True),
    ):

        def add(tensors, more=more):
            if more is not None:
                tensors[name] = tensors["bert.embeddings.word_embeddings.weight"] + more

        changed = with_config(with_tensors(files, add), tie_word_embeddings=said)
        folder = write(tmp_path, changed)
        with pytest.warns(UserWarning) if more is None else contextlib.nullcontext():
            model = MaskedLM.from_preset(folder)
        table = model.backbone.token_embedding
        assert table.tie_weights == model.backbone.tie_embeddings == tied
        if not tied:
            expected = tensors_of(changed)[name].T
            found = keras.ops.convert_to_numpy(table.reverse_embeddings)
            np.testing.assert_array_equal(found, expected)
    with pytest.warns(UserWarning, match=f"Not tied to the input's, .*out: {name}"):
        BertBackbone.from_preset(
            write(
                tmp_path, with_tensors(files, lambda t: t.update({name: t[words] + 1}))
            ),
            tie_embeddings=True,
        )


def test_the_bias_of_the_output_table_counts(tmp_path):
    MaskedLM(BertBackbone(**SIZES)).export_to_transformers(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def add(tensors):
        bias = tensors["cls.predictions.bias"]
        tensors["cls.predictions.decoder.bias"] = bias + 1

    model = MaskedLM.from_preset(write(tmp_path, with_tensors(files, add)))
    assert np.all(keras.ops.convert_to_numpy(model.head.bias) == 1)


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
    with pytest.warns(UserWarning, match="NaN or infinite values"):
        model = MaskedLM.from_preset(write(tmp_path, untied))
    assert not model.backbone.tie_embeddings


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


OLD = ["bert", "roberta", "albert", "distilbert", "xlnet"]


def export_old(family, folder):
    """The class, model and files of a bare model of 2019."""
    name = FAMILIES[family].backbone
    cls = keras.saving.get_registered_object(f"keras_bertfam>{name}")
    sizes = {k: v for k, v in SIZES.items() if family != "xlnet" or k[:3] != "max"}
    backbone = cls(**sizes)
    backbone.export_to_transformers(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    config = json.loads(files[CONFIG])
    del config["model_type"], config["architectures"]
    return cls, backbone, {**files, CONFIG: config}


@pytest.mark.parametrize("family", OLD)
def test_a_bare_model_of_2019(family, tmp_path):
    """No `model_type`, and names without a prefix."""
    cls, backbone, files = export_old(family, tmp_path / "new")
    assert not any(name.startswith(f"{family}.") for name in tensors_of(files))
    loaded = TokenBackbone.from_preset(write(tmp_path / "old", files))
    assert type(loaded) is cls
    for one, other in zip(loaded.weights, backbone.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (one, other)))


def test_a_bare_model_of_no_family(whole, tmp_path):
    files = {**whole, CONFIG: {"hidden_size": 8}}
    with pytest.raises(CheckpointError, match="families.*Received: model_type=None"):
        load(write(tmp_path, files))


@pytest.mark.parametrize("family", OLD)
def test_an_old_config_without_weights(family, tmp_path):
    cls, _, files = export_old(family, tmp_path / "new")
    del files[WEIGHTS]
    files |= {"vocab.json": b"{}"} if family == "roberta" else {}
    loaded = TokenBackbone.from_preset(write(tmp_path, files), load_weights=False)
    assert type(loaded) is cls and loaded.hidden_dim == 8
    tokens = "[PAD] [UNK] [CLS] [SEP] [MASK] a".split()
    if family == "bert":
        write(tmp_path, {"vocab.txt": "\n".join(tokens).encode()})
        assert BertTokenizer.from_preset(str(tmp_path)).vocabulary_size() == 6
