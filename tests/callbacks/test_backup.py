import contextlib
import functools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from keras_bertfam import callbacks
from keras_bertfam.callbacks.backup import Termination
from keras_bertfam.callbacks.stream_position import (
    SetStreamPosition,
    with_stream_position,
)
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.layers.data.pipelines import is_cached, keeps_batches
from keras_bertfam.tasks import MaskedLMPreprocessor
from tests import tiny_masked_lm as tiny
from tests.checkout import ROOT
from tests.resume_worker import At, train

BACKEND = keras.backend.backend()
# Data of unknown length may end.
pytestmark = pytest.mark.filterwarnings("error:Your input ran out of data")


class Interrupt(Exception):
    pass


def interrupt():
    raise Interrupt


def run(directory, make_data=tiny.stream, at=None, save_freq=3, **kwargs):
    """One run, interrupted at the end of batch `at`, with fresh data and model."""
    extra = [callbacks.BackupAndResume(directory, save_freq)]
    if at is not None:
        extra.append(At(*at, interrupt))
    return train(make_data, extra, **kwargs)


def whole_run(folder, points, make_data=tiny.stream, save_freq=3, **kwargs):
    """A run to the end, and copies of what it had on disk after some batches.

    Args:
        folder: where to put the backup, and a copy for each of `points`.
        points: pairs of an epoch and a batch.
        make_data, save_freq, **kwargs: as `run` takes them.

    Returns:
        The run's `Recorder`, and the folder of each point.
    """
    backup = folder / "whole"
    copies = {at: folder / f"backup_{at[0]}_{at[1]}" for at in points}
    extra = [callbacks.BackupAndResume(backup, save_freq)]
    for at, copy in copies.items():
        extra.append(At(*at, functools.partial(shutil.copytree, backup, copy)))
    return train(make_data, extra, **kwargs), copies


