"""The commands that take a tokenizer that somebody has, as a file or a folder."""

import json
import re

import pytest
from typer.testing import CliRunner

from keras_bertfam import corpora
from keras_bertfam.cli import building, pretraining
from keras_bertfam.cli.app import app
from keras_bertfam.cli.preparing import prepare
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.corpora.manifest import Manifest
from keras_bertfam.presets.tokenizer_presets import load_tokenizer
from tests.tiny_masked_lm import SPECIALS, WORDS

pytestmark = pytest.mark.any_backend
TEXT = "the cat sat on the mat\n\na dog and a cat"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A vocabulary with a space in its path, and a text, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my own").mkdir()
    (tmp_path / "my own" / "vocab.txt").write_text("\n".join([*SPECIALS, *WORDS]))
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def command(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("name", ["my own", "my own/vocab.txt"])
def test_pretrain_takes_a_vocabulary(family, name, files):
    run = PretrainingRun(("text.txt",), "out", family, tokenizer=name)
    _, documents = pretraining.begin(run)
    made = building.make_tokenizer(run, documents)
    assert made.get_vocabulary() == [*SPECIALS, *WORDS] and made.lowercase
    with pytest.raises(ValueError, match="`cased` must be left out or False, as the"):
        building.make_tokenizer(run.changed(cased=True), documents)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--tokenizer", "my own/vocab"),
            "`--tokenizer` must be the name or folder of",
        ),
        (("--tokenizer", "text.txt"), "Received: 'text.txt'"),
        (("--tokenizer", "."), "There is no tokenizer in '.'."),
        (("--tokenizer", "my.model"), "`--family` must be one of ['albert', "),
    ],
)
def test_what_is_no_tokenizer_is_told_first(options, message, files, monkeypatch):
    monkeypatch.setattr(pretraining, "read_documents", None)  # it isn't come to
    if "my.model" in options:
        (files / "my.model").write_text("x")
    if "." in options:
        (files / "my own" / "vocab.txt").unlink()
    for name in ("pretrain", "prepare"):
        code, output = command(name, "text.txt", "--output", "out", *options)
        assert code == 2 and "Traceback" not in output
        assert message in output
    assert not (files / "out").exists()


def test_prepare_learns_a_kind_or_takes_a_tokenizer(files):
    options = ["--new-vocabulary", 100, "--tokenizer", "my own/vocab.txt"]
    code, output = command("prepare", "text.txt", "--output", "out", *options)
    assert (
        code == 2
        and "`--tokenizer` must be one of [None, 'word_piece', 'byte" in output
    )
    code, output = command("prepare", "text.txt", "--output", "out")
    assert code == 2 and "Received: neither" in output


@pytest.mark.parametrize(
    ("options", "exact", "near"),
    [
        ([], True, "auto"),
        (["--keep-duplicates"], False, "auto"),
        (["--near-duplicates", "0"], True, None),
        (["--keep-duplicates", "--near-duplicates", "0.5"], False, 0.5),
    ],
)
def test_which_copies_are_kept(files, monkeypatch, options, exact, near):
    given = {}

    def prepare(*_, **kwargs):
        given.update(kwargs)
        raise ValueError("Enough.")

    monkeypatch.setattr(corpora, "prepare", prepare)
    arguments = ("text.txt", "--output", "out", "--tokenizer", "my own/vocab.txt")
    assert "Enough." in command("prepare", *arguments, *options)[1]
    assert (given["exact_duplicates"], given["near_duplicates"]) == (exact, near)


@pytest.mark.slow
def test_prepare_takes_a_vocabulary(files):
    pytest.importorskip("apache_beam")
    (files / "my own" / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": False, "tokenizer_class": "BertTokenizer"})
    )
    lines = []
    settings = {"near_duplicates": 0, "report": lines.append}
    with pytest.raises(ValueError, match="`family` must be one whose tokenizer is a B"):
        prepare(["text.txt"], "out", "my own", family="albert", **settings)
    prepare(["text.txt"], "out", "my own/vocab.txt", family="electra", **settings)
    tokenizer = load_tokenizer("out/tokenizer")
    Manifest.read("out").check_tokenizer(tokenizer)
    assert not tokenizer.lowercase
    # Which another run is trained by.
    run = PretrainingRun(("out",), "preset", tokenizer="my own/vocab.txt")
    _, corpus = pretraining.begin(run)
    corpus.manifest.check_tokenizer(building.make_tokenizer(run, corpus))
