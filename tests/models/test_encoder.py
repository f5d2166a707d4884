import json
import os
import pathlib

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.models import BertBackbone, EncoderBackbone, RobertaBackbone
from tests import tiny_families

SMALL = {
    "vocabulary_size": 50,
    "num_layers": 3,
    "num_heads": 2,
    "hidden_dim": 12,
    "intermediate_dim": 20,
    "max_sequence_length": 16,
    "initializer_range": 0.3,
}


def make(cls=EncoderBackbone, **kwargs):
    keras.utils.set_random_seed(1)
    return cls(**{**SMALL, **kwargs})


def batch(size=2, length=10, seed=0):
    ids = np.random.default_rng(seed).integers(1, 50, (size, length)).astype("int32")
    mask = np.ones((size, length), "int32")
    mask[-1, -3:] = 0
    return {"token_ids": ids, "padding_mask": mask}


def array(x):
    return ops.convert_to_numpy(x)


VARIANTS = {
    "plain": {},
    "factorised": {"embedding_dim": 5},
    "wide heads": {"head_dim": 7},
    "pre-norm": {"norm_first": True},
    "share all": {"share": "all"},
    "share ffn in groups": {"share": "ffn", "num_groups": 3},
    "share attention": {"share": "attention"},
    "pooler": {"pooler": True, "num_segments": 2},
    "offset": {"position_offset": 2, "activation": "relu"},
}


@pytest.fixture(params=VARIANTS, ids=str)
def variant(request):
    return VARIANTS[request.param]


@pytest.mark.slow
def test_states_at_positions_are_those_of_the_whole(variant):
    backbone, inputs = make(**variant), batch()
    positions = np.array([[3, 0, 3], [6, 1, 2]], "int32")
    whole = backbone(inputs)
    there = backbone(inputs, positions=positions)
    expected = np.take_along_axis(
        array(whole["sequence_output"]), positions[:, :, None], axis=1
    )
    np.testing.assert_allclose(array(there["sequence_output"]), expected, atol=1e-5)
    if "pooled_output" in whole:
        np.testing.assert_allclose(
            array(there["pooled_output"]), array(whole["pooled_output"]), atol=1e-5
        )


@pytest.mark.slow
def test_packed_sequences_get_the_states_they_get_alone(variant):
    backbone = make(**variant)
    ids = batch(1, 12)["token_ids"]
    inputs = {
        "token_ids": ids,
        "sequence_ids": np.array([[1] * 4 + [2] * 5 + [3] + [0] * 2], "int32"),
        "padding_mask": np.array([[1] * 10 + [0] * 2], "int32"),
    }
    packed = array(backbone(inputs)["sequence_output"])
    positions = np.array([[8, 0, 9, 3]], "int32")
    there = array(backbone(inputs, positions=positions)["sequence_output"])
    np.testing.assert_allclose(there, packed[:, positions[0]], atol=1e-5)
    for start, end in ((0, 4), (4, 9), (9, 10)):
        alone = backbone({"token_ids": ids[:, start:end]})["sequence_output"]
        np.testing.assert_allclose(packed[:, start:end], array(alone), atol=1e-5)


@pytest.mark.slow
def test_padding_changes_nothing(variant):
    backbone, inputs = make(**variant), batch()
    padded = array(backbone(inputs)["sequence_output"])[1, :7]
    alone = backbone({"token_ids": inputs["token_ids"][1:, :7]})["sequence_output"]
    np.testing.assert_allclose(padded, array(alone)[0], atol=1e-5)


def test_hidden_states_and_attentions():
    backbone, inputs = make(), batch()
    outputs = backbone(inputs, return_hidden_states=True, return_attention=True)
    states, attentions = outputs["hidden_states"], outputs["attentions"]
    assert len(states) == 4 and len(attentions) == 3
    embedded = backbone.embeddings(inputs["token_ids"])
    np.testing.assert_allclose(array(states[0]), array(embedded), atol=1e-6)
    np.testing.assert_array_equal(array(states[-1]), array(outputs["sequence_output"]))
    for scores in attentions:
        assert tuple(scores.shape) == (2, 2, 10, 10)
        np.testing.assert_allclose(array(scores).sum(-1), 1, atol=1e-5)
        assert array(scores)[1, :, :, -3:].max() == 0
    options = {"return_hidden_states": True, "return_attention": True}
    positions = np.array([[2], [4]], "int32")
    there = make(pooler=True)(inputs, positions=positions, **options)
    assert tuple(there["hidden_states"][-1].shape) == (2, 1, 12)
    assert tuple(there["attentions"][-1].shape) == (2, 2, 1, 10)
    fused = backbone(inputs)["sequence_output"]
    np.testing.assert_allclose(
        array(fused), array(outputs["sequence_output"]), atol=1e-5
    )


