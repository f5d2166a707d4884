"""The command's runs that several processes share, and what it refuses."""

import json
import os
import re
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bertfam import tasks
from keras_bertfam.cli import clusters, pretraining
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.corpus import python_documentation
from tests.checkout import ROOT
from tests.test_distribution import free_ports

BACKEND = keras.backend.backend()
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(python_documentation()[:8]), "utf-8")
    return str(path)


def make_run(text_file, output, **settings):
    settings = {"size": "tiny", "objective": "mlm", "epochs": 1, **settings}
    return PretrainingRun(
        files=(text_file,),
        output=str(output),
        vocabulary_size=400,
        sequence_length=32,
        batch_size=8,
        steps_per_epoch=6,
        backbone_arguments={**SIZES, "dropout": 0.0},
        **settings,
    )


def run_processes(
    runs, folder, backend, count, steps=0, devices=1, sent=signal.SIGKILL
):
    """Makes runs in as many processes; returns exit codes and the ends of logs."""
    settings = []
    for number, run in enumerate(runs):
        settings.append(str(folder / f"settings-{number}.yaml"))
        run.write(settings[-1])
    addresses = [f"localhost:{port}" for port in free_ports(count)]
    processes = []
    for index in range(count):
        environment = os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
        if backend == "jax":
            flags = os.environ.get("XLA_FLAGS", "")
            flags += f" --xla_force_host_platform_device_count={devices}"
            environment["XLA_FLAGS"] = flags
            if count > 1:
                environment |= {
                    "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join(addresses),
                    "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
                    "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
                }
        else:
            task = {"type": "worker", "index": index}
            config = {"cluster": {"worker": addresses}, "task": task}
            environment["TF_CONFIG"] = json.dumps(config)
        command = [sys.executable, "-m", "tests.cluster_worker"]
        # The last one is killed.
        last = steps if index == count - 1 else 0
        with open(folder / f"{index}.log", "wb") as log:
            processes.append(
                subprocess.Popen(
                    [*command, sent.name, str(last), *settings],
                    cwd=ROOT,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        processes[-1].wait(timeout=400)
        if steps and sent == signal.SIGKILL:  # what started them ends the others
            for process in processes:
                process.kill()
        codes = [process.wait(timeout=400) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return codes, [(folder / f"{i}.log").read_text()[-3000:] for i in range(count)]


def weights_of(preset):
    return tasks.MaskedLM.from_preset(str(preset)).get_weights()


def check_equal(one, other):
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow("release")
@pytest.mark.any_backend
@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
def test_two_workers_of_tensorflow_equal_one_process(text_file, tmp_path):
    shared = make_run(
        text_file,
        tmp_path / "shared",
        distribution="multi_worker",
        validation=(text_file,),
        checkpoints=1,
    )
    codes, logs = run_processes([shared], tmp_path, "tensorflow", 2)
    assert codes == [0, 0], logs
    # The first one tells, and writes.
    assert "Wrote" in logs[0] and "Wrote" not in logs[1]
    assert sorted(os.listdir(tmp_path)) == [
        "0.log",
        "1.log",
        "settings-0.yaml",
        "shared",
        "shared-checkpoints",
        "text.txt",
    ]
    run = make_run(text_file, tmp_path / "single")
    pretraining.pretrain(run, lambda line: None)
    check_equal(tmp_path / "single", tmp_path / "shared")


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.skipif(BACKEND != "tensorflow", reason="a slow test, run once")
def test_processes_of_jax_are_killed_and_one_goes_on(text_file, tmp_path):
    pytest.importorskip("jax")
    run = make_run(
        text_file,
        tmp_path / "shared",
        distribution="jax",
        model_parallel=2,
        validation=(text_file,),
    )
    codes, logs = run_processes([run], tmp_path, "jax", 2, steps=5)
    assert codes == [-signal.SIGKILL] * 2, logs
    assert sorted(os.listdir(tmp_path / "shared-backup")) == [
        ".unfinished",
        "backup.npz",
        "run.yaml",
    ]
    single = make_run(text_file, tmp_path / "single")
    codes, logs = run_processes([run, single], tmp_path, "jax", 1, devices=2)
    assert codes == [0], logs
    check_equal(tmp_path / "single", tmp_path / "shared")


@pytest.mark.slow("release")
@pytest.mark.any_backend
@pytest.mark.skipif(BACKEND != "tensorflow", reason="a slow test, run once")
def test_two_processes_of_jax_then_one_then_two(text_file, tmp_path):
    pytest.importorskip("jax")
    more = {"model_parallel": 2, "distribution": "jax", "epochs": 6}
    run = make_run(text_file, tmp_path / "shared", **more)
    codes, logs = run_processes([run], tmp_path, "jax", 2, steps=5)
    assert codes == [-signal.SIGKILL] * 2, logs
    codes, logs = run_processes([run], tmp_path, "jax", 1, devices=2, steps=6)
    assert codes == [-signal.SIGKILL], logs
    assert not (tmp_path / "shared").exists()
    codes, logs = run_processes([run], tmp_path, "jax", 2)
    assert codes == [0, 0], logs
    single = make_run(text_file, tmp_path / "single", epochs=6)
    codes, logs = run_processes([single], tmp_path, "jax", 1)
    assert codes == [0], logs
    check_equal(tmp_path / "single", tmp_path / "shared")


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.skipif(BACKEND != "tensorflow", reason="a slow test, run once")
@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ("tensorflow", "multi_worker"),
        pytest.param("jax", "jax", marks=pytest.mark.slow("release")),
    ],
)
def test_one_process_that_is_told_to_end_ends_all(backend, kind, text_file, tmp_path):
    pytest.importorskip(backend)
    run = make_run(text_file, tmp_path / "shared", distribution=kind)
    codes, logs = run_processes(
        [run], tmp_path, backend, 2, steps=3, sent=signal.SIGTERM
    )
    assert codes == [143, 143], logs
    assert "No backup found in" in logs[0]
    assert "SIGTERM: stopped at step 4 of 6. The backup in" in logs[0]
    assert "The same command with --resume continues" in logs[0]
    assert "SIGTERM" not in logs[1].replace("SIGTERM caught", "")
    assert sorted(os.listdir(tmp_path / "shared-backup")) == [
        ".unfinished",
        "backup.npz",
        "run.yaml",
    ]
    codes, logs = run_processes([run], tmp_path, backend, 2)
    assert codes == [0, 0], logs
    assert "Continuing at step 4 of 6, from the backup in" in logs[0]
    assert not (tmp_path / "shared-backup").exists()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "settings, message",
    [
        ({"distribution": "mirrored"}, "`distribution` must be one of [None, 'multi_w"),
        ({"model_parallel": 2}, "`model_parallel` must be 1 unless `distribution` is"),
        ({"model_parallel": 0}, "`model_parallel` must be at least 1. Received: 0."),
        (
            {
                "distribution": "jax",
                "validation": ("a",),
                "dataset_arguments": {"tokens_per_batch": 64},
            },
            "`tokens_per_batch` must be left out with `distribution` and `validation`.",
        ),
    ],
)
def test_settings_that_are_wrong(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        PretrainingRun(**settings)


def test_what_is_not_there(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    wrong = {"tensorflow": "jax"}.get(BACKEND, "multi_worker")
    with pytest.raises(ValueError, match=f"KERAS_BACKEND must be .*{BACKEND!r}."):
        with clusters.cluster(wrong):
            pass
    if BACKEND == "tensorflow":
        run = PretrainingRun(files=("a",), output="b", distribution="multi_worker")
        with pytest.raises(ValueError, match="`TF_CONFIG` must be set in each"):
            pretraining.pretrain(run)
    if BACKEND == "jax":
        count = len(keras.distribution.list_devices())
        with pytest.raises(ValueError, match=f"must divide the {count} devices"):
            with clusters.cluster("jax", count + 1):
                pass
        with clusters.cluster("jax") as shares:
            assert shares == count
            assert isinstance(
                keras.distribution.distribution(), keras.distribution.DataParallel
            )
