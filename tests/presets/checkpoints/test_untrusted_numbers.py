"""Configs of every reader with numbers that no model has: refused, or of no effect."""

import json

import h5py
import pytest

from keras_bertfam.models import Backbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import fairseq, reading, tensorflow1
from keras_bertfam.presets.families import BACKBONES, transformers_tables
from keras_bertfam.tasks import (
    MaskedLMPreprocessor,
    PermutationLM,
    TextClassifier,
    TextClassifierPreprocessor,
)
from tests.huge_numbers import HARMLESS, HUGE, check_numbers, seconds
from tests.presets.checkpoints.test_kerashub import MORE
from tests.presets.checkpoints.test_kerashub import make as make_theirs
from tests.tiny_fine_tuning import fast_families, make_backbone, make_tokenizer
from tests.tiny_preset import edit, refused


@pytest.mark.slow
@pytest.mark.parametrize("family", fast_families("albert", "xlnet"))
def test_presets(family, tmp_path):
    backbone = make_backbone(family)
    if family == "xlnet":
        task = PermutationLM(backbone, memory_length=4, reuse_length=2, batch_size=2)
    else:
        preprocessor = TextClassifierPreprocessor(make_tokenizer(), 16, num_classes=3)
        task = TextClassifier(backbone, 3, preprocessor=preprocessor)
    task.save_to_preset(tmp_path)
    assert check_numbers(tmp_path, "config.json", type(task).from_preset)
    # The backbone and the preprocessor in it are read from files of their own.
    edit(tmp_path / "task.json", lambda c: c["config"].pop("backbone"))
    edit(tmp_path / "task.json", lambda c: c["config"].update(preprocessor=None))
    assert check_numbers(tmp_path, "task.json", type(task).from_preset)
    if family != "xlnet":
        check_numbers(tmp_path, "preprocessor.json", type(task).from_preset)


SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 64}
MORE_SIZES = {
    "elmo": {"cell_dim": 6, "embedding_dim": 4, "filters": [[1, 4]], "num_highways": 1},
    "transfo-xl": {"cutoffs": [10, 20], "divisor": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("load_weights", [True, False])
@pytest.mark.parametrize(
    "family",
    [
        "elmo",
        "transfo-xl",
        pytest.param("t5", marks=pytest.mark.slow),
        pytest.param("modernbert", marks=pytest.mark.slow),
    ],
)
def test_backbones_of_other_forms(family, load_weights, tmp_path):
    cls = BACKBONES[family]
    sizes = {name: n for name, n in SIZES.items() if name in cls.argument_names}
    cls(40, **sizes, **MORE_SIZES.get(family, {})).save_to_preset(tmp_path)
    # Neither ELMo's words nor rotated positions have a row in a table.
    harmless = {"elmo": {"vocabulary_size"}, "modernbert": {"max_sequence_length"}}
    check_numbers(
        tmp_path,
        "config.json",
        lambda path: Backbone.from_preset(path, load_weights=load_weights),
        [*([10**6, -1] if load_weights else []), *HUGE],
        HARMLESS | harmless.get(family, set()),
    )


@pytest.mark.parametrize("load_weights", [True, False])
def test_without_weights(load_weights, preset):
    (preset / "model.weights.h5").unlink()
    (preset / "task.weights.h5").unlink()

    def load(path):
        Backbone.from_preset(path, load_weights=load_weights)

    check_numbers(preset, "config.json", load)
    check_numbers(preset, "preprocessor.json", MaskedLMPreprocessor.from_preset)


@pytest.mark.parametrize(
    "name",
    [
        name
        if name[:3] in ("Alb", "XLN")
        else pytest.param(name, marks=pytest.mark.slow)
        for name in MORE
    ],
)
def test_presets_of_keras_hub(name, tmp_path):
    make_theirs(name).save_to_preset(str(tmp_path))
    assert check_numbers(tmp_path, "config.json", Backbone.from_preset)


FAST = ("albert", "xlnet", "t5", "bart")


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
        for name in transformers_tables()
    ],
)
@pytest.mark.parametrize("load_weights", [True, False])
def test_folders_of_transformers(family, load_weights, tmp_path):
    pytest.importorskip("safetensors")
    sizes = {**SIZES}
    if "pooler" in BACKBONES[family].argument_names:
        sizes["pooler"] = family in ("bert", "albert", "longformer", "ernie")
    if family == "xlm":
        sizes["num_languages"] = 2
    BACKBONES[family](40, **sizes).export_to_transformers(tmp_path)

    def load(path):
        Backbone.from_preset(path, load_weights=load_weights)

    more = [10**6, -1] if load_weights else []
    # Rotations have no table of positions, no pooler is read of DeBERTa's, and -1 is
    # what its releases have for as many distances as positions.
    others = {
        "modernbert": {"max_position_embeddings"},
        "eurobert": {"max_position_embeddings"},
        "modernbert-decoder": {"max_position_embeddings", "pad_token_id"},
        "neobert": {"max_length"},
        **dict.fromkeys(
            ("deberta", "deberta-v2"), {"pooler_hidden_size", "max_relative_positions"}
        ),
    }
    harmless = HARMLESS | others.get(family, set())
    values = [*more, *HUGE]
    places = check_numbers(tmp_path, "config.json", load, values, harmless)
    assert len(places) > 4


