import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.optimizers import Lamb
from tests import tiny_masked_lm as tiny
from tests.checkout import ROOT
from tests.resume_worker import Recorder

BACKEND = keras.backend.backend()
tensorflow_only = pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")


def test_outside_of_a_strategy_everything_is_the_identity():
    assert distribution.replica_id() == 0
    assert distribution.is_chief()
    assert distribution.own_variables(keras.Variable([1.0])) == []
    assert float(distribution.global_sum(ops.array(3.0))) == 3.0
    assert float(distribution.global_mean(ops.array(3.0), ops.array(4.0))) == 0.75
    assert float(distribution.global_mean(ops.array(0.0), ops.array(0.0))) == 0.0


@tensorflow_only
def test_steps_are_not_compiled_across_replicas():
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    model = types.SimpleNamespace(distribute_strategy=strategy)
    distribution.check_compilation(model, "auto")
    with pytest.raises(ValueError, match="`jit_compile` must be left out.* 2 devices"):
        distribution.check_compilation(model, True)
    strategy.num_replicas_in_sync = 1
    distribution.check_compilation(model, True)


@pytest.fixture(scope="module")
def mirrored():
    """What `tests/mirrored_worker.py` found on two logical devices."""
    done = run_module("tests.mirrored_worker")
    return json.loads(done.stdout.splitlines()[-1])


