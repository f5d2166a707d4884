import os

import pytest

from keras_bertfam.whole_files import write_text, written_aside


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
