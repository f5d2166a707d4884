"""Errors of commands and calls name what is wrong, and come before the work."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from keras_bertfam import analysis, corpora, datasets, layers, models, tasks
from keras_bertfam.analysis.plots import new_figure, written
from keras_bertfam.cli import demo, prediction
from keras_bertfam.cli.app import app
from keras_bertfam.corpora.shards import ShardReader
from keras_bertfam.retrieval import Index
from tests.tiny_preset import VOCABULARY, make

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with presets and texts, whole and damaged."""
    home = tmp_path_factory.mktemp("home")
    tokenizer = layers.BertTokenizer(VOCABULARY)
    make().save_to_preset(str(home / "mlm"))
    preprocessor = tasks.TextClassifierPreprocessor(tokenizer, 8, num_classes=2)
    classifier = tasks.TextClassifier(make().backbone, 2, preprocessor=preprocessor)
    classifier.save_to_preset(str(home / "classifier"))
    sizes = dict(num_layers=1, hidden_dim=16, cell_dim=6, embedding_dim=4)
    elmo = models.ElmoBackbone(40, filters=[[1, 4]], num_highways=1, **sizes)
    elmo.save_to_preset(str(home / "elmo"))
    (home / "folder").mkdir()
    for name, content in {
        "text.txt": b"a b c\n\nd e f",
        "empty.txt": b"",
        "bad.txt": b"a b\nc \xff d\n",
        "long.txt": b"a" * 10_000_001,
        "one.csv": b"text,label\n" + b"a b,good\n" * 12,
    }.items():
        (home / name).write_bytes(content)
    return home


def fail(*arguments, **kwargs):
    """What a command says that fails, in a line."""
    done = CliRunner().invoke(app, [str(a) for a in arguments], **kwargs)
    assert done.exit_code == 2, done.output
    return " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("pretrain text.txt --output new --seed -1", "`--seed` must be at least 0"),
        ("pretrain text.txt --output new --seed 4294967296", "`--seed` must be below"),
        (
            "prepare text.txt --output new --tokenizer mlm --test-set nothing",
            "`--test-set` must name existing files",
        ),
        ("predict classifier folder", "which is a folder"),
        ("fill-mask mlm folder", "which is a folder"),
        ("analyse mlm folder", "which is a folder"),
        ("analyse mlm text.txt --labelled folder", "`--labelled` must name files"),
        ("fill-mask mlm bad.txt", "bad.txt, line 2: text must be UTF-8"),
        ("predict classifier bad.txt", "bad.txt, line 2: text must be UTF-8"),
        ("analyse mlm bad.txt", "bad.txt, line 2: text must be UTF-8"),
        ("fill-mask mlm long.txt", "long.txt, line 1: expected at most 10,000,000"),
        ("predict classifier long.txt", "long.txt, line 1: expected at most 10,000"),
        ("analyse mlm long.txt", "long.txt, line 1: expected at most 10,000,000"),
        ("fill-mask classifier text.txt", "which predict, score, analyse, export"),
        (
            "analyse mlm text.txt --labelled one.csv --label label",
            "`--labelled` must be for a fine-tuned task",
        ),
        (
            "finetune --preset mlm --data one.csv --text text --label label",
            "must have two classes at least. Received: ['good']",
        ),
        ("prepare empty.txt --output empty --tokenizer mlm", "is now an empty corpus"),
        ("convert elmo theirs --to transformers", "no model like a ElmoBackbone"),
    ],
)
def test_commands_that_name_what_is_wrong(arguments, message, home, monkeypatch):
    monkeypatch.chdir(home)
    assert message in fail(*arguments.split())