POINTS = [(1, 6), (2, 0)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return whole_run(tmp_path_factory.mktemp("whole"), POINTS)


def check_resumes(whole, directory, at, make_data=tiny.stream, **kwargs):
    """A run from the backup in `directory` is the `whole` one from `at` on."""
    keras.utils.set_random_seed(1)  # nothing may depend on the global state
    assert os.listdir(directory) == ["backup.npz"]
    resumed = run(directory, make_data, **kwargs)
    assert not directory.exists()
    after = {step: loss for step, loss in whole.losses.items() if step >= at}
    assert len(after) > 3
    assert {step: resumed.losses[step] for step in after} == after
    assert resumed.epochs == {e: whole.epochs[e] for e in resumed.epochs}
    return resumed


def check_resumes_at(tmp_path, at, make_data=tiny.stream, **kwargs):
    whole, copies = whole_run(tmp_path, [at], make_data, **kwargs)
    check_resumes(whole, copies[at], at, make_data, **kwargs)


@pytest.mark.slow
@pytest.mark.any_backend
def test_killed_run_continues_to_the_same_losses(whole, tmp_path):
    arguments = [tmp_path / "backup", "1", "4"]
    command = [sys.executable, "-m", "tests.resume_worker", *arguments]
    killed = subprocess.run(command, cwd=ROOT, timeout=400, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    resumed = run(tmp_path / "backup")
    assert sorted(resumed.epochs) == [1, 2]
    # The last backup is of step 12, which is batch 4 of epoch 1.
    for step in [(1, 5), (1, 6), *[(2, batch) for batch in range(7)]]:
        assert resumed.losses[step] == pytest.approx(whole[0].losses[step], rel=1e-6)
    for epoch in resumed.epochs:
        expected = pytest.approx(whole[0].epochs[epoch], rel=1e-6)
        assert resumed.epochs[epoch] == expected


@pytest.mark.slow
def test_a_run_that_is_told_to_end_backs_up_first(whole, tmp_path):
    arguments = [tmp_path / "backup", "1", "3", "SIGTERM"]
    command = [sys.executable, "-m", "tests.resume_worker", *arguments]
    told = subprocess.run(command, cwd=ROOT, timeout=400, capture_output=True)
    said = told.stderr.decode()
    assert told.returncode == 143, said[-2000:]
    assert "SIGTERM: stopped at epoch 2, step 4. The backup in" in said
    resumed = run(tmp_path / "backup")
    assert min(resumed.losses) == (1, 0) and sorted(resumed.epochs) == [1, 2]
    for step in [(1, 5), (1, 6), (2, 0), (2, 6)]:
        assert resumed.losses[step] == pytest.approx(whole[0].losses[step], rel=1e-6)


@pytest.mark.slow
@pytest.mark.any_backend
def test_sigterm_is_watched_for_in_fit_only(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    watching = []
    watch = At(0, 0, lambda: watching.append(signal.getsignal(signal.SIGTERM)))
    for at in (None, (0, 2)):
        extra = [callbacks.BackupAndResume(tmp_path / "backup"), watch]
        if at is None:
            train(extra=extra, steps_per_epoch=2, make_data=endless)
        else:
            with pytest.raises(Interrupt):
                train(extra=[*extra, At(*at, interrupt)])
        assert watching.pop() != before == signal.getsignal(signal.SIGTERM)


def test_a_second_sigterm_is_not_held_up():
    ended = []
    before = signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    try:
        termination = Termination()
        termination.start()
        signal.raise_signal(signal.SIGTERM)
        assert termination.received and not ended
        signal.raise_signal(signal.SIGTERM)
        assert ended
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
@pytest.mark.any_backend
def test_backups_by_the_clock_and_before_validation(tmp_path, monkeypatch):
    saved = []
    save = callbacks.BackupAndResume._save

    def noted(self, epoch, batch, logs=None):
        saved.append((epoch, batch))
        save(self, epoch, batch, logs)

    monkeypatch.setattr(callbacks.BackupAndResume, "_save", noted)
    often = callbacks.BackupAndResume(tmp_path / "often", 5, minutes=1e-9)
    train(endless, [often], steps_per_epoch=2)
    steps = [[(k, 1), (k, 2), (k + 1, 0)] for k in range(3)]
    assert saved == sum(steps, [])
    saved.clear()
    seldom = callbacks.BackupAndResume(tmp_path / "seldom", 500)
    train(endless, [seldom], steps_per_epoch=2)
    assert saved == [(1, 0), (2, 0), (3, 0)]
    saved.clear()
    held_out = tiny.stream(tiny.make_model()).take(1)
    at = callbacks.BackupAndResume(tmp_path / "validated", 500)
    train(endless, [at], steps_per_epoch=2, validation_data=held_out)
    # Callbacks may change something after the validation.
    assert saved == [(0, 2), (1, 0), (1, 2), (2, 0), (2, 2), (3, 0)]


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_run_that_goes_on_says_where(tmp_path, capsys):
    model = tiny.make_model()
    backup = callbacks.BackupAndResume(tmp_path / "backup", 2)

    def fit(*added):
        model.fit(
            endless(model),
            steps_per_epoch=4,
            epochs=2,
            callbacks=[backup, *added],
            verbose=2,
        )

    with pytest.raises(Interrupt):
        fit(At(1, 2, interrupt))  # before a backup of this step would be made
    capsys.readouterr()
    slow = At(1, 2, lambda: time.sleep(1))
    fit(slow)
    said = capsys.readouterr()
    assert "Continuing at step 6 of 8, from the backup in" in said.err
    # Two steps were made, which took half a second each; none of the time is of others.
    seconds = re.search(r"4/4 - (\d+)s - (\d+)(ms|s)/step", said.out)
    per_step = int(seconds[2]) / (1000 if seconds[3] == "ms" else 1)
    assert per_step >= 0.5


@pytest.mark.slow
@pytest.mark.any_backend
def test_what_fails_while_it_skips_batches_leaves_a_model_that_trains(tmp_path):
    model = tiny.make_model()

    def fit(epochs, *given):
        data, steps = endless(model), 3
        model.fit(data, None, None, epochs, callbacks=[*given], steps_per_epoch=steps)
        return int(keras.ops.convert_to_numpy(model.optimizer.iterations))

    for at in ((1, 2), (1, 0)):  # the second time in a batch that is skipped
        with pytest.raises(Interrupt):
            backup = callbacks.BackupAndResume(tmp_path / "backup", 1)
            fit(2, backup, At(*at, interrupt))
    assert fit(2) == 5 + 6


@pytest.mark.slow
@pytest.mark.any_backend
def test_sigterm_while_it_validates(tmp_path):
    """With the default backups, at the ends of epochs only."""
    model = tiny.make_model()
    batches = [*tiny.stream(model).take(2)]
    held_out = tiny.stream(model, training=False).take(1)
    told = keras.callbacks.LambdaCallback()
    told.on_test_batch_end = lambda batch, logs=None: signal.raise_signal(
        signal.SIGTERM
    )

    def fit(*others):
        backup = callbacks.BackupAndResume(tmp_path / "backup")
        return model.fit(
            endless(model),
            epochs=1,
            steps_per_epoch=len(batches),
            validation_data=held_out,
            callbacks=[backup, *others],
        )

    with pytest.raises(SystemExit):
        fit(told)
    assert os.listdir(tmp_path / "backup") == ["backup.npz"]
    assert "val_loss" in fit().history
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == len(batches)


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_rate_that_is_set_at_the_end_of_an_epoch_is_kept(tmp_path):
    rates = []
    for end in (interrupt, lambda: None):
        model = tiny.make_model()
        halve = keras.callbacks.LambdaCallback()
        halve.on_epoch_end = lambda epoch, logs=None, model=model: setattr(
            model.optimizer, "learning_rate", rate_of(model) / 2
        )
        backup = callbacks.BackupAndResume(tmp_path / "backup")
        with contextlib.suppress(Interrupt):
            model.fit(
                endless(model),
                epochs=2,
                steps_per_epoch=2,
                callbacks=[backup, halve, At(1, 0, end)],
            )
        rates.append(rate_of(model))
    assert rates[1] == pytest.approx(rates[0] / 2)


def rate_of(model):
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


@pytest.mark.slow
@pytest.mark.any_backend
def test_an_interrupted_run_leaves_its_backup(whole, tmp_path):
    with pytest.raises(Interrupt):
        run(tmp_path / "backup", at=(0, 4))
    check_resumes(whole[0], tmp_path / "backup", (0, 4))


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("at", POINTS)
def test_resume_in_a_pass_of_unknown_length(whole, at):
    check_resumes(whole[0], whole[1][at], at)
    assert sorted(whole[0].epochs) == [0, 1, 2]
    assert len({losses for losses in whole[0].losses.values()}) == 21


@pytest.mark.slow
@pytest.mark.any_backend
def test_resume_in_a_pass_of_known_length(tmp_path):
    check_resumes_at(tmp_path, (1, 5), known_length)


@pytest.mark.slow
@pytest.mark.any_backend
def test_resume_at_the_end_of_an_epoch(tmp_path):
    check_resumes_at(tmp_path, (1, 3), save_freq="epoch")


def endless(model):
    return tiny.stream(model).repeat()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "steps"), [("stream", None), ("known_length", None), ("endless", 5)]
)
def test_resume_from_the_last_batch_of_an_epoch(data, steps, tmp_path):
    made = {"stream": tiny.stream, "endless": endless, "known_length": known_length}
    settings = {"save_freq": steps or 7, "steps_per_epoch": steps}
    check_resumes_at(tmp_path, (1, 0), made[data], **settings)


@pytest.mark.slow
@pytest.mark.any_backend
def test_resume_within_endless_data(tmp_path):
    points = [(1, 3), (2, 1)]
    whole, copies = whole_run(tmp_path, points, endless, steps_per_epoch=5)
    for at in points:
        check_resumes(whole, copies[at], at, endless, steps_per_epoch=5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_resume_within_one_pass_of_unknown_length(tmp_path):
    def data(model):
        return tiny.stream(model, training=False).repeat(2).take(9)

    check_resumes_at(tmp_path, (1, 1), data, save_freq=2, steps_per_epoch=3)


def generator(model):
    yield from endless(model)


def known_length(model):
    import tensorflow as tf

    return tiny.stream(model).apply(tf.data.experimental.assert_cardinality(7))


@pytest.mark.slow
def test_what_could_not_be_resumed_is_refused_from_the_start(tmp_path):
    with pytest.raises(ValueError, match="steps_per_epoch=5 and data of 7 batches"):
        run(tmp_path, known_length, steps_per_epoch=5)
    if BACKEND == "torch":
        backup = callbacks.BackupAndResume(tmp_path)
        backup.steps_per_epoch, backup.cardinality = 5, -1
        with pytest.raises(ValueError, match="of one of this library's tasks"):
            backup.on_train_begin()
        with pytest.raises(ValueError, match="of one of this library's tasks"):
            run(tmp_path, generator, steps_per_epoch=5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_resume_with_data_that_has_no_position(tmp_path):
    # The model's preprocessor has one, which this data doesn't read.
    def data(model):
        return tiny.stream(model, training=False).take(7)

    check_resumes_at(tmp_path, (1, 4), data)


BEHIND = {
    "take": lambda data: data.take(5),
    "skip": lambda data: data.skip(1),
    "shuffle": lambda data: data.shuffle(3, 0, reshuffle_each_iteration=False),
    "concatenate": lambda data: data.concatenate(data),
    "cache": lambda data: data.cache(),
    "map": lambda data: data.map(lambda *batch: batch).prefetch(1),
    "take, repeat": lambda data: data.take(4).repeat(),
    "repeat, take": lambda data: data.repeat().take(9),
}


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("name", BEHIND)
def test_resume_with_more_behind_the_data(name, tmp_path):
    def data(model):
        return BEHIND[name](tiny.stream(model))

    steps = {"steps_per_epoch": 5} if name == "take, repeat" else {}
    check_resumes_at(tmp_path, (1, 3), data, **steps)


def test_data_that_can_begin_in_the_middle():
    data = tiny.stream(tiny.make_model())
    kept = {name for name, make in BEHIND.items() if keeps_batches(make(data))}
    assert kept == {"map"}
    assert keeps_batches(data) and keeps_batches(data.repeat())
    assert not keeps_batches(data.repeat(2))
    assert {name for name, make in BEHIND.items() if is_cached(make(data))} == {"cache"}


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.skipif(BACKEND == "torch", reason="Keras doesn't do so under PyTorch")
def test_resume_with_several_steps_per_execution(tmp_path):
    check_resumes_at(tmp_path, (1, 5), save_freq=4, steps_per_execution=2)


@pytest.mark.slow
@pytest.mark.any_backend
def test_failed_write_leaves_the_previous_backup(whole, tmp_path, monkeypatch):
    savez, written = np.savez, []

    def fail_the_second(file, **arrays):
        if written:
            file.write(b"half of a file")
            raise Interrupt
        written.append(True)
        savez(file, **arrays)

    monkeypatch.setattr(np, "savez", fail_the_second)
    with pytest.raises(Interrupt):
        run(tmp_path / "backup")
    monkeypatch.undo()
    resumed = run(tmp_path / "backup")
    assert resumed.losses[0, 3] == whole[0].losses[0, 3]
    assert resumed.epochs == whole[0].epochs


@pytest.mark.slow
def test_a_backup_of_another_tokenizer(tmp_path):
    class Ends(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise Interrupt

    def train(words, more=()):
        model = tiny.make_model()
        tokenizer = BertTokenizer(words, lowercase=True)
        model.preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=16)
        backup = callbacks.BackupAndResume(tmp_path, save_freq=1)
        model.fit(tiny.stream(model), callbacks=[backup, *more], verbose=0)

    words = tiny.make_model().preprocessor.tokenizer.get_vocabulary()
    with pytest.raises(Interrupt):
        train(words, [Ends()])
    with pytest.raises(ValueError, match="is of another tokenizer"):
        train([*words[:-2], words[-1], words[-2]])
    train(words)


@pytest.mark.slow
def test_bad_backups_and_arguments(tmp_path):
    with pytest.raises(ValueError, match="save_freq=0"):
        callbacks.BackupAndResume(tmp_path, save_freq=0)
    (tmp_path / "backup.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(ValueError, match="can't be read"):
        run(tmp_path)
    np.savez(
        tmp_path / "backup.npz", state=np.array('{"epoch": 0}'), model_0=np.ones(3)
    )
    with pytest.raises(ValueError, match="is of another model"):
        run(tmp_path)
    with pytest.raises(ValueError, match="may hold one"):
        with_stream_position([SetStreamPosition()] * 2, None)


@pytest.mark.slow
def test_a_plain_fit_moves_the_position():
    class Position:
        def __init__(self):
            self.calls = []

        def set(self, epoch, batch=0):
            self.calls.append((epoch, batch))

    position = Position()
    train(extra=[SetStreamPosition(position)], initial_epoch=1)
    assert position.calls == [(1, 0), (2, 0)]


def test_a_full_disk_leaves_the_older_backup(tmp_path, monkeypatch):
    backup = callbacks.BackupAndResume(tmp_path)
    arrays = {"state": np.zeros(3)}
    backup._write(arrays)
    before = (tmp_path / "backup.npz").read_bytes()

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="backup.npz.*stays.*No space left"):
        backup._write({"state": np.ones(3)})
    assert os.listdir(tmp_path) == ["backup.npz"]
    assert (tmp_path / "backup.npz").read_bytes() == before


@pytest.mark.any_backend
def test_a_disk_that_is_full_in_mid_file(tmp_path):
    backup = callbacks.BackupAndResume(tmp_path)
    backup._write({"state": np.zeros(3)})
    before = (tmp_path / "backup.npz").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="backup.npz.*stays.*File too large"):
            backup._write({"state": np.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["backup.npz"]
    assert (tmp_path / "backup.npz").read_bytes() == before