def test_head_mask_equals_a_head_without_output_weights():
    backbone, inputs = make(), batch()
    mask = np.ones((3, 2), "float32")
    mask[1, 0] = 0
    masked = array(backbone(inputs, head_mask=mask)["sequence_output"])
    assert not np.allclose(masked, array(backbone(inputs)["sequence_output"]))
    kernel = backbone.encoder.block(1)[0].sublayer.output_dense.kernel
    pruned = array(kernel).copy()
    pruned[:6] = 0
    kernel.assign(pruned)
    np.testing.assert_allclose(
        masked, array(backbone(inputs)["sequence_output"]), atol=1e-5
    )


def test_segments_and_position_ids_default_to_zeros_and_counting():
    backbone, inputs = make(num_segments=2), batch()
    expected = array(backbone(inputs)["sequence_output"])
    given = {
        **inputs,
        "segment_ids": np.zeros((2, 10), "int32"),
        "position_ids": np.tile(np.arange(10, dtype="int32"), (2, 1)),
    }
    np.testing.assert_allclose(
        array(backbone(given)["sequence_output"]), expected, atol=1e-6
    )
    given["segment_ids"] = np.ones((2, 10), "int32")
    assert not np.allclose(array(backbone(given)["sequence_output"]), expected)


def test_the_one_segment_of_roberta_s_checkpoints_is_that_of_both_texts():
    backbone, inputs = make(num_segments=1), batch()
    expected = array(backbone(inputs)["sequence_output"])
    given = {**inputs, "segment_ids": np.ones((2, 10), "int32")}
    received = array(backbone(given)["sequence_output"])
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_a_row_of_padding_is_finite():
    inputs = batch()
    inputs["padding_mask"][1] = 0
    assert np.isfinite(array(make()(inputs)["sequence_output"])).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_precision(policy):
    inputs = batch()
    exact, rounded = (make(initializer_range=0.05, dtype=d) for d in (None, policy))
    rounded.set_weights(exact.get_weights())
    expected = array(exact(inputs)["sequence_output"])
    outputs = rounded(inputs)["sequence_output"]
    compute = keras.dtype_policies.get(policy).compute_dtype
    assert keras.backend.standardize_dtype(outputs.dtype) == compute
    outputs = array(ops.cast(outputs, "float32"))
    np.testing.assert_allclose(outputs, expected, atol=0.1)


def test_families_are_arguments():
    bert, roberta = make(BertBackbone), make(RobertaBackbone)
    assert bert.pooler is not None and roberta.pooler is None
    assert (bert.activation, roberta.activation) == ("gelu_tanh", "gelu")
    assert (bert.num_segments, roberta.num_segments) == (2, 0)
    assert tuple(roberta.embeddings.position_table.shape) == (18, 12)


# === Saving ===


@pytest.mark.slow
@pytest.mark.parametrize("cls", [BertBackbone, RobertaBackbone, EncoderBackbone])
def test_round_trips(cls, tmp_path):
    backbone, inputs = make(cls), batch()
    expected = array(backbone(inputs)["sequence_output"])

    def check(other):
        assert type(other) is cls
        assert other.get_config() == backbone.get_config()
        np.testing.assert_allclose(
            array(other(inputs)["sequence_output"]), expected, atol=1e-6
        )

    backbone.save(tmp_path / "model.keras")
    check(keras.saving.load_model(tmp_path / "model.keras"))
    backbone.save_weights(tmp_path / "model.weights.h5")
    other = cls.from_config(backbone.get_config())
    other.load_weights(tmp_path / "model.weights.h5")
    check(other)
    backbone.save_to_preset(str(tmp_path / "preset"))
    check(cls.from_preset(str(tmp_path / "preset")))
    check(EncoderBackbone.from_preset(str(tmp_path / "preset")))
    check(keras_hub.models.Backbone.from_preset(str(tmp_path / "preset")))


def test_from_name_with_overrides():
    backbone = EncoderBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False, vocabulary_size=60, dropout=0
    )
    assert isinstance(backbone, BertBackbone)
    assert (backbone.vocabulary_size, backbone.dropout) == (60, 0)
    assert backbone.hidden_dim == 128


