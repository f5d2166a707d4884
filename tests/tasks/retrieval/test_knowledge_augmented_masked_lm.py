"""REALM: likelihoods, training of both towers, indices that follow, resumption."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.callbacks import BackupAndResume
from keras_bertfam.tasks import RefreshIndex
from tests import refresh_worker, tiny_passages
from tests.checkout import ROOT
from tests.gradients import loss_and_gradients
from tests.tasks.retrieval.test_knowledge_augmented_masked_lm_preprocessor import (
    TEXTS,
    make,
)
from tests.tiny_passage_tasks import marked

ROWS = {"text": [*map(marked, TEXTS)], "source": np.arange(len(TEXTS))}


def make_task(**kwargs):
    preprocessor = make(trained=True)
    task = tasks.KnowledgeAugmentedMaskedLM(
        tiny_passages.bert(), preprocessor, preprocessor.search.retriever, **kwargs
    )
    # Steps of TensorFlow take longer to be traced than to run a few of them.
    eagerly = keras.backend.backend() == "tensorflow"
    task.compile(keras.optimizers.Adam(0.02), run_eagerly=eagerly)
    return task


def data_of(task, batch_size=4):
    rows = tf.data.Dataset.from_tensor_slices(ROWS)
    return task.preprocessor.dataset(rows, batch_size)


def arrays(batch):
    return tf.nest.map_structure(np.asarray, batch)


@pytest.fixture(scope="module")
def task():
    return make_task()


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def likelihoods(task, x, y):
    """`log p(z)` and `log p(y_j | z)`, by the parts of the task one by one."""
    sides = (
        {n[k:]: v for n, v in x.items() if n.startswith(p)}
        for p, k in (("query_", 6), ("passage_", 8))
    )
    query, passages = sides
    passages.pop("ids")
    query, passages = (
        ops.convert_to_numpy(vectors)
        for vectors in (
            task.retriever.query_vectors(query),
            task.retriever.passage_vectors(passages),
        )
    )
    prior = log_softmax(np.einsum("bd,bkd->bk", query, passages))
    found = []
    for k in range(prior.shape[1]):
        names = ("token_ids", "segment_ids", "padding_mask")
        states = task.backbone(
            {n: x[n][:, k] for n in names}, positions=x["mask_positions"]
        )["sequence_output"]
        logits = log_softmax(ops.convert_to_numpy(task.head(states)))
        found.append(np.take_along_axis(logits, y[..., None], -1)[..., 0])
    return prior, np.stack(found, 1)


@pytest.mark.slow
@pytest.mark.any_backend
def test_losses_and_what_is_trained(task):
    x, y, weights = arrays(next(iter(data_of(task))))
    for name in ("sequence", "token"):
        task = type(task)(task.backbone, None, task.retriever, name)
        prior, found = likelihoods(task, x, y)
        if name == "sequence":
            whole = prior + (found * weights[:, None]).sum(-1)
            expected = -np.log(np.exp(whole).sum(1)).sum()
        else:
            tokens = np.log(np.exp(prior[..., None] + found).sum(1))
            expected = -(tokens * weights).sum()
        loss, gradients = loss_and_gradients(task, x, y, weights)
        assert loss == pytest.approx(expected / weights.sum(), rel=1e-4), name
    sizes = {
        v.path: np.abs(g).max()
        for v, g in zip(task.trainable_variables, gradients, strict=True)
    }
    retriever = task.retriever
    for layer in (retriever.projection, retriever.passage_projection, task.head):
        assert sizes[layer.dense.kernel.path] > 1e-6
    found = task.test_on_batch(x, y, weights, return_dict=True)
    assert float(found["loss"]) == pytest.approx(loss, rel=1e-4)
    assert float(found["perplexity"]) == pytest.approx(np.exp(loss), rel=1e-3)


def train(folder, stop=None):
    """Trains for three epochs of three batches; a refresh ends each epoch."""
    task = make_task()
    refresh = RefreshIndex(
        task.preprocessor.search, folder / "indices", every=3, background=False
    )
    backup = BackupAndResume(folder / "backup")
    callbacks = [backup, refresh]
    if stop is not None:
        callbacks.append(stop)
    try:
        history = task.fit(data_of(task), epochs=3, callbacks=callbacks, verbose=0)
    except KeyboardInterrupt:
        return None
    weights = [ops.convert_to_numpy(v) for v in task.weights]
    return history.history, weights, task.preprocessor.search


class Stop(keras.callbacks.Callback):
    """Ends training in the middle of the third epoch, as a kill does."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (2, 1):
            raise KeyboardInterrupt


