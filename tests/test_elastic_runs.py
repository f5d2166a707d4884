"""Prepared corpora, read by other processes, and by more or fewer than before."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import read_tokens
from tests import tiny_corpus
from tests import tiny_masked_lm as tiny
from tests.checkout import ROOT
from tests.resume_worker import Recorder
from tests.test_distribution import free_ports, run_workers

tensorflow_only = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.distribute, tf.data service"
)


def alone(folder, *arguments):
    """Runs a single process; returns its exit code and the end of its log."""
    command = [sys.executable, "-m", "tests.distribution_worker"]
    environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    done = subprocess.run(
        [*command, str(folder / "0.npz"), *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        timeout=400,
    )
    return done.returncode, done.stderr.decode()[-2000:]


@tensorflow_only
@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_two_workers_then_one_then_two_train_as_one_that_was_never_killed(tmp_path):
    model = tiny.make_model()
    corpus = tiny_corpus.prepare(tmp_path / "prepared", model.preprocessor.tokenizer)
    backup, single = tmp_path / "backup", Recorder()
    data = model.preprocessor.dataset(read_tokens(corpus), 8)
    model.fit(data, epochs=2, callbacks=[single], verbose=0)
    expected = [*single.losses.values()]
    count = len(expected) // 2
    codes, logs = run_workers(tmp_path, backup, "outside", 7, corpus)
    assert -signal.SIGKILL in codes and 0 not in codes, logs
    # A resumed process counts the batches of its epoch that were done before.
    code, log = alone(tmp_path, backup, "outside", count + 3, corpus)
    assert code == -signal.SIGKILL, log
    assert os.listdir(backup) == ["backup.npz"]
    codes, logs = run_workers(tmp_path, backup, "outside", 0, corpus)
    assert codes == [0, 0], logs
    for index in range(2):
        losses = np.load(tmp_path / f"{index}.npz")["losses"]
        # Running means of an epoch, which go on from those before the kills.
        np.testing.assert_allclose(losses[4:], expected[count + 4 :], atol=1e-5)


DISPATCHER = """
import tensorflow as tf
service = tf.data.experimental.service
service.DispatchServer(service.DispatcherConfig(port={port})).join()
"""
WORKER = """
import keras_bertfam
keras_bertfam.layers.data_worker("localhost:{port}").join()
"""


@contextlib.contextmanager
def processes(*sources):
    """Runs Python sources, each in a process, until the context ends."""
    running = [
        subprocess.Popen([sys.executable, "-c", source], cwd=ROOT) for source in sources
    ]
    try:
        yield running
    finally:
        for each in running:
            each.kill()
            each.wait()


@tensorflow_only
@pytest.mark.slow
@pytest.mark.any_backend
def test_workers_of_tf_data_service_give_the_same_batches(tmp_path):
    preprocessor = tiny.make_model().preprocessor
    folder = tiny_corpus.prepare(tmp_path / "prepared", preprocessor.tokenizer)
    data = preprocessor.dataset(read_tokens(folder, epoch=1), 8)
    service = tf.data.experimental.service
    [port] = free_ports(1)
    sources = (DISPATCHER, WORKER, WORKER)
    with processes(*(source.format(port=port) for source in sources)) as running:
        distributed = data.apply(
            service.distribute(
                service.ShardingPolicy.DYNAMIC, f"grpc://localhost:{port}"
            )
        )
        start = time.monotonic()
        found = as_bytes(distributed)
        assert time.monotonic() - start < 120
        assert all(each.poll() is None for each in running)
    assert sorted(found) == sorted(as_bytes(data)) and len(found) > 5


def as_bytes(data):
    return [
        b"".join(part.numpy().tobytes() for part in tf.nest.flatten(batch))
        for batch in data
    ]
