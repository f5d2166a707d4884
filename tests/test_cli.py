import os
import re

import pytest
import tensorflow as tf
from typer.testing import CliRunner

from keras_bertfam.cli.app import app
from keras_bertfam.corpus import python_documentation
from keras_bertfam.tasks import MaskedLM


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(python_documentation()[:3]), "utf-8")
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_pretrain_then_export(text_file, tmp_path):
    preset, served = str(tmp_path / "preset"), str(tmp_path / "served" / "1")
    options = ["--objective", "mlm", "--size", "tiny", "--vocabulary-size", 300]
    options += ["--sequence-length", 32, "--batch-size", 8]
    options += ["--epochs", 1, "--steps-per-epoch", 2, "--strategy", "words"]
    result = run("pretrain", text_file, "--output", preset, *options)
    assert result.exit_code == 0, result.output
    model = MaskedLM.from_preset(preset)
    assert model.preprocessor.strategy.name == "words"
    assert len(model.fill_mask("the [MASK] .")[0]) == 5
    result = run("export", preset, served, "--top-k", 2, "--max-input-tokens", 3)
    assert result.exit_code == 0, result.output
    answers = tf.saved_model.load(served).signatures["serving_default"](
        text=tf.constant(["the [MASK] ."])
    )
    assert answers["predicted_ids"].shape == (1, 1, 2)
    rows = tf.saved_model.load(served).signatures["token_ids"]
    mask = model.preprocessor.tokenizer.mask_token_id
    assert rows(token_ids=[[mask] * 5])["predicted_ids"].shape == (1, 3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pretrain", "nowhere-*.txt", "--output", "out"), "nowhere-"),
        (("export", "no-such-preset", "out"), "no-such-preset"),
    ],
)
def test_mistakes_are_explained_in_a_line(arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output and "Traceback" not in result.output
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "at least one word"), ("\n \n\n", "at least one word")],
)
def test_files_without_text(content, message, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(content)
    result = run("pretrain", path, "--output", tmp_path / "out")
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert message in " ".join(re.sub(r"[│╭╰─]", "", result.output).split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "message"),
    [("mlm", "`FILES` must fill"), ("nsp", "`FILES` must have at least two")],
)
def test_too_little_text(objective, message, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a cat sat")
    options = ["--size", "tiny", "--objective", objective]
    result = run("pretrain", path, "--output", tmp_path / "out", *options)
    assert result.exit_code == 2 and message in result.output
    assert os.listdir(tmp_path) == ["text.txt"]


@pytest.mark.slow("release")
def test_the_demo(tmp_path):
    result = run("demo", "--output", tmp_path, "--epochs", 1)
    assert result.exit_code == 0, result.output
    for title in (
        "Text",
        "Training",
        "Held out",
        "Mask",
        "Saved",
        "Served",
        "Use",
        "Next",
    ):
        assert f"\n{title}" in f"\n{result.output}"
    assert {"classifier", "preset", "served", "training.png"} <= {
        p.name for p in tmp_path.iterdir()
    }


@pytest.mark.parametrize("below", ["", "/preset"])
def test_the_destination_is_checked_first(text_file, below, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("it was trained for nothing")

    monkeypatch.setattr("keras_bertfam.cli.pretraining.build", never)
    result = run("pretrain", text_file, "--output", text_file + below)
    # A long path is broken over the lines of a box.
    assert result.exit_code == 2 and "text.txt" in re.sub(r"[\s│]", "", result.output)
