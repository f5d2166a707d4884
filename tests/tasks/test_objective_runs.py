"""Each objective on two devices, killed and resumed, and compiled."""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests import (
    tiny_bidirectional_lm,
    tiny_distiller,
    tiny_electra,
    tiny_permutation_lm,
    tiny_recurrent_lm,
    tiny_sentence_pair,
    tiny_span_boundary,
)
from tests.checkout import ROOT
from tests.marks import in_ci
from tests.objective_worker import KILLED_AT, OBJECTIVES, resumable
from tests.resume_worker import At

BACKEND = keras.backend.backend()
pytestmark = [pytest.mark.slow, pytest.mark.any_backend]


def run_worker(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tests.objective_worker", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": BACKEND},
        timeout=1200,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def on_two_replicas(request):
    """What the objectives asked for gave, from one process, as starting one is slow."""
    test = test_two_replicas_equal_one_device
    items = [i for i in request.session.items if getattr(i, "function", None) is test]
    done = run_worker("mirrored", *(i.callspec.params["objective"] for i in items))
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


# Where a sample, or a difference of large terms, magnifies rounding.
LOOSE = {
    "replaced_tokens": 1e-4,
    "distillation": 1e-4,
    "knowledge_augmented": 5e-4,
    "retrieval_augmented": 1e-4,
}


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
@pytest.mark.parametrize(
    "objective",
    # Memory of a replica's own rows, and passages of all replicas.
    in_ci(OBJECTIVES, "recurrent_lm", "dual_encoder"),
)
def test_two_replicas_equal_one_device(objective, on_two_replicas):
    results = on_two_replicas[objective]
    assert "failure" not in results, results["failure"]
    one, two = results["runs"]
    quarter = len(one["losses"]) // 4
    assert quarter >= 3
    assert np.mean(one["losses"][-quarter:]) < np.mean(one["losses"][:quarter])
    tolerance = LOOSE.get(objective, 1e-5)
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(two["weights"], one["weights"], atol=tolerance)
    expected = pytest.approx(one["evaluation"], rel=tolerance, abs=1e-5)
    assert two["evaluation"] == expected
    if "samples" in results:
        first, second = results["samples"]
        assert first != second
    if "interrupted" in results:  # each with the memory of its own rows
        whole, resumed = results["interrupted"]
        assert len(whole) > 7
        np.testing.assert_allclose(resumed, whole, atol=1e-5)


# The one with the most in its backup is killed in earnest. Of the others the backup is
# copied at that moment, which leaves the same files and takes a run less.
KILLED = "permutation_lm"


# REALM is killed while an index is made, in a test of its own.
ELSEWHERE = {"knowledge_augmented"}


@pytest.mark.parametrize(
    "objective",
    in_ci(
        (o for o in OBJECTIVES if o not in ELSEWHERE), "dual_encoder", "recurrent_lm"
    ),
)
def test_a_killed_run_continues_to_the_same_losses(objective, tmp_path):
    extra = []
    if objective == KILLED:
        killed = run_worker("killed", objective, tmp_path / "backup")
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-3000:]
    else:
        folders = tmp_path / "other", tmp_path / "backup"
        extra = [At(*KILLED_AT, functools.partial(shutil.copytree, *folders))]
    whole = resumable(objective, tmp_path / "other", *extra)
    resumed = resumable(objective, tmp_path / "backup")
    after = {step: loss for step, loss in whole.losses.items() if step > KILLED_AT}
    assert len(after) > 7
    assert {k: resumed.losses[k] for k in after} == pytest.approx(after, abs=1e-5)
    assert 0 not in resumed.epochs
    assert resumed.epochs[2] == pytest.approx(whole.epochs[2], abs=1e-4)


COMPILED = {
    "bidirectional_lm": (tiny_bidirectional_lm, {}),
    "distillation": (tiny_distiller, {}),
    "permutation_lm": (tiny_permutation_lm, {"both_directions": False}),
    "permutation_lm, both directions": (tiny_permutation_lm, {}),
    "recurrent_lm": (tiny_recurrent_lm, {}),
    "sentence_pair": (tiny_sentence_pair, {}),
    "span_boundary": (tiny_span_boundary, {}),
    **{
        variant: (tiny_electra, {"variant": variant})
        for variant in (
            "electra",
            "electra_15",
            "replace_mlm",
            "all_tokens_mlm",
            "adversarial",
        )
    },
}


@pytest.mark.skipif(BACKEND == "torch", reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("objective", in_ci(COMPILED, "permutation_lm"))
def test_compiled_or_not_gives_the_same_losses(objective):
    tiny, options = COMPILED[objective]
    losses = []
    models = [tiny.make_model(**options) for _ in range(2)]
    data = tiny.stream(models[0]).take(3).cache()
    for model, jit_compile in zip(models, (True, False), strict=True):
        model.compile(optimizer=model.optimizer, jit_compile=jit_compile)
        losses.append(model.fit(data, verbose=0).history["loss"])
    # The same noise: a sample differs only where two scores all but tie, and what
    # a teacher says is a difference of large terms.
    loose = tiny in (tiny_electra, tiny_distiller)
    tolerance = {"rel": 1e-3} if loose else {"rel": 0, "abs": 1e-4}
    assert losses[0] == pytest.approx(losses[1], **tolerance)
