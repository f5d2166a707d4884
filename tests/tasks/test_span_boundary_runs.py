"""Replicas, compilation and resumption of the span boundary task."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bertfam import callbacks
from tests import tiny_span_boundary as tiny
from tests.resume_worker import At, Recorder

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.slow


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
def test_two_replicas_equal_one_device():
    done = subprocess.run(
        [sys.executable, "-m", "tests.tiny_span_boundary"],
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, "KERAS_BACKEND": BACKEND},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = json.loads(done.stdout.splitlines()[-1])
    assert len(one["losses"]) > 15
    for name in ("losses", "weights"):
        np.testing.assert_allclose(two[name], one[name], atol=1e-5)
    for name in ("history", "evaluation"):
        assert two[name] == pytest.approx(one[name], rel=1e-5, abs=1e-5)


@pytest.mark.skipif(BACKEND == "torch", reason="torch.compile needs a C++ compiler")
def test_compiled_or_not_gives_the_same_losses():
    losses = []
    for options in ({"jit_compile": True}, {"jit_compile": False}):
        model = tiny.make_model(**options)
        losses.append(model.fit(tiny.stream(model).take(3), verbose=0).history["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


class Interrupt(Exception):
    pass


def interrupt():
    raise Interrupt


def test_an_interrupted_run_continues_to_the_same_losses(tmp_path):
    def run(directory, *extra):
        model, record = tiny.make_model(dropout=0.3), Recorder()
        backup = callbacks.BackupAndResume(directory, save_freq=3)
        following = [backup, record, *extra]
        model.fit(tiny.stream(model), epochs=3, callbacks=following, verbose=0)
        return record.losses

    whole = run(tmp_path / "whole")
    with pytest.raises(Interrupt):
        run(tmp_path / "part", At(1, 4, interrupt))
    resumed = run(tmp_path / "part")
    after = {step: loss for step, loss in whole.items() if step > (1, 4)}
    assert len(after) > 5
    assert {step: resumed[step] for step in after} == pytest.approx(after, abs=1e-6)