def test_lora():
    backbone = make()
    backbone.enable_lora(2)
    names = {v.name for v in backbone.trainable_variables}
    assert {"lora_kernel_a", "lora_kernel_b"} <= names
    assert len(backbone._lora_enabled_layers) == 3
    backbone = make()
    backbone.enable_lora(2, target_layer_names=["token_embedding"])
    assert len(backbone._lora_enabled_layers) == 1


# === Errors ===


def test_unknown_preset_names_the_nearest():
    with pytest.raises(ValueError, match="bert_base_en_uncased"):
        BertBackbone.from_preset("bert_base_uncased_en", load_weights=False)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_heads": 5}, "hidden_dim=12, num_heads=5"),
        ({"share": "most"}, "share='most'"),
        ({"num_groups": 4}, "num_groups=4"),
        ({"dropout": 1.5}, "`dropout` must be .* from 0.0 to 1.0"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


def test_bad_inputs():
    backbone = make()
    with pytest.raises(ValueError, match="max_sequence_length=16"):
        backbone({"token_ids": np.ones((1, 17), "int32")})
    with pytest.raises(ValueError, match="ids from 1 to 50"):
        backbone({"token_ids": np.array([[1, 50]])})
    with pytest.raises(ValueError, match="ids from -1 to 2"):
        backbone({"token_ids": np.array([[-1, 2]])})
    with pytest.raises(ValueError, match="segments"):
        backbone({"token_ids": np.array([[1]]), "segments": np.array([[1]])})
    with pytest.raises(ValueError, match="`token_ids` must be integers.*bfloat16"):
        make(dtype="mixed_bfloat16")({"token_ids": np.array([[1.0]])})


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "family", [*tiny_families.ENCODERS, *tiny_families.CAUSAL, "Bart"]
)
def test_positions_that_are_not_there(family):
    """Some backends would compute NaN, others take the last one."""
    backbone = tiny_families.backbone_of(family, num_layers=1)
    for side in ("encoder_", "decoder_") if family == "Bart" else ("",):
        for wrong in (12, -1):
            places = np.full_like(tiny_families.IDS, wrong)
            inputs = {**tiny_families.inputs_of(family), f"{side}position_ids": places}
            message = f"`{side}position_ids` must be in .0, max_sequence_length=12"
            with pytest.raises(ValueError, match=message):
                backbone(inputs)


@pytest.mark.parametrize("missing", ["config.json", "model.weights.h5"])
def test_missing_file_of_a_preset(missing, tmp_path):
    make().save_to_preset(str(tmp_path / "preset"))
    os.remove(tmp_path / "preset" / missing)
    with pytest.raises(ValueError, match=f"Missing: {missing}"):
        EncoderBackbone.from_preset(str(tmp_path / "preset"))


@pytest.mark.parametrize("file", ["config.json", "model.weights.h5"])
def test_truncated_file_of_a_preset(file, tmp_path):
    make().save_to_preset(str(tmp_path / "preset"))
    path = tmp_path / "preset" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="truncated"):
        EncoderBackbone.from_preset(str(tmp_path / "preset"))


def test_an_export_does_not_replace_the_config_of_a_preset(tmp_path):
    make().save_to_preset(str(tmp_path))
    before = (tmp_path / "config.json").read_text()
    with pytest.raises(ValueError, match="`path` must not be a preset's folder"):
        make().export_to_transformers(str(tmp_path))
    assert (tmp_path / "config.json").read_text() == before


def test_a_failed_save_leaves_the_old_preset(tmp_path, monkeypatch):
    path = tmp_path / "preset"
    make().save_to_preset(str(path))
    before = {p.name: p.read_bytes() for p in path.iterdir()}

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    other = make(num_layers=1)
    monkeypatch.setattr(other, "save_weights", fail)
    with pytest.raises(OSError, match="No space"):
        other.save_to_preset(str(path))
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    assert [p.name for p in pathlib.Path(tmp_path).iterdir()] == ["preset"]
    other = make(num_layers=1)
    (path / "model_best.weights.h5").write_text("a user's own")
    other.save_to_preset(str(path))
    assert (path / "model_best.weights.h5").is_file()
    assert json.loads((path / "config.json").read_text())["config"]["num_layers"] == 1


@pytest.mark.any_backend
@pytest.mark.parametrize("family", tiny_families.FAMILIES)
def test_no_dropout_is_none_anywhere(family):
    backbone = tiny_families.backbone_of(family, dropout=0.0)
    dropouts = [x for x in layers_of(backbone) if isinstance(x, Dropout)]
    assert dropouts and {layer.rate for layer in dropouts} == {0.0}
    again = type(backbone).from_config(backbone.get_config())
    assert again.get_config() == backbone.get_config()
