"""ELECTRA and distillation on two devices, killed and resumed, and compiled."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests import electra_worker, tiny_distiller, tiny_electra

ROOT = pathlib.Path(__file__).parents[2]
BACKEND = keras.backend.backend()
pytestmark = pytest.mark.slow


def run_worker(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tests.electra_worker", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": BACKEND},
        timeout=900,
        capture_output=True,
    )


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
def test_two_devices_equal_one():
    done = run_worker("mirrored")
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    results = json.loads(done.stdout.splitlines()[-1])
    for name in ("electra", "distilled"):
        one, two = results[name]
        assert len(one["losses"]) == 14 and one["losses"][-1] < one["losses"][0]
        np.testing.assert_allclose(two["losses"], one["losses"], rtol=1e-5)
        np.testing.assert_allclose(two["weights"], one["weights"], atol=1e-4)
    first, second = results["samples"]
    assert first != second


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_killed_run_samples_on_as_it_would_have(tmp_path):
    killed = run_worker("killed", tmp_path / "backup", 1, 4)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-3000:]
    whole = electra_worker.resumable(tmp_path / "other")
    resumed = electra_worker.resumable(tmp_path / "backup")
    # The last backup is of step 12, which is batch 4 of epoch 1.
    for step in [(1, 5), (1, 6), *[(2, batch) for batch in range(7)]]:
        assert resumed.losses[step] == pytest.approx(whole.losses[step], abs=1e-4)
    for name, value in whole.epochs[2].items():
        assert resumed.epochs[2][name] == pytest.approx(value, abs=1e-4)


@pytest.mark.skipif(BACKEND == "torch", reason="XLA")
@pytest.mark.parametrize(
    "variant", ["electra", "electra_15", "replace_mlm", "all_tokens_mlm"]
)
def test_electra_compiles(variant):
    losses = []
    for jit_compile in (False, True):
        model = tiny_electra.make_model(variant=variant)
        tiny_electra.compiled(model, jit_compile=jit_compile)
        history = model.fit(tiny_electra.rows(), batch_size=12, verbose=0).history
        losses.append(history["loss"][0])
    # The same noise: a sample differs only where two scores all but tie.
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.skipif(BACKEND == "torch", reason="XLA")
def test_distillation_compiles():
    x, y, slots = tiny_distiller.rows()
    losses = []
    for jit_compile in (False, True):
        model = tiny_distiller.make_model()
        model.compile(learning_rate=1e-2, jit_compile=jit_compile)
        history = model.fit(x, y, sample_weight=slots, batch_size=12, verbose=0).history
        losses.append(history["loss"][0])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
