"""A policy for each layer, by paths that begin with it."""

import keras
import numpy as np
import pytest

from tests import tiny_families as tiny

NAMES = [
    name if name == "Roberta" else pytest.param(name, marks=pytest.mark.slow("release"))
    for name in tiny.FAMILIES
]


def policies(backbone):
    return {
        layer.path.removeprefix(f"{backbone.name}/"): layer.compute_dtype
        for layer in backbone._flatten_layers(include_self=False)
        if layer.path
    }


def outputs(backbone, family):
    found = backbone(tiny.inputs_of(family))
    states = found[
        "decoder_sequence_output" if tiny.is_pair(family) else "sequence_output"
    ]
    return keras.ops.convert_to_numpy(keras.ops.cast(states, "float32"))


@pytest.mark.parametrize("name", NAMES)
def test_a_map_of_one_model_is_for_all_of_its_kind(name, tmp_path):
    plain = tiny.backbone_of(name)
    chosen = {p for p in policies(plain) if p.endswith(("/norm", "qkv", "key_value"))}
    assert chosen
    full = {
        layer.path: "bfloat16"
        for layer in plain._flatten_layers(include_self=False)
        if layer.path and layer.path.removeprefix(f"{plain.name}/") in chosen
    }
    wanted = {p: "bfloat16" if p in chosen else "float32" for p in policies(plain)}
    for keys in (full, dict.fromkeys(chosen, "bfloat16")):
        given = keras.dtype_policies.DTypePolicyMap("float32", keys)
        mixed = tiny.backbone_of(name, dtype=given)
        assert policies(mixed) == wanted
    np.testing.assert_allclose(
        outputs(mixed, name)[0], outputs(plain, name)[0], atol=0.3
    )
    mixed.save_to_preset(str(tmp_path / "preset"))
    mixed.save_weights(tmp_path / "model.weights.h5")
    config = type(mixed).from_config({**mixed.get_config(), "name": "another"})
    config.load_weights(tmp_path / "model.weights.h5")
    for again in (config, type(mixed).from_preset(str(tmp_path / "preset"))):
        assert policies(again) == wanted
        np.testing.assert_allclose(
            outputs(again, name), outputs(mixed, name), atol=1e-5
        )


@pytest.mark.any_backend
def test_patterns_and_what_is_not_there():
    pattern = {".*/feed_forward/.*": "bfloat16"}
    given = keras.dtype_policies.DTypePolicyMap("float32", pattern)
    found = policies(tiny.backbone_of("Bert", dtype=given))
    assert {p for p, dtype in found.items() if dtype == "bfloat16"} == {
        f"encoder/ffn_{layer}/feed_forward/{part}"
        for layer in (0, 1)
        for part in ("intermediate", "output")
    }
    given = keras.dtype_policies.DTypePolicyMap("float32", {"layer_0": "bfloat16"})
    with pytest.raises(ValueError, match=r"\['layer_0'\]. There are: embeddings, "):
        tiny.backbone_of("Bert", dtype=given)
