"""XLNet on two replicas, compiled, and interrupted."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bertfam import callbacks
from tests import tiny_permutation_lm as tiny
from tests.resume_worker import At, Recorder

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.slow


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
def test_two_replicas_equal_one_device():
    """Each with the memory of its own rows, one forwards and one backwards."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tiny_permutation_lm"],
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, "KERAS_BACKEND": BACKEND},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = json.loads(done.stdout.splitlines()[-1])
    assert len(one["losses"]) > 15
    for name in ("losses", "weights", "evaluation"):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(BACKEND == "torch", reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("both_directions", [False, True])
def test_compiled_or_not_gives_the_same_losses(both_directions):
    losses = []
    for jit_compile in (True, False):
        model = tiny.make_model(
            both_directions=both_directions, jit_compile=jit_compile
        )
        losses.append(model.fit(tiny.stream(model).take(4), verbose=0).history["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


class Interrupt(Exception):
    pass


def interrupt():
    raise Interrupt


def test_an_interrupted_run_remembers(tmp_path):
    """Memory, dropout and data go on in mid-epoch as if nothing had happened."""

    def run(directory, *extra):
        model, record = tiny.make_model(dropout=0.3), Recorder()
        backup = callbacks.BackupAndResume(directory, save_freq=3)
        following = [backup, record, *extra]
        model.fit(tiny.stream(model), epochs=2, callbacks=following, verbose=0)
        return record.losses

    whole = run(tmp_path / "whole")
    with pytest.raises(Interrupt):
        run(tmp_path / "part", At(0, 4, interrupt))
    resumed = run(tmp_path / "part")
    after = {step: loss for step, loss in whole.items() if step > (0, 4)}
    assert len(after) > 5
    assert {step: resumed[step] for step in after} == pytest.approx(after, abs=1e-5)
