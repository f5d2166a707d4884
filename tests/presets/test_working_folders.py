import os
import shutil

import pytest

from keras_bertfam import corpora
from keras_bertfam.cli import inputs
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.presets.working_folders import (
    MARK,
    check_working_folder,
    discard,
    working_folder,
)
from keras_bertfam.tokenizers import BertTokenizer
from tests.tiny_masked_lm import SPECIALS, WORDS


def pretrain(folder, text):
    inputs.check_run(PretrainingRun((text,), str(folder / "out")))


def prepare(folder, text):
    pytest.importorskip("apache_beam")
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    corpora.prepare(text, folder / "out", tokenizer, report=str)


@pytest.mark.parametrize(
    ("command", "beside"), [(pretrain, "backup"), (prepare, "working")]
)
def test_a_folder_of_the_users_own_is_left_alone(command, beside, tmp_path):
    text, own = tmp_path / "text.txt", tmp_path / f"out-{beside}"
    text.write_text("A cat sat .")
    own.mkdir()
    (own / "model.weights.h5").write_text("mine")
    with pytest.raises(ValueError, match=f"`output` must leave .*{beside}.* free.*h5"):
        command(tmp_path, str(text))
    assert (own / "model.weights.h5").read_text() == "mine"


def test_one_process_at_a_time_and_goes_whole(tmp_path, monkeypatch):
    folder = str(tmp_path / "work")
    check_working_folder(folder, "out")
    with working_folder(folder, "out"):
        check_working_folder(folder, "out")
        with pytest.raises(ValueError, match="one run at a time.*another process"):
            with working_folder(folder, "out"):
                pass
    assert os.listdir(folder) == [MARK]  # it is there for the next run
    remove = shutil.rmtree

    def killed(path, ignore_errors=False):
        if not ignore_errors:
            raise KeyboardInterrupt
        remove(path, ignore_errors)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        discard(folder)
    assert not os.path.exists(folder)
    with working_folder(folder, "out"):
        discard(folder)
    assert not os.listdir(tmp_path)
    (tmp_path / "work").write_text("a file")
    with pytest.raises(ValueError, match="must leave .*work' free"):
        check_working_folder(folder, "out")