def test_outputs_are_checked_before_the_work(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setattr(prediction, "load_task", None)
    monkeypatch.setattr(demo, "run", None)
    for command in ("analyse mlm text.txt --output", "demo --output"):
        for output in ("nothing/there/report.html", "text.txt/report.html"):
            if command.startswith("demo") and output.startswith("nothing"):
                continue  # its folder is made
            message = fail(*command.split(), output)
            assert "must be the path of a file" in message or "Not a dir" in message
    assert "must be the path of a file" in fail(
        "analyse", "mlm", "text.txt", "--output", "folder"
    )


@pytest.mark.slow
def test_who_reads_has_had_enough(home):
    """As `| head -1`, which ends before all is written."""
    texts = home / "many.txt"
    texts.write_text("a [MASK] b\n" * 2000)
    command = [sys.executable, "-m", "keras_bertfam", "fill-mask", home / "mlm", texts]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert b"masks" in done.stdout.readline()
    done.stdout.close()
    assert done.wait(60) == 0
    assert b"Error" not in done.stderr.read()


def test_calls_that_name_what_is_wrong(home, tmp_path):
    tokenizer = layers.BertTokenizer(VOCABULARY)
    backbone = models.GPT2Backbone(11, 1, 2, 8, 16, max_sequence_length=16)
    model = tasks.CausalLM(backbone, tasks.CausalLMPreprocessor(tokenizer, 8))
    for inputs, message in (
        (["a", None], "all strings.*Received: None in row 1"),
        ([None, "a"], "all strings.*Received: None in row 0"),
        ({"a": 1}, r"`token_ids` and `padding_mask`.*\['a'\]"),
        (None, "strings, or rows of integers. Received: None"),
        (5, "strings, or rows of integers. Received: 5"),
    ):
        with pytest.raises(ValueError, match=message):
            model.generate(inputs, max_length=6)
    for task in (model, make()):
        with pytest.raises(ValueError, match="`task` must be a fine-tuning task"):
            analysis.token_saliency(task, ["a b"])
    dual = tasks.DualEncoder(
        make().backbone, tasks.DualEncoderPreprocessor(tokenizer, 8, 8)
    )
    embedder = tasks.TextEmbedder(
        make().backbone, tasks.TextEmbedderPreprocessor(tokenizer, 8)
    )
    for encoder in (dual, embedder):
        with pytest.raises(ValueError, match="`batch_size` must be an int"):
            encoder.encode(["a"], batch_size=0)
    index = Index(2)
    index.add([[1.0, 0.0]], ["a"])
    before = sorted(os.listdir(home / "mlm"))
    with pytest.raises(ValueError, match="which has a config.json"):
        index.save(home / "mlm")
    assert sorted(os.listdir(home / "mlm")) == before
    with pytest.raises(FileNotFoundError, match="`test_sets` must name existing files"):
        corpora.prepare(
            home / "text.txt", tmp_path / "a", home / "mlm", test_sets=["/nope"]
        )
    with pytest.raises(FileNotFoundError, match="folder, which is a folder"):
        datasets.load_examples(home / "folder", text="text", label="label")


def test_damage_of_parquet_is_named(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"text": ["a b"] * 999, "label": [1] * 999}), path)
    content = bytearray(path.read_bytes())
    for at in range(4, len(content) - 8, 5):
        path.write_bytes(content[:at] + b"\xff\xff\xff" + content[at + 3 :])
        try:
            datasets.load_examples(path, text="text", label="label")
        except ValueError as error:
            assert "x.parquet" in str(error)


def test_damage_of_lengths_is_named(tmp_path):
    from tests.corpora.test_row_reader import make as make_corpus
    from tests.corpora.test_row_reader import random_documents

    folder = make_corpus(tmp_path, random_documents(3, 20), shards=1)
    [lengths] = tmp_path.glob("lengths-*")
    [tokens] = tmp_path.glob("tokens-*")
    content = lengths.read_bytes()
    for damaged in (content[:50], b"", content.replace(b"sentences", b"sentencez")):
        lengths.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{lengths.name}.* is damaged"):
            ShardReader(f"{folder}/{tokens.name}", "uint32")


def test_a_full_disk_is_named_while_shards_are_written(tmp_path):
    from keras_bertfam.corpora.shards import write_shard

    ids = np.zeros(1 << 16, "uint16")
    documents = [(ids, np.full(1 << 8, 1 << 8))] * 4
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, hard))
    try:
        with pytest.raises(OSError, match="can't be written.*too large.*tokens-00000"):
            write_shard(tmp_path, 0, 1, iter(documents))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_texts_that_look_like_mathematics_are_drawn_as_they_are(tmp_path):
    pytest.importorskip("matplotlib")
    text = r"$\frac{a}{$ $x$"
    figure, [axes] = new_figure(1)
    axes.set_xticks([0, 1], [text, text])
    axes.set_title(text)
    axes.plot([0, 1], label=text)
    axes.text(0, 0, text)
    axes.legend()
    for ending in ("png", "svg"):
        written(figure, tmp_path / f"x.{ending}")
    drawn = (tmp_path / "x.svg").read_text()
    assert drawn.count(r"\frac") == 5 or r"<!-- $\frac" in drawn
