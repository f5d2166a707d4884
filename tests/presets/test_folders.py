"""Folders that are replaced while they are read, written and while writers die."""

import itertools
import os
import signal
import sys
import threading
import time

import pytest

from keras_bertfam.presets import CheckpointError, folders, locks, replacing
from tests.written_files import write

OLD = {
    "config.json": "old",
    "model.weights.h5": "old",
    "task.json": "old",
    "task.weights.h5": "old",
    "README.md": "the user's",
    "logs/events": "the user's",
}
NEW = {
    "config.json": "new",
    "model.weights.json": "new",
    "model_00000.weights.h5": "new",
    "model_00001.weights.h5": "new",
}
# Of Python's audit: what changes a file, a folder or a lock, and each opened file.
CHANGES = {"open", "fcntl.flock", "shutil.rmtree", "ctypes.dlopen"}
CHANGES |= {
    f"os.{name}"
    for name in "chmod link mkdir remove rename rmdir symlink utime setxattr".split()
}
USERS = {name: OLD[name] for name in ("README.md", "logs/events")}


def state_of(folder):
    """The content of all files, or an error if one goes away meanwhile."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert paths
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def save(folder, files):
    with folders.write_aside(folder) as aside:
        write(type(folder)(aside), files)


@pytest.fixture(params=["exchange", "renames"])
def place(request, tmp_path, monkeypatch):
    """The path of a folder, on a system that swaps folders or on one that doesn't."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # which takes its time
    if request.param == "renames":
        monkeypatch.setattr(replacing, "_exchange", lambda one, other: False)
    return tmp_path / "preset"


def killed(number, action):
    """Runs an action in a process that dies before an operation on files.

    Returns:
        bool, whether it came so far.
    """
    child = os.fork()
    if child == 0:
        count = itertools.count()

        def die(event, arguments):
            if event in CHANGES and next(count) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(die)
        action()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
    return status != 0


@pytest.mark.slow
def test_a_kill_before_any_operation_leaves_the_old_or_the_new(place):
    states = []
    for number in itertools.count():
        save(place, OLD)
        if not killed(number, lambda: save(place, NEW)):
            break
        states.append(folders.read_whole(place, lambda: state_of(place)))
        assert states[-1] in (OLD, NEW | USERS), number
        save(place, NEW)
        assert state_of(place) == NEW | USERS
        assert os.listdir(place.parent) == [place.name]
        save(place, {"model.weights.h5": "", "task.json": ""})  # no shards
    assert number > 30
    assert OLD in states
    assert NEW | USERS in states


def test_a_kill_before_any_operation_on_a_new_folder(tmp_path):
    for number in itertools.count():
        place = tmp_path / str(number) / "preset"
        if not killed(number, lambda place=place: save(place, NEW)):
            break
        assert not place.exists() or state_of(place) == NEW
        save(place, NEW)
        assert os.listdir(place.parent) == [place.name]