# === Rates and names ===


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("activation", "unknown"),
        ("activation", 7),
        ("dropout", -0.1),
        ("dropout", float("nan")),
        ("dropout", 1e999),
        ("attention_dropout", 1),
        ("layer_norm_epsilon", -1e-6),
        ("layer_norm_epsilon", "1e-12"),
        ("initializer_range", -1),
        ("clamp_length", "far"),
    ],
)
def test_other_values_that_no_backbone_has(name, value, preset):
    edit(preset / "config.json", lambda c: c["config"].update({name: value}))
    refused(preset, f"{name}|there must be no NaN|less than|Infinity")


@pytest.mark.parametrize("rate", [-0.1, float("nan"), 1.5])
def test_rates_of_a_preprocessor(rate, preset):
    name = "mask_selection_rate"
    edit(preset / "preprocessor.json", lambda c: c["config"].update({name: rate}))
    refused(preset, f"{name}|there must be no NaN")


@pytest.mark.parametrize("names", [7, "ab", [1, 2], [["a"]]])
def test_names_of_classes_that_are_none(names, preset):
    edit(preset / "task.json", lambda c: c["config"].update(label_names=names))
    refused(preset, "`label_names` .* list of strings|doesn't fit its weights")


# === Files larger than they can be ===


@pytest.mark.parametrize("file", ["config.json", "task.json", "preprocessor.json"])
def test_a_config_of_lists(file, preset):
    lists = {
        "too large for a file of its kind": "[[[],[]],[]]," * 1_500_000 + "0",
        "at most 50000 lists and objects": "[[[],[]],[]]," * 50_000 + "0",
        "at most 50 lists in each other": "[" * 60 + "]" * 60,
    }
    content = json.loads((preset / file).read_text())
    content["config"]["name"] = "@"
    for message, text in lists.items():
        (preset / file).write_text(json.dumps(content).replace('"@"', f"[{text}]"))
        with seconds(5):
            refused(preset, message)


@pytest.mark.parametrize("name", ["vocabulary.txt", "merges.txt", "other/tokens"])
def test_a_vocabulary_is_measured_before_it_is_read(name, preset):
    path = preset / "assets" / "tokenizer" / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(reading.MAX_VOCABULARY + 1)  # takes no room
    with seconds(5):
        refused(preset, "too large for a file of its kind")


@pytest.mark.parametrize("name", ["vocab.txt", "dict.txt", "vocab.bpe"])
def test_a_vocabulary_of_another_library_is_measured(name, tmp_path):
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(reading.MAX_VOCABULARY + 1)
    actions = {
        "vocab.txt": lambda: tensorflow1._tokenizer(str(tmp_path)),
        "dict.txt": lambda: fairseq._read_dictionary(tmp_path, 9),
        "vocab.bpe": lambda: fairseq._tokenizer_files(tmp_path, []),
    }
    (tmp_path / "encoder.json").write_text("{}")
    with pytest.raises(CheckpointError, match="too large for a file of its kind"):
        actions[name]()


def test_a_dictionary_with_a_token_twice_at_its_end(tmp_path):
    tokens = [*map(str, range(300_000)), "299999"]
    (tmp_path / "dict.txt").write_text("\n".join(tokens))
    with seconds(5), pytest.raises(CheckpointError, match="once. Received: '299999' 2"):
        fairseq._read_dictionary(tmp_path, 300_006)


def test_weights_that_lead_to_each_other_in_many_ways(preset):
    with h5py.File(preset / "model.weights.h5", "r+") as file:
        group = file
        for _ in range(40):  # 2**40 ways to the last one
            inner = group.create_group("a")
            group["b"] = inner
            group = inner
    with seconds(5):
        refused(preset, "must hold .* once")
