"""What trainers and pruning make of a checkpoint of `transformers`, and LoRA."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam.presets import CheckpointError
from tests.conformance.test_hf_output_tables import TABLES, Checkpoint
from tests.from_transformers import max_difference
from tests.marks import in_ci

torch = pytest.importorskip("torch")
# XLNet's attention has no projections that heads could be cut from, in `transformers`.
PRUNED = ("bert", "roberta", "electra", "distilbert")


def save(folder, content):
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save(content, folder / "pytorch_model.bin")
    return str(folder)


def tensors_of(made):
    return {name: torch.tensor(each) for name, each in made.tensors.items()}


def same(first, second):
    for one, other in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(*map(ops.convert_to_numpy, (one, other)))


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", in_ci(TABLES, "electra", "t5"))
def test_wrapped_models(family, tmp_path):
    made = Checkpoint(family, tmp_path)
    expected = made.task.from_preset(made.write())
    state = tensors_of(made)
    for wrapper, outer in (("module._orig_mod.", None), ("model.", "state_dict")):
        wrapped = {f"{wrapper}{name}": each for name, each in state.items()}
        wrapped = (
            {outer: wrapped, "epoch": 3, "optimizer_states": []} if outer else wrapped
        )
        same(made.task.from_preset(save(tmp_path, wrapped)), expected)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", in_ci(PRUNED, "bert"))
def test_heads_that_a_config_says_are_pruned(family, tmp_path):
    made = Checkpoint(family, tmp_path)
    rows = {row.ours: row.theirs for row in TABLES[family].weights}
    kept = slice(made.config.hidden_size // 2, None)  # of two heads the second
    at = "encoder.attention_layers.{layer}.sublayer"
    state = dict(made.tensors)
    named = {
        name: f"{made.prefix}{name}".format(layer=0)
        for row in rows
        for name in rows[row]
    }
    (output,) = (named[name] for name in rows[f"{at}.output_dense.kernel"])
    made.tensors[output] = made.tensors[output].copy()
    made.tensors[output][:, : kept.start] = 0
    expected = made.theirs(made.write())
    made.tensors = state
    for part in ("kernel", "bias"):
        for name in rows[f"{at}.qkv.{part}"]:
            state[named[name]] = np.ascontiguousarray(state[named[name]][kept])
    state[output] = np.ascontiguousarray(state[output][:, kept])
    folder = made.write(config={"pruned_heads": {"0": [0]}})
    model = made.task.from_preset(folder)
    assert max_difference(made.ours(model), expected) < 1e-4
    for odd in ({"9": [0]}, {"0": [7]}, [0]):
        folder = made.write(config={"pruned_heads": odd})
        with pytest.raises(CheckpointError, match="'pruned_heads' to be lists"):
            made.task.from_preset(folder)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", in_ci(TABLES, "electra", "t5"))
def test_lora_is_merged_where_a_model_is_written(family, tmp_path):
    made = Checkpoint(family, tmp_path)
    model = made.task.from_preset(made.write())
    before = ops.convert_to_numpy(made.ours(model))
    model.backbone.enable_lora(2)
    rng = np.random.default_rng(0)
    for weight in model.backbone.weights:
        if "lora" in weight.path:
            weight.assign(rng.normal(size=weight.shape) / 3)
    expected = torch.tensor(ops.convert_to_numpy(made.ours(model)))
    assert np.abs(expected.numpy() - before).max() > 0.01
    model.export_to_transformers(tmp_path / "out")
    found = made.theirs(tmp_path / "out")
    assert max_difference(expected.numpy(), found) < 1e-4
    again = made.task.from_preset(str(tmp_path / "out"))
    assert not any("lora" in weight.path for weight in again.weights)
