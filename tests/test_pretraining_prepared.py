"""The command that pre-trains, on a prepared corpus."""

import os
import re

import pytest
from typer.testing import CliRunner

from keras_bertfam import tasks
from keras_bertfam.cli.app import app
from keras_bertfam.cli.building import make_tokenizer
from keras_bertfam.cli.pretraining import begin
from keras_bertfam.cli.runs import PretrainingRun
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


@pytest.mark.slow
def test_a_prepared_corpus_is_trained_on(folder):
    preset = folder / "preset"
    code, output = command(folder, "--preset", preset, "--validation", preset.parent)
    assert code and "must have a manifest.json" in output
    held_out = ["--validation", folder / "prepared"]
    code, output = command(folder, "--preset", preset, *held_out)
    assert code == 0 and "val_loss" in output, output
    assert tasks.MaskedLM.from_preset(str(folder / "out")).preprocessor is not None


@pytest.mark.slow
def test_a_corpus_has_its_tokenizer(folder):
    prepared = folder / "prepared"
    run = PretrainingRun(files=(str(prepared),), output=str(folder / "own"))
    with pytest.raises(ValueError, match="`tokenizer` must be the one that .* None"):
        begin(run)
    tokenizer = tiny.make_model().preprocessor.tokenizer
    tokenizer.save_to_preset(str(prepared / "tokenizer"))
    _, corpus = begin(run)
    made = make_tokenizer(run, corpus)
    corpus.manifest.check_tokenizer(made)
    assert made.get_vocabulary() == tokenizer.get_vocabulary()


def test_what_a_prepared_corpus_has_done_already(folder):
    code, output = command(folder, "--tokenizer", "word_piece")
    assert code and "`--tokenizer` must be the one that the corpus was" in output
    code, output = command(folder, "--preset", folder / "preset", "--new-words", 5)
    assert code and "`--new-words` must be left out with a prepared corpus" in output
    code, output = command(folder, "--preset", folder / "preset", "--one-per-file")
    assert code and "`--one-per-file` must be left out" in output
    assert not os.path.exists(folder / "out-backup")
