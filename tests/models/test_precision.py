"""LoRA, quantisation and bfloat16 for every family, as KerasHub's base has them."""

import json
import os
import warnings

import keras
import numpy as np
import pytest
from keras import ops
from keras.src.dtype_policies import QUANTIZATION_MODES

from keras_bertfam import models
from keras_bertfam.tasks import (
    MaskedLM,
    ReplacedTokenDetection,
    SpanBoundaryLM,
    SpanQuestionAnswering,
    TextClassifier,
)
from tests import tiny_families
from tests.marks import in_ci

SLOW = [pytest.mark.slow, pytest.mark.any_backend]
SEEDS = {"uint32", "int64"}  # of the generators of random numbers, by backend
FAMILIES = [
    "AlbertBackbone",
    "XLNetBackbone",
    *(
        pytest.param(f"{family}Backbone", marks=SLOW)
        for family in ("Bert", "DistilBert", "Electra", "Roberta", "SpanBert")
    ),
]
IDS = {"token_ids": np.array([[2, 7, 9, 3, 11, 3]])}
each_family = pytest.mark.parametrize("name", FAMILIES)


def make(name, **kwargs):
    sizes = dict(num_layers=2, num_heads=2, hidden_dim=32, intermediate_dim=64)
    if name != "XLNetBackbone":
        sizes["max_sequence_length"] = 8
    if name == "AlbertBackbone":
        sizes["embedding_dim"] = 16
    return getattr(models, name)(vocabulary_size=200, **{**sizes, **kwargs})


def states(backbone):
    return ops.convert_to_numpy(ops.cast(backbone(IDS)["sequence_output"], "float32"))


def size_of(folder):
    return os.path.getsize(os.path.join(folder, "model.weights.h5"))


@each_family
def test_int8_is_close_smaller_and_loads_again(name, tmp_path):
    backbone = make(name)
    backbone.save_to_preset(str(tmp_path / "float"))
    expected = states(backbone)
    backbone.quantize("int8")
    assert backbone.token_embedding.quantization_mode == "int8"
    got = states(backbone)
    cosine = (got * expected).sum() / np.linalg.norm(got) / np.linalg.norm(expected)
    assert cosine > 0.99
    backbone.save_to_preset(str(tmp_path / "int8"))
    assert size_of(tmp_path / "int8") < size_of(tmp_path / "float")
    loaded = type(backbone).from_preset(str(tmp_path / "int8"))
    np.testing.assert_allclose(states(loaded), got, atol=1e-6)


def quantization_config(mode):
    """With rows to measure, where the mode needs some."""
    cls = {"gptq": keras.quantizers.GPTQConfig, "awq": keras.quantizers.AWQConfig}
    rows = np.random.default_rng(0).integers(3, 50, (2, 8))
    sizes = dict(sequence_length=8, num_samples=2, group_size=8)
    return cls[mode](dataset=[*rows], tokenizer=len, **sizes) if mode in cls else None


# How a kernel is written is its mode's, and which kernels there are is the family's: CI
# tries all modes with one family, and on TensorFlow all families with two modes.
IN_THE_GRID = ("int8", "int4") if keras.backend.backend() == "tensorflow" else ()


def marks_of(family, mode):
    if family == "Bert":
        return ()
    return SLOW if mode in IN_THE_GRID else pytest.mark.slow("release")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "mode"),
    [
        pytest.param(family, mode, marks=marks_of(family, mode))
        for family in tiny_families.FAMILIES
        for mode in QUANTIZATION_MODES
    ],
)
def test_what_any_mode_writes_loads_again(family, mode, tmp_path):
    # More values in the token table than numbers in an int4 file.
    backbone = tiny_families.backbone_of(family, vocabulary_size=2000)
    config = quantization_config(mode)
    if config and backbone.get_quantization_layer_structure(mode) is None:
        with pytest.raises(ValueError, match="must have a `quantization_layer_struct"):
            backbone.quantize(mode, config=config)
        return
    with warnings.catch_warnings():
        warnings.simplefilter(
            "error", UserWarning
        )  # those of layers that have no such mode
        # A config says the mode.
        backbone.quantize(None if config else mode, config=config)
    backbone.save_to_preset(str(tmp_path / "one"))
    loaded = type(backbone).from_preset(str(tmp_path / "one"))
    loaded.save_to_preset(str(tmp_path / "two"))
    again = type(backbone).from_preset(str(tmp_path / "two"))
    x = tiny_families.inputs_of(family)
    for one in (loaded, again):
        modes = [layer.quantization_mode for layer in one._flatten_layers()]
        assert modes == [x.quantization_mode for x in backbone._flatten_layers()]
        assert mode in modes
        for got, expected in zip(
            *(keras.tree.flatten(model(x)) for model in (one, backbone)), strict=True
        ):
            np.testing.assert_array_equal(
                *(ops.convert_to_numpy(value) for value in (got, expected))
            )