def test_writers_and_readers_at_once(place, monkeypatch):
    monkeypatch.setattr(locks, "_PATIENCE", 0.05)
    versions = [{name: str(n) for name in OLD} for n in range(4)]
    save(place, versions[0])
    done, errors = threading.Event(), []

    def work(action):
        try:
            action()
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            done.set()

    def write_often(mine):
        for _ in range(10):
            for files in mine:
                save(place, files)

    def read_slowly():
        found = {}
        for name in OLD:
            found[name] = (place / name).read_text()
            time.sleep(1e-4)
        return found

    def read_often():
        while not done.is_set():
            assert folders.read_whole(place, read_slowly) in versions

    actions = [
        lambda: write_often(versions[:2]),
        lambda: write_often(versions[2:]),
        read_often,
        read_often,
    ]
    threads = [threading.Thread(target=work, args=[action]) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert state_of(place) in (versions[1], versions[3])
    assert os.listdir(place.parent) == [place.name]


@pytest.mark.parametrize("fails", [False, True])
def test_a_reader_begins_again_if_the_folder_is_replaced(place, monkeypatch, fails):
    monkeypatch.setattr(locks, "_PATIENCE", 0)  # the writer doesn't wait
    save(place, OLD)
    seen = []

    def read():
        seen.append((place / "config.json").read_text())
        if len(seen) == 1:
            save(place, NEW)
            if fails:
                raise RuntimeError("a mixture")
        return seen[-1]

    assert folders.read_whole(place, read) == "new"
    assert seen == ["old", "new"]


def test_an_error_of_a_reader_is_raised_at_once(place):
    save(place, OLD)
    seen = []

    def read():
        seen.append(1)
        raise FileNotFoundError("of the reader")

    with pytest.raises(FileNotFoundError, match="of the reader"):
        folders.read_whole(place, read)
    assert len(seen) == 1


def test_a_reader_gives_up_at_last(place, monkeypatch):
    monkeypatch.setattr(locks, "_PATIENCE", 0)
    save(place, OLD)
    with pytest.raises(CheckpointError, match="stays the same.*replaced 20 times"):
        folders.read_whole(place, lambda: save(place, NEW))


def test_a_writer_waits_for_readers(place):
    save(place, OLD)
    writer = threading.Thread(target=save, args=[place, NEW])

    def read():
        writer.start()
        writer.join(0.2)
        return state_of(place)

    assert folders.read_whole(place, read) == OLD
    writer.join()
    assert state_of(place) == NEW | USERS


def test_the_folder_of_a_living_writer_stays(place):
    with folders.write_aside(place) as aside:
        save(place, OLD)
        folders.check_destination(place)
        assert os.path.isdir(aside)
        write(type(place)(aside), NEW)
    assert state_of(place) == NEW | USERS


def test_a_failed_save_changes_nothing(place):
    save(place, OLD)
    with pytest.raises(RuntimeError), folders.write_aside(place) as aside:
        write(type(place)(aside), NEW)
        raise RuntimeError
    assert state_of(place) == OLD
    assert os.listdir(place.parent) == [place.name]


# === What stays ===


def test_what_else_is_in_the_folder_stays(place):
    save(place, OLD)
    (place / "link").symlink_to("README.md")
    (place / "empty").mkdir(mode=0o700)
    place.chmod(0o750)
    log = open(place / "logs" / "events", "a")
    save(place, {**NEW, "logs/new": "new"})
    with log:
        log.write(", written on")
    assert os.readlink(place / "link") == "README.md"
    assert (place / "empty").stat().st_mode & 0o777 == 0o700
    assert place.stat().st_mode & 0o777 == 0o750
    assert (place / "logs" / "events").read_text() == "the user's, written on"
    assert (place / "logs" / "new").read_text() == "new"


def test_files_that_cannot_be_linked_are_copied(place, monkeypatch):
    save(place, OLD)

    def refuse(*arguments):
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    save(place, NEW)
    assert state_of(place) == NEW | USERS


def test_a_link_to_a_folder_stays_one(place):
    target = place.parent / "elsewhere" / "target"
    save(target, OLD)
    place.symlink_to(target)
    save(place, NEW)
    assert place.is_symlink()
    assert state_of(target) == NEW | USERS


def test_the_working_directory_may_be_the_folder(place, monkeypatch):
    save(place, OLD)
    monkeypatch.chdir(place / "logs")
    save(type(place)(".."), NEW)
    assert os.getcwd() == str(place / "logs")
    assert os.listdir() == ["events"]


TASK = ["task.json", "task.weights.h5", "preprocessor.json"]
TOKENIZER = ["tokenizer.json", "assets/tokenizer/vocabulary.txt"]
BACKBONE = ["config.json", "metadata.json", "model.weights.h5"]
EXPORT = ["config.json", "model.safetensors"]
FOREIGN = ["tokenizer_config.json", "vocab.txt"]


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (BACKBONE + TASK + TOKENIZER, BACKBONE, TOKENIZER),
        (BACKBONE + TASK + TOKENIZER, BACKBONE + TASK[:1], TOKENIZER),
        (BACKBONE + TASK[2:] + TOKENIZER, BACKBONE, TASK[2:] + TOKENIZER),
        (BACKBONE + TASK + TOKENIZER, TOKENIZER, BACKBONE + TASK[:2]),
        (TOKENIZER, ["tokenizer.json", "assets/tokenizer/vocabulary.spm"], []),
        (EXPORT + FOREIGN, EXPORT, FOREIGN),
        (EXPORT + ["generator/config.json"], EXPORT, []),
        (FOREIGN + ["tokenizer.json"], ["tokenizer_config.json", "spiece.model"], []),
        (
            ["saved_model.pb", "assets/notes"],
            BACKBONE,
            ["saved_model.pb", "assets/notes"],
        ),
    ],
)
def test_what_goes_with_what_is_replaced(old, new, kept, tmp_path):
    place = tmp_path / "preset"
    save(place, dict.fromkeys(old, "old"))
    save(place, dict.fromkeys(new, "new"))
    expected = dict.fromkeys(kept, "old") | dict.fromkeys(new, "new")
    assert state_of(place) == expected


# === Where nothing can be written ===


def test_only_folders_are_replaced(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    for check in (folders.check_destination, lambda path: save(path, NEW)):
        with pytest.raises(ValueError, match="which is a file"):
            check(file)
        with monkeypatch.context() as patch:
            patch.setattr(os.path, "ismount", lambda path: True)
            with pytest.raises(ValueError, match="mount point: name a folder in it"):
                check(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda *_: False)
            with pytest.raises(PermissionError):
                check(tmp_path)
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_save_has_left_is_named(place, monkeypatch):
    save(place, OLD)
    os.rename(place, replacing.interim_path(place))

    def refuse(*arguments):
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        with pytest.raises(CheckpointError, match="left it as .*replaced-preset"):
            folders.read_whole(place, lambda: state_of(place))
    assert folders.read_whole(place, lambda: state_of(place)) == OLD


def test_a_folder_in_one_that_is_written_waits_for_no_lock(tmp_path, monkeypatch):
    def fail(seconds):
        raise AssertionError("It waits for itself.")

    monkeypatch.setattr(locks.time, "sleep", fail)
    with folders.write_aside(tmp_path / "outer") as outer:
        with folders.write_aside(os.path.join(outer, "inner")) as inner:
            with open(os.path.join(inner, "file"), "w") as file:
                file.write("new")
    assert state_of(tmp_path) == {"outer/inner/file": "new"}
