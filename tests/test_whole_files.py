import os
import sys

import pytest

from keras_bertfam.whole_files import flush_folder, write_text, written_aside


def test_a_file_is_the_old_or_the_new_one(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old é")
    with pytest.raises(KeyboardInterrupt), written_aside(path) as part:
        with open(part, "w") as file:
            file.write("ne")
        assert path.read_text("utf-8") == "old é"
        raise KeyboardInterrupt
    assert path.read_text("utf-8") == "old é"
    write_text(path, "new")
    assert path.read_text("utf-8") == "new"
    assert os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the files' names")
def test_a_file_is_on_the_disk_before_its_name_and_that_before_the_next(
    tmp_path, monkeypatch
):
    done = []
    sync, replace = os.fsync, os.replace
    link = "/proc/self/fd/{}".format

    def synced(descriptor):
        done.append(os.path.basename(os.readlink(link(descriptor)))[:5])
        sync(descriptor)

    def replaced(old, new):
        done.append(f"{os.path.basename(old)[:5]} -> {os.path.basename(new)}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    folder = tmp_path / "outer"
    folder.mkdir()
    write_text(folder / "data", "1")
    write_text(folder / "list", "data")
    assert done == [
        *(".data", ".data -> data", "outer"),
        *(".list", ".list -> list", "outer"),
    ]
    done.clear()
    flush_folder(folder)
    assert sorted(done) == ["data", "list", "outer"] and done[-1] == "outer"


def test_two_writers_of_one_file_are_kept_apart(tmp_path):
    """Processes of two machines may have the same number."""
    with written_aside(tmp_path / "file") as first:
        with open(first, "w") as file:
            file.write("first")
        with written_aside(tmp_path / "file") as second:
            with open(second, "w") as file:
                file.write("second")
        assert (tmp_path / "file").read_text() == "second"
    assert (tmp_path / "file").read_text() == "first"
