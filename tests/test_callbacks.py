import os
import pathlib
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bertfam import callbacks
from keras_bertfam.layers.preprocessing.seeding import StreamPosition
from tests import toy_masked_lm as toy
from tests.resume_worker import At, train

ROOT = pathlib.Path(__file__).parents[1]
BACKEND = keras.backend.backend()
# Keras says this of every first pass over data of unknown length.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data")


class Interrupt(Exception):
    pass


def interrupt():
    raise Interrupt


def run(directory, make_data, at=None, save_freq=3, with_position=True, **kwargs):
    """One run, interrupted at the end of batch `at`, with fresh data and model."""
    position = StreamPosition()
    backup = callbacks.BackupAndResume(
        directory, save_freq, position=position if with_position else None
    )
    extra = [backup] if at is None else [backup, At(*at, interrupt)]
    return train(make_data(position), extra, **kwargs)


def check_resumes(tmp_path, make_data, at, **kwargs):
    directory = tmp_path / "backup"
    whole = run(tmp_path / "other", make_data, **kwargs)
    keras.utils.set_random_seed(1)  # nothing may depend on the global state
    with pytest.raises(Interrupt):
        run(directory, make_data, at, **kwargs)
    assert os.listdir(directory) == ["backup.npz"]
    resumed = run(directory, make_data, **kwargs)
    assert not directory.exists()
    after = {step: loss for step, loss in whole.losses.items() if step >= at}
    assert len(after) > 3
    assert {step: resumed.losses[step] for step in after} == after
    assert resumed.epochs == {e: whole.epochs[e] for e in resumed.epochs}
    return whole, resumed


def test_killed_run_continues_to_the_same_losses(tmp_path):
    command = [
        sys.executable,
        "-m",
        "tests.resume_worker",
        tmp_path / "backup",
        "1",
        "7",
    ]
    killed = subprocess.run(command, cwd=ROOT, timeout=120, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    whole = run(tmp_path / "other", toy.stream)
    resumed = run(tmp_path / "backup", toy.stream)
    assert sorted(resumed.epochs) == [1, 2]
    # The last backup is of batch 17, which is batch 8 of epoch 1 at save_freq=3.
    for step in [(1, 8), (1, 9), *[(2, batch) for batch in range(10)]]:
        assert resumed.losses[step] == pytest.approx(whole.losses[step], abs=1e-6)
    for epoch in resumed.epochs:
        assert resumed.epochs[epoch] == pytest.approx(whole.epochs[epoch], abs=1e-6)


@pytest.mark.parametrize("at", [(0, 4), (1, 9), (2, 0)])
def test_resume_in_a_pass_of_unknown_length(tmp_path, at):
    whole, _ = check_resumes(tmp_path, toy.stream, at)
    assert sorted(whole.epochs) == [0, 1, 2]
    assert len({losses for losses in whole.losses.values()}) == 30


def test_epochs_have_different_masks():
    position = StreamPosition()
    data = toy.stream(position)
    masks = []
    for epoch in range(2):
        position.set(epoch)
        masks.append(np.concatenate([weights for _, _, weights in data]))
    assert (masks[0] != masks[1]).any()


def test_resume_in_a_pass_of_known_length(tmp_path):
    def data(position):
        import tensorflow as tf

        return toy.stream(position).apply(tf.data.experimental.assert_cardinality(10))

    check_resumes(tmp_path, data, (1, 6))


def test_resume_at_the_end_of_an_epoch(tmp_path):
    check_resumes(tmp_path, toy.stream, (1, 3), save_freq="epoch")


@pytest.mark.parametrize("at", [(1, 3), (2, 2)])
def test_resume_within_endless_data(tmp_path, at):
    def data(position):
        return toy.stream(position).repeat()

    if BACKEND == "torch":
        with pytest.raises(ValueError, match="Under PyTorch"):
            run(tmp_path, data, steps_per_epoch=7)
    else:
        check_resumes(tmp_path, data, at, steps_per_epoch=7)


def test_a_pass_of_several_epochs_is_refused_from_the_start(tmp_path):
    def known(position):
        import tensorflow as tf

        return toy.stream(None).apply(tf.data.experimental.assert_cardinality(10))

    with pytest.raises(ValueError, match="steps_per_epoch=5 and data of 10 batches"):
        run(tmp_path, known, steps_per_epoch=5)


def test_resume_without_a_position(tmp_path):
    def data(position):
        return toy.stream(None)

    check_resumes(tmp_path, data, (1, 5), with_position=False)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras doesn't do so under PyTorch")
def test_resume_with_several_steps_per_execution(tmp_path):
    check_resumes(tmp_path, toy.stream, (1, 7), save_freq=4, steps_per_execution=2)


def test_validation_is_repeated_and_equal(tmp_path):
    check_resumes(
        tmp_path, toy.stream, (1, 7), validation_data=toy.stream(None, batches=2)
    )


def test_failed_write_leaves_the_previous_backup(tmp_path, monkeypatch):
    savez, written = np.savez, []

    def fail_the_second(file, **arrays):
        if written:
            file.write(b"half of a file")
            raise Interrupt
        written.append(True)
        savez(file, **arrays)

    whole = run(tmp_path / "other", toy.stream)
    monkeypatch.setattr(np, "savez", fail_the_second)
    with pytest.raises(Interrupt):
        run(tmp_path / "backup", toy.stream)
    monkeypatch.undo()
    resumed = run(tmp_path / "backup", toy.stream)
    assert resumed.losses[0, 3] == whole.losses[0, 3]
    assert resumed.epochs == whole.epochs


def test_bad_backups_and_arguments(tmp_path):
    with pytest.raises(ValueError, match="save_freq=0"):
        callbacks.BackupAndResume(tmp_path, save_freq=0)
    (tmp_path / "backup.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(ValueError, match="can't be read"):
        run(tmp_path, toy.stream)
    np.savez(
        tmp_path / "backup.npz", state=np.array('{"epoch": 0}'), model_0=np.ones(3)
    )
    with pytest.raises(ValueError, match="is of another model"):
        run(tmp_path, toy.stream)
    with pytest.raises(ValueError, match="may hold one"):
        callbacks.with_stream_position([callbacks.SetStreamPosition()] * 2, None)


def test_a_plain_fit_moves_the_position():
    class Position:
        def __init__(self):
            self.calls = []

        def set(self, epoch, batch=0):
            self.calls.append((epoch, batch))

    position = Position()
    train(toy.stream(None), [callbacks.SetStreamPosition(position)])
    assert position.calls == [(0, 0), (1, 0), (2, 0)]
    position.calls.clear()
    train(toy.stream(None), [callbacks.SetStreamPosition(position)], initial_epoch=2)
    assert position.calls == [(2, 0)]