def test_quantizers_that_a_file_would_not_name_are_refused():
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    with pytest.raises(ValueError, match="`config` must have the quantizers that"):
        make("BertBackbone").quantize(config=config)


TASKS = {
    "TextClassifier": lambda: TextClassifier(make("BertBackbone"), num_classes=3),
    "MaskedLM": lambda: MaskedLM(make("BertBackbone")),
    "SpanQuestionAnswering": lambda: SpanQuestionAnswering(make("RobertaBackbone")),
    "SpanBoundaryLM": lambda: SpanBoundaryLM(make("SpanBertBackbone")),
    "ReplacedTokenDetection": lambda: ReplacedTokenDetection(
        make("ElectraBackbone", embedding_dim=16), generator_size=0.5
    ),
}
each_task = pytest.mark.parametrize(
    "name", ["TextClassifier", *(pytest.param(n, marks=SLOW) for n in [*TASKS][1:])]
)


def answers(task):
    """All outputs of a task in one array."""
    outputs = keras.tree.flatten(task(IDS))
    arrays = [ops.convert_to_numpy(ops.cast(x, "float32")) for x in outputs]
    return np.concatenate([array.reshape(-1) for array in arrays])


@pytest.mark.slow
@pytest.mark.parametrize("mode", in_ci(["int8", "int4"], "int8"))
@each_task
def test_a_quantised_task_answers_and_loads_again(name, mode, tmp_path):
    task = TASKS[name]()
    expected = answers(task)
    task.quantize(mode)
    got = answers(task)
    if mode == "int8":
        np.testing.assert_allclose(got, expected, atol=0.1 * np.abs(expected).max())
    task.save_to_preset(str(tmp_path))
    with open(tmp_path / "config.json") as file:
        policy = json.load(file)["config"]["dtype"]
    assert policy["class_name"] == "DTypePolicyMap"
    task.save(str(tmp_path / "task.keras"))
    loaded = type(task).from_preset(str(tmp_path))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Skipping variable loading for optimizer")
        same = keras.saving.load_model(str(tmp_path / "task.keras"))
    for one in (loaded, same):
        assert [v.dtype for v in one.weights] == [v.dtype for v in task.weights]
        np.testing.assert_allclose(answers(one), got, atol=1e-6)
    # What was loaded is saved as it was.
    loaded.save_to_preset(str(tmp_path / "again"))
    again = type(task).from_preset(str(tmp_path / "again"))
    np.testing.assert_allclose(answers(again), got, atol=1e-6)


@pytest.mark.slow
@each_task
def test_an_int8_task_computes_in_another_dtype(name, tmp_path):
    task = TASKS[name]()
    task.quantize("int8")
    task.save_to_preset(str(tmp_path))
    half = type(task).from_preset(str(tmp_path), dtype="bfloat16")
    assert {v.dtype for v in half.weights} <= {"int8", "bfloat16", *SEEDS}
    assert "int8" in {v.dtype for v in half.weights}
    expected = answers(task)
    np.testing.assert_allclose(answers(half), expected, atol=0.1)
    with pytest.raises(ValueError, match="float16"):
        type(task).from_preset(str(tmp_path), dtype="float16")


