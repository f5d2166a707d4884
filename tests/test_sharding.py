"""Weights that are split over devices: the losses are those of one device."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bertfam import distribution
from tests.checkout import ROOT

BACKEND = keras.backend.backend()
jax_only = pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution")


def run_worker(*names):
    flags = f"{os.environ.get('XLA_FLAGS', '')} "
    done = subprocess.run(
        [sys.executable, "-m", "tests.sharding_worker", *names],
        cwd=ROOT,
        env=os.environ
        | {
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": flags + "--xla_force_host_platform_device_count=4",
        },
        timeout=400,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def check_equal(one, split):
    assert one["split"] == []
    assert one["losses"][-1] < one["losses"][0]
    np.testing.assert_allclose(split["losses"], one["losses"], atol=1e-5)


@jax_only
def test_bert_on_a_mesh_and_a_mesh_that_does_not_fit():
    results = run_worker("model", "bert")
    one, split = results["bert"]
    check_equal(one, split)
    weights = [path for path in split["split"] if not path.startswith("adam")]
    # Attention and feed-forward of two layers, and the table of 33 tokens by width.
    assert len(weights) == 2 * (3 + 3) + 1
    assert any("token_embedding" in path for path in weights)
    assert not any("output_bias" in path for path in weights)
    assert len(split["split"]) == 3 * len(weights)  # with Adam's moments
    assert results["refusal"].startswith(
        "`device_mesh` must have a 'model' axis that divides 26, for "
    )
    assert results["refusal"].endswith("Received: 4 devices on that axis.")


@pytest.mark.slow("release")
@pytest.mark.any_backend
@pytest.mark.skipif(BACKEND != "tensorflow", reason="a slow test, run once")
def test_other_families_on_a_mesh():
    pytest.importorskip("jax")
    results = run_worker("model", "albert", "t5", "xlnet")
    for name in ("albert", "t5", "xlnet"):
        check_equal(*results[name])
    # Both products' kernels, the first's biases, the table and the logits' bias.
    split = [path for path in results["albert"][1]["split"] if "adam" not in path]
    assert len(split) == 3 + 3 + 2
    split = [path.rpartition("/")[2] for path in results["xlnet"][1]["split"]]
    assert {"states_0", "states_1", "lengths"} <= {*split}


@jax_only
def test_devices_that_share_weights_and_batches():
    one, two, four = run_worker("fully", "bert")["bert"]
    for split, count in ((two, 2), (four, 4)):
        check_equal(one, split)
        assert split["reloaded"] == 0
        assert one["bytes"] / count < split["bytes"] < 1.15 * one["bytes"] / count
        # With Adam's moments; norms and biases of fewer values are whole.
        assert any("token_embedding" in path for path in split["split"])
        assert sum("adam" in path for path in split["split"]) > 20


@pytest.mark.slow("release")
@pytest.mark.any_backend
@pytest.mark.skipif(BACKEND != "tensorflow", reason="a slow test, run once")
def test_other_families_on_devices_that_share_weights():
    pytest.importorskip("jax")
    for one, *others in run_worker("fully", "albert", "gpt2", "t5", "xlnet").values():
        for split in others:
            check_equal(one, split)


@jax_only
@pytest.mark.parametrize("shape, axes", [((1,), ["model"]), ((1, 1), ["a", "b"])])
def test_meshes_of_other_axes(shape, axes):
    mesh = keras.distribution.DeviceMesh(shape, axes, ["cpu:0"])
    with pytest.raises(ValueError, match="`device_mesh` must be a .* of two axes"):
        distribution.ModelParallel(mesh)