@pytest.mark.slow
def test_an_index_that_follows(task, tmp_path):
    search = task.preprocessor.search
    before = search.index
    refresh = RefreshIndex(search, tmp_path, every=2, background=False)
    data = data_of(task, 6)
    history = task.fit(data, epochs=1, callbacks=[refresh], verbose=0).history
    assert history["index_staleness"] == [1.5]  # of 1 and 2 steps
    assert search.step == 2 and search.index is not before
    search.index.check_encoder(search.retriever)
    vectors = search.retriever.encode([TEXTS[0]], "passage")
    np.testing.assert_allclose(search.index.vectors([0]), vectors, atol=1e-5)
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_folder_of_another_run(task, tmp_path):
    search = task.preprocessor.search
    refresh = RefreshIndex(search, tmp_path, background=False, keep=3)
    refresh._go_on(0)
    refresh._make_here(4)
    refresh._go_on(0)  # killed before its first backup
    assert search.step == 0 and os.listdir(tmp_path) == ["step-000000000"]
    refresh._make_here(4)
    weight = search.retriever.trainable_weights[0]
    weight.assign(weight + 1)
    with pytest.raises(ValueError, match="`folder` must be new for a run that begins"):
        refresh._go_on(0)
    refresh._go_on(5)
    assert search.step == 4
    shutil.rmtree(tmp_path / "step-000000000")
    with pytest.raises(ValueError, match=r"of the steps \[4\], at step 2"):
        refresh._go_on(2)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_a_run_that_goes_on(tmp_path):
    history, weights, search = train(tmp_path / "whole")
    assert history["loss"][-1] < history["loss"][0]
    assert history["index_staleness"] == [2.0, 2.0, 2.0]  # of 1, 2 and 3 steps
    assert search.step == 9
    assert sorted(os.listdir(tmp_path / "whole" / "indices")) == [
        "step-000000006",
        "step-000000009",
    ]
    assert train(tmp_path / "cut", Stop()) is None
    again, ours, search = train(tmp_path / "cut")
    assert search.step == 9 and again["loss"] == pytest.approx(history["loss"][2:])
    for found, expected in zip(ours, weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.any_backend
def test_saved_and_loaded(task, tmp_path):
    x, *_ = arrays(next(iter(data_of(task))))
    expected = ops.convert_to_numpy(task.log_probabilities(task(x)))
    task.save(tmp_path / "task.keras")
    task.save_to_preset(str(tmp_path / "preset"))
    for other in (
        keras.saving.load_model(tmp_path / "task.keras"),
        tasks.KnowledgeAugmentedMaskedLM.from_preset(str(tmp_path / "preset")),
    ):
        assert other.marginalization == task.marginalization
        found = ops.convert_to_numpy(other.log_probabilities(other(x)))
        np.testing.assert_allclose(found, expected, atol=1e-6)
        size = other.preprocessor.tokenizer.vocabulary_size()
        assert size == other.retriever.preprocessor.tokenizer.vocabulary_size()
    config = json.loads((tmp_path / "preset" / "preprocessor.json").read_text())
    assert config["config"]["num_candidates"] == 3


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_process_makes_indices_beside_training(tmp_path):
    task = make_task()
    search = task.preprocessor.search
    refresh = RefreshIndex(search, tmp_path / "indices", every=2)
    wait = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: refresh.wait())
    data = data_of(task)
    history = task.fit(data, epochs=2, callbacks=[refresh, wait], verbose=0).history
    # The index of step 2 is there from the second epoch on.
    assert search.step in (4, 6) and max(history["index_staleness"]) <= 4
    kept = sorted(os.listdir(tmp_path / "indices"))
    assert kept[-1] == f"step-{search.step:09d}" and len(kept) == 2
    refresh.environment = {"KERAS_BACKEND": "none"}
    with pytest.raises(
        RuntimeError, match="(?s)wasn't made: its process .* wrote: .*none"
    ):
        task.fit(data, epochs=4, initial_epoch=2, callbacks=[refresh, wait], verbose=0)


def is_running(number):
    """Whether there is a process of a number, that isn't only waited for."""
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_a_run_killed_while_an_index_is_made_goes_on(tmp_path):
    indices = tmp_path / "cut" / "indices"
    killed = subprocess.run(
        [sys.executable, "-m", "tests.refresh_worker", tmp_path / "cut"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": keras.backend.backend()},
        capture_output=True,
        timeout=900,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-3000:]
    number, end = int(killed.stdout), time.monotonic() + 300
    while is_running(number):  # it may be importing what it needs
        assert time.monotonic() < end
        time.sleep(0.1)
    # Neither has the process gone on to make the index, nor is there a part of one.
    names = sorted(name for name in os.listdir(indices) if name[:6] != "making")
    assert names == ["step-000000000", "step-000000009"]
    task, history = refresh_worker.train(tmp_path / "cut")
    whole, expected = refresh_worker.train(tmp_path / "whole")
    search = task.preprocessor.search
    assert search.step == whole.preprocessor.search.step == 27
    assert sorted(os.listdir(indices)) == ["step-000000018", "step-000000027"]
    assert expected["index_staleness"] == [5.0, 5.0, 5.0]
    assert history["index_staleness"][-1] == 5.0
    assert history["loss"][-1] == pytest.approx(expected["loss"][-1], abs=1e-5)
    for found, other in zip(task.weights, whole.weights, strict=True):
        found, other = map(ops.convert_to_numpy, (found, other))
        # Other processes have made the vectors, in batches of other threads.
        np.testing.assert_allclose(found, other, atol=2e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_bad_input(task, tmp_path):
    with pytest.raises(ValueError, match="`retriever` must be a `keras_bertfam.tasks"):
        tasks.KnowledgeAugmentedMaskedLM(task.backbone)
    other = tiny_passages.bert(vocabulary_size=30)
    with pytest.raises(ValueError, match="must have the reader's vocabulary. .*=30. "):
        tasks.KnowledgeAugmentedMaskedLM(other, None, task.retriever)
    for name in ("every", "batch_size", "keep"):
        with pytest.raises(ValueError, match=f"`{name}` must be .*at least 1"):
            RefreshIndex(task.preprocessor.search, tmp_path, **{name: 0})