def test_a_new_head_on_an_int8_backbone_is_a_float_one(tmp_path):
    task = TASKS["TextClassifier"]()
    task.quantize("int8")
    task.save_to_preset(str(tmp_path / "one"))
    loaded = TextClassifier.from_preset(str(tmp_path / "one"))
    loaded.save_to_preset(str(tmp_path / "two"))
    with pytest.warns(UserWarning, match="head of this TextClassifier is new"):
        new = TextClassifier.from_preset(str(tmp_path / "two"), num_classes=4)
    assert new.head.logits.quantization_mode is None
    assert new.backbone.token_embedding.quantization_mode == "int8"
    assert np.abs(answers(new)).max() > 0


def test_an_int8_backbone_keeps_its_float_dtype(tmp_path):
    backbone = make("BertBackbone", dtype="bfloat16")
    backbone.quantize("int8")
    backbone.save(str(tmp_path / "backbone.keras"))
    same = keras.saving.load_model(str(tmp_path / "backbone.keras"))
    assert same.compute_dtype == "bfloat16"
    np.testing.assert_array_equal(states(same), states(backbone))


@pytest.mark.any_backend  # it is refused before anything is computed
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantised_model_is_not_exported(mode, tmp_path):
    task = MaskedLM(make("BertBackbone"))
    task.backbone.quantize(mode)
    for model in (task.backbone, task):
        with pytest.raises(ValueError, match="export the float model.*of dtype"):
            model.export_to_transformers(tmp_path / "out")
        with pytest.raises(ValueError, match="export the float model.*of dtype"):
            model.to_keras_hub()
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@each_family
def test_lora_trains_its_own_weights_only(name, tmp_path):
    backbone = make(name)
    before = states(backbone)
    backbone.enable_lora(2)
    np.testing.assert_array_equal(states(backbone), before)  # it begins as nothing
    names = {variable.name for variable in backbone.trainable_variables}
    assert names == {"lora_kernel_a", "lora_kernel_b"}
    rng = np.random.default_rng(0)
    for variable in backbone.trainable_variables:
        variable.assign(rng.normal(0, 0.3, tuple(variable.shape)))
    trained = states(backbone)
    assert np.abs(trained - before).max() > 1e-3
    backbone.save_lora_weights(str(tmp_path / "small.lora.h5"))
    for variable in backbone.trainable_variables:
        variable.assign(np.zeros(variable.shape))
    np.testing.assert_allclose(states(backbone), before, atol=1e-6)
    backbone.load_lora_weights(str(tmp_path / "small.lora.h5"))
    np.testing.assert_array_equal(states(backbone), trained)
    backbone.save_to_preset(str(tmp_path / "merged"))
    merged = type(backbone).from_preset(str(tmp_path / "merged"))
    np.testing.assert_allclose(states(merged), trained, atol=1e-5)


@pytest.mark.slow
def test_lora_in_fit_changes_nothing_else():
    task = MaskedLM(make("BertBackbone"))
    task.backbone.enable_lora(2)
    task.compile()
    frozen = {
        v.path: ops.convert_to_numpy(v)
        for v in task.backbone.weights
        if "lora" not in v.path
    }
    x = {**IDS, "mask_positions": np.array([[1, 3]])}
    task.compile(optimizer=keras.optimizers.SGD(1.0))
    task.fit(x, np.array([[5, 6]]), verbose=0)
    lora = [v for v in task.backbone.weights if "lora_kernel_b" in v.path]
    assert any(np.abs(ops.convert_to_numpy(v)).max() > 0 for v in lora)
    for variable in task.backbone.weights:
        if variable.path in frozen:
            value = ops.convert_to_numpy(variable)
            np.testing.assert_array_equal(value, frozen[variable.path])


@pytest.mark.slow
@each_family
def test_bfloat16_on_load_and_in_shards(name, tmp_path):
    backbone = make(name)
    backbone.save_to_preset(str(tmp_path), max_shard_size=3e-5)
    assert len(list(tmp_path.glob("model_*.weights.h5"))) > 1
    same = type(backbone).from_preset(str(tmp_path))
    np.testing.assert_array_equal(states(same), states(backbone))
    half = type(backbone).from_preset(str(tmp_path), dtype="bfloat16")
    assert all(v.dtype == "bfloat16" for v in half.weights)
    np.testing.assert_allclose(states(half), states(backbone), atol=0.1)
