"""The command that pre-trains, on a prepared corpus."""

import os
import re

import pytest
from typer.testing import CliRunner

from keras_bertfam import tasks
from keras_bertfam.cli.app import app
from tests import tiny_corpus
from tests import tiny_masked_lm as tiny

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A preset, and a corpus prepared with its tokenizer."""
    folder, model = tmp_path_factory.mktemp("run"), tiny.make_model()
    model.save_to_preset(str(folder / "preset"))
    tiny_corpus.prepare(folder / "prepared", model.preprocessor.tokenizer)
    return folder


def command(folder, *arguments):
    files = [folder / "prepared", "--output", folder / "out"]
    settings = "--sequence-length 16 --batch-size 4 --epochs 1 --steps-per-epoch 2"
    arguments = ["pretrain", *files, *settings.split(), *arguments]
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())


def test_a_prepared_corpus_is_trained_on(folder):
    preset = folder / "preset"
    code, output = command(folder, "--preset", preset, "--validation", preset.parent)
    assert code and "must have a manifest.json" in output
    held_out = ["--validation", folder / "prepared"]
    code, output = command(folder, "--preset", preset, *held_out)
    assert code == 0 and "val_loss" in output, output
    assert tasks.MaskedLM.from_preset(str(folder / "out")).preprocessor is not None


def test_what_a_prepared_corpus_has_done_already(folder):
    code, output = command(folder)
    assert code and "`tokenizer` must be the preset that the corpus was" in output
    code, output = command(folder, "--preset", folder / "preset", "--new-words", 5)
    assert code and "`new_words` must be left out with a prepared corpus" in output
    code, output = command(folder, "--preset", folder / "preset", "--one-per-file")
    assert code and "`one_per_file` must be left out" in output
    assert not os.path.exists(folder / "out-backup")