def run_module(name, *arguments, timeout=400, **environment):
    environment = {**os.environ, "KERAS_BACKEND": BACKEND, **environment}
    environment.pop("TF_CONFIG", None)
    command = [sys.executable, "-m", name, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, timeout=timeout, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done


def check_equal(one, two, tolerance):
    assert len(one["losses"]) == one["steps"] == two["steps"] == 21
    assert one["losses"][-1] < 0.95 * one["losses"][0]
    for name in ("losses", "weights"):
        np.testing.assert_allclose(two[name], one[name], atol=tolerance)
    for name in ("history", "evaluation"):
        assert two[name] == pytest.approx(one[name], rel=tolerance, abs=tolerance)
    # The loss is the mean of the batches', the perplexity that of all slots.
    mean = np.log(one["history"]["perplexity"])
    assert one["history"]["loss"] == pytest.approx(mean, abs=0.02)


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_mirrored_training_equals_one_device(mirrored):
    check_equal(*mirrored["float32"], tolerance=1e-5)


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_mirrored_training_equals_one_device_in_half_precision():
    done = run_module("tests.mirrored_worker", "mixed_float16")
    one, two = json.loads(done.stdout.splitlines()[-1])
    for name in ("history", "evaluation"):  # a close call may go either way
        right = [run[name].pop("accuracy") for run in (one, two)]
        assert right[0] == pytest.approx(right[1], abs=0.02)
    check_equal(one, two, tolerance=2e-3)


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_sum_and_mean_over_replicas(mirrored):
    # Numbers, sums over the replicas, and own values.
    assert mirrored["helpers"]["sum"] == [[0, 6, 1], [1, 6, 5]]
    # (1 + 5) / (1 + 3), half of it on each replica; each gradient is 1 / (1 + 3).
    assert mirrored["helpers"]["mean"] == [[0.75, 0.25], [0.75, 0.25]]
    # One row of two vectors, and two rows of one: zeros fill them up.
    rows = [[[1], [1]], [[0], [0]], [[2], [0]], [[2], [0]]]
    there = [True, False, True, True]
    # Of the sum of squares on both replicas, the gradient is 4 times a value.
    assert mirrored["helpers"]["rows"] == [
        [rows, there, 0, [[[4], [4]]]],
        [rows, there, 2, [[[8]], [[8]]]],
    ]


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_replicas_have_their_own_dropout_masks(mirrored):
    masks = [mask for call in mirrored["dropout_masks"] for mask in call]
    assert len({tuple(mask) for mask in masks}) == 4


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_token_embedding_gradients_are_dense(mirrored):
    assert mirrored["embedding_gradients"] == [False, True]  # Keras's, ours


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_overflow_on_any_replica_skips_the_update(mirrored):
    after_overflow, after_next = mirrored["overflow"]
    assert after_overflow == [1.0, 2.0]
    assert np.all(np.array(after_next) < [1.0, 2.0])


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_batches_accumulated_over_replicas_are_as_one_on_one_device(mirrored):
    check_accumulated(mirrored["accumulated"])


def check_accumulated(runs):
    for name, ((loss, weights, updates), accumulated) in runs.items():
        assert accumulated[2] == updates == 1
        np.testing.assert_allclose(accumulated[0], loss, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(accumulated[1], weights, atol=1e-6, err_msg=name)


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_batches_of_any_objective_are_accumulated_over_replicas():
    done = run_module("tests.mirrored_worker", "accumulated", timeout=1800)
    check_accumulated(json.loads(done.stdout.splitlines()[-1]))


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_batches_keep_their_weights_under_a_loss_scale(mirrored):
    # (30 * 1 + 10 * 4) / 40 on each of two replicas.
    assert mirrored["weighed"] == pytest.approx(-2 * 1.75)


@tensorflow_only
@pytest.mark.slow
@pytest.mark.any_backend
def test_a_strategy_with_one_replica_accumulates():
    done = run_module("tests.mirrored_worker", "alone")
    one, other = json.loads(done.stdout.splitlines()[-1])
    assert one == pytest.approx(other, rel=1e-5)


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_weight_decay_over_replicas_acts_on_kernels_only(mirrored):
    assert mirrored["decayed"] == ["bias_layer/kernel"]


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_lamb_over_replicas_has_norms_of_whole_variables(mirrored):
    variable = keras.Variable([3.0, 4.0], name="kernel")
    optimizer = Lamb(0.1)
    for _ in range(2):
        optimizer.apply([ops.ones(2)], [variable])
    for values in mirrored["lamb"]:
        assert values == pytest.approx(variable.numpy().tolist(), rel=1e-5)
    assert len(mirrored["lamb"]) == 2


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_a_packed_row_for_two_replicas_trains_as_on_one_device(mirrored):
    (rows, *expected), (_, *received) = mirrored["a_packed_row"]
    assert rows == 1
    for one, two in zip(expected, received, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-5)


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_texts_of_all_replicas_are_compared(mirrored):
    for name in ("compared_texts", "tokens_of_texts"):
        expected, *others = mirrored[name]
        for received in others:
            for one, two in zip(expected, received, strict=True):
                np.testing.assert_allclose(two, one, atol=1e-5)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]


def run_workers(folder, *arguments):
    """Runs two workers, whose output goes to `0.npz` and `1.npz` in `folder`.

    Returns:
        Their exit codes and the ends of their logs.
    """
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    workers = []
    for index in range(2):
        config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        output = folder / f"{index}.npz"
        command = [sys.executable, "-m", "tests.distribution_worker", str(output)]
        with open(folder / f"{index}.log", "wb") as log:
            workers.append(
                subprocess.Popen(
                    [*command, *map(str, arguments)],
                    cwd=ROOT,
                    env=environment | {"CUDA_VISIBLE_DEVICES": "-1"},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        codes = [worker.wait(timeout=400) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return codes, [(folder / f"{i}.log").read_text()[-2000:] for i in range(2)]


@tensorflow_only
@pytest.mark.slow
@pytest.mark.any_backend
def test_two_worker_processes_equal_a_single_one(tmp_path):
    codes, logs = run_workers(tmp_path)
    assert codes == [0, 0], logs
    run_module("tests.distribution_worker", tmp_path / "single.npz")
    first, second, single = (
        np.load(tmp_path / f"{name}.npz") for name in ("0", "1", "single")
    )
    assert "val_loss" in single and "arr_0" in single
    for name in single:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        np.testing.assert_allclose(
            first[name], single[name], atol=1e-5, rtol=1e-5, err_msg=name
        )


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_two_killed_worker_processes_go_on_inside_and_outside_of_the_scope(tmp_path):
    backup = tmp_path / "backup"
    # Of 14 steps, with a backup every two. A resumed process counts those done before.
    for where, last in [("outside", 5), ("inside", 9), ("outside", 0)]:
        codes, logs = run_workers(tmp_path, backup, where, last)
        if not last:
            assert codes == [0, 0], logs
        else:
            # The one that is killed later may fail before, at the missing other.
            assert -signal.SIGKILL in codes and 0 not in codes, logs
            assert os.listdir(backup) == ["backup.npz"]
    assert not backup.exists()
    model, single = tiny.make_model(), Recorder()
    model.fit(tiny.stream(model), epochs=2, callbacks=[single], verbose=0)
    expected = [single.losses[1, batch] for batch in range(7)]
    for index in range(2):
        losses = np.load(tmp_path / f"{index}.npz")["losses"]
        np.testing.assert_allclose(losses, expected, atol=1e-5)


@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution")
def test_data_parallel_on_jax_equals_one_device():
    done = run_module(
        "tests.data_parallel_worker",
        XLA_FLAGS=os.environ.get("XLA_FLAGS", "")
        + " --xla_force_host_platform_device_count=2",
        JAX_PLATFORMS="cpu",
    )
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["devices"] == 2
    one, two = results["one"], results["two"]
    assert len(one["losses"]) == 21
    for name in ("losses", "weights"):
        np.testing.assert_allclose(two[name], one[name], atol=1e-5)
    assert two["history"] == pytest.approx(one["history"], abs=1e-5)
