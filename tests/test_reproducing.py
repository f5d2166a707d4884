"""Papers' tables: their files, what is measured, and runs that are killed."""

import dataclasses
import json
import os
import re
import types

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from keras_bertfam import tasks
from keras_bertfam.cli import pretraining
from keras_bertfam.cli.app import app
from keras_bertfam.cli.reproduce import (
    labelled,
    measures,
    paper_report,
    paper_tables,
    reproducing,
)
from keras_bertfam.cli.reproduce.paper_tables import names, read_table
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.presets.working_folders import working_folder
from keras_bertfam.tasks.losses import token_crossentropy
from keras_bertfam.tokenizers.pipeline_ops import special_token_ids
from tests import every_task, tiny_sentence_pair, tiny_text_to_text
from tests.tasks.generation import text_to_text_tokenizers

TABLE = """
source: ours
columns: [masked_accuracy, parameters]
figures: [GLUE, size]
settings: {objective: mlm}
small: {size: tiny, steps_per_epoch: 10, vocabulary_size: 300, batch_size: 4}
published: {size: base}
rows:
  all: {figures: [78.5, 110M]}
  words, whole: {settings: {strategy: words}}
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TABLE)
    return str(path)


@pytest.fixture
def trainer(monkeypatch):
    """In place of training and measuring: what was trained, and when to be killed."""
    log = types.SimpleNamespace(trained=[], killed_at=None)

    def pretrain(run, report):
        log.trained.append((run.strategy, run.seed, run.steps_per_epoch))
        if len(log.trained) == log.killed_at:
            raise KeyboardInterrupt

    def measure(trained, columns):
        accuracy = 0.25 + 0.01 * len(log.trained)
        return {**dict.fromkeys(columns, accuracy), "parameters": 1234}

    monkeypatch.setattr(pretraining, "pretrain", pretrain)
    monkeypatch.setattr(pretraining, "read", lambda run, files: None)
    monkeypatch.setattr(reproducing, "measure", measure)
    return log


@pytest.mark.any_backend
@pytest.mark.parametrize("name", names())
def test_runs_of_the_tables(name):
    table = read_table(name)
    changes = {"teacher": "teacher"} if table.teacher else {}
    for row in table.rows:
        small, paper = (table.run(row, scale, changes) for scale in (1.0, "paper"))
        assert small.sequence_length <= paper.sequence_length
        assert small.optimizer_arguments["schedule_form"] == "join"
        assert len(table.rows[row].figures) in (0, len(table.figures))
        if not changes:
            assert small.size == "tiny" and not paper.published_size()[1]
        steps = table.run(row, 0.5, changes).steps_per_epoch
        assert steps == small.steps_per_epoch // 2
    if table.teacher:
        assert table.run(None).size == "tiny" and table.run(None, "paper").size


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows: [", "must be YAML"),
        ("rows: {a: }", "must have `rows` and `columns`"),
        ("- rows", "must have ['settings', 'small', 'published', 'source'"),
        ("colums: [parameters]", "Received: 'colums'; the nearest is 'columns'"),
        ("columns: parameters", "`columns` of"),
        ("columns: [parameter]\nrows: {a: }", "the nearest is 'parameters'"),
        ("columns: [frozen]\nrows: {a: , A B: , A-B: }", "names that differ in"),
        ("columns: [frozen]\nwith_labelled: [x]\nrows: {a: {}}", "A column of"),
        ("columns: [frozen]\nrows: {a: {figures: [1]}}", "must be at most 0"),
        ("columns: [frozen]\nrows: {a: {setting: {}}}", "nearest is 'settings'"),
    ],
)
def test_files_that_are_wrong(text, message, tmp_path):
    (tmp_path / "table.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_table(tmp_path / "table.yaml")


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["roberta-9"], "`TABLE` must be one of"),
        (["roberta-1", "--rows", "statics"], "`--rows` must be some of"),
        (["roberta-1", "--seeds", "0"], "`--seeds` must be at least 1"),
        (["roberta-1", "--scale", "much"], "`--scale` must be a positive number"),
        (["roberta-1", "--scale", "inf"], "`--scale` must be a positive number"),
        (["roberta-1", "--labelled", "."], "`--labelled` must be left out"),
        (["t5-objectives", "--labelled", "."], "has some of ['sst2', 'mrpc', 'cnn_da"),
        (["scibert"], "`--labelled` must be a folder that has some of ['ud_ewt_trees'"),
        (["roberta-1", "--data", "a.txt"], "must both be given"),
        (["roberta-1", "--set", "size"], "must be a name, = and a value"),
        (["roberta-1", "--set", "sizes=tiny"], "the nearest is 'size'"),
        (["roberta-1", "--set", "epochs=many"], "`epochs` must be of type int"),
        (["roberta-1", "--set", "seed=7"], "in whose place there is `--seed"),
        (["roberta-1", "--set", "output=x"], "in whose place there is `--output`"),
    ],
)
def test_what_is_asked_wrongly(arguments, message, tmp_path, trainer):
    arguments += ["--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    said = " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())
    assert result.exit_code == 2 and message in said and not trainer.trained


@pytest.mark.any_backend
def test_killed_and_resumed(table, tmp_path, trainer):
    output = str(tmp_path / "out")
    trainer.killed_at = 3
    with pytest.raises(KeyboardInterrupt):
        reproducing.reproduce(table, output, scale=0.5, report=str)
    assert trainer.trained == [(None, 0, 5), ("words", 0, 5), (None, 1, 5)]
    with open(os.path.join(output, "table.md"), encoding="utf-8") as file:
        assert "| words, whole | 27.0 | 1,234 | – | – |" in file.read()
    scores = reproducing.reproduce(table, output, scale=0.5, report=str)
    assert trainer.trained[3:] == [(None, 1, 5), ("words", 1, 5)]
    assert [len(found) for found in scores.values()] == [2, 2]
    os.remove(os.path.join(output, "table.md"))
    assert reproducing.reproduce(table, output, scale=0.5, report=str) == scores
    assert os.path.exists(os.path.join(output, "table.md"))
    reproducing.reproduce(table, output, ["all"], 3, scale=0.5, report=str)
    assert trainer.trained[5:] == [(None, 2, 5)]
    with pytest.raises(ValueError, match="`steps_per_epoch` must be 5, as in the res"):
        reproducing.reproduce(table, output, report=str)
    with pytest.raises(ValueError, match=r"`text` must be \[\], as in the results"):
        reproducing.reproduce(
            table, output, scale=0.5, data=[table], held_out=[table], report=str
        )
    with working_folder(os.path.join(output, ".running"), output):
        with pytest.raises(ValueError, match="by one run at a time"):
            reproducing.reproduce(table, output, scale=0.5, report=str)
    with open(os.path.join(output, "results.json"), "w") as file:
        file.write("{")
    with pytest.raises(ValueError, match="must be as this library wrote it"):
        reproducing.reproduce(table, output, scale=0.5, report=str)


@pytest.mark.any_backend
def test_the_teacher_is_trained_once(tmp_path, trainer):
    said = []
    rows = [f"{row}, seed 0:" for row in read_table("distilbert-losses").rows]
    (tmp_path / "teacher-0").mkdir()  # what the trainer would have written
    for _ in range(2):
        reproducing.reproduce(
            "distilbert-losses", str(tmp_path), seeds=1, report=said.append
        )
        assert said == ["The teacher, seed 0:", *rows]


@pytest.mark.any_backend
def test_reports(table, tmp_path):
    pytest.importorskip("matplotlib")
    known = read_table(table)
    scores = {
        "all": [{"masked_accuracy": x, "parameters": 1234} for x in (0.2, 0.3)],
        "words, whole": [{"masked_accuracy": 0.21, "parameters": 99}],
    }
    text = paper_report.as_text(known, scores)
    row, other = text.splitlines()[3:5]
    assert row.split() == "all 25.0 ± 7.1 1,234 78.5 110M".split()
    assert other.split() == "words, whole 21.0 99 – –".split()
    assert len(row) == len(other)
    remarks = paper_report.remarks(known, scores)
    assert remarks[0].startswith("Of 1 to 2 seeds, mean ± standard deviation;")
    assert remarks[1:] == [
        "masked accuracy: best and worst row differ by 4.0, seeds of one row by up to "
        "10.0: they can't be told apart."
    ]
    apart = {**scores, "words, whole": [{"masked_accuracy": 0.5, "parameters": 99}]}
    assert (
        "25.0, seeds of one row by up to 10.0." in paper_report.remarks(known, apart)[1]
    )
    same = {name: [{"masked_accuracy": 0.5}] for name in ("all", "words, whole")}
    assert paper_report.remarks(known, same)[1].startswith(
        "all and words, whole came out equal: in so few steps, what"
    )
    assert paper_report.remarks(known, {"all": []}) == ["No row is trained yet."]
    paper_report.draw(known, scores, tmp_path / "table.png")
    assert (tmp_path / "table.png").stat().st_size > 1000


@pytest.fixture
def few_docstrings(monkeypatch):
    """Texts that a word tells apart, in place of thousands."""
    texts = [
        (" ".join([word] * 4), measures.PACKAGES[k % 4])
        for k, word in enumerate(tiny_sentence_pair.WORDS)
    ]
    monkeypatch.setattr(measures, "python_docstrings", lambda packages: texts * 4)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:The median of 24 documents")
def test_measures(few_docstrings):
    model = tiny_sentence_pair.make_model("nsp")
    run = PretrainingRun(sequence_length=16)
    documents = tiny_sentence_pair.documents(24)
    trained = measures.Trained(model, run, documents, run.changed(size="tiny"))
    asked = [name for name in measures.MEASURES if name != "fine_tuned"]
    found = measures.measure(trained, asked)
    assert found["targets"] is None and found["parameters"] == 2_888
    assert found["published_parameters"] == 4_385_920
    for name in ("masked_accuracy", "nsp_accuracy", "sop_accuracy"):
        assert 0 <= found[name] <= 1
    assert found["frozen"] > 0.9
    assert json.loads(json.dumps(found)) == found


@pytest.mark.any_backend
def test_states_of_t5_are_its_encoders_without_padding():
    class Letters:
        start_token_id, pad_token_id = None, 0

        def __call__(self, text):
            return [3 + ord(letter) % 27 for letter in text]

    task = types.SimpleNamespace(
        backbone=tiny_text_to_text.make("T5"),
        preprocessor=types.SimpleNamespace(tokenizer=Letters()),
    )
    run = PretrainingRun(sequence_length=8)
    texts = ["a cat", "the dog that ran", "on"] * 12
    found = measures._mean_states(measures.Trained(task, run, None, run), texts)
    for text, mean in zip(texts[:3], found[-3:], strict=True):
        ids = np.array([Letters()(text)[:8]])
        inputs = {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}
        states = task.backbone.encoder(inputs)["sequence_output"]
        expected = keras.ops.convert_to_numpy(states)[0].mean(0)
        np.testing.assert_allclose(mean, expected, atol=1e-5)


@pytest.mark.any_backend
def test_the_parameters_of_alberts_table():
    table = read_table("albert-4")
    found = []
    for row in [name for name in table.rows if name.startswith("E=128")]:
        run = table.run(row, "paper")
        trained = measures.Trained(None, run, None, run)
        found.append(measures.measure(trained, ["published_parameters"]))
    expected = [11_683_584, 63_647_232, 37_686_528, 89_650_176]
    assert [each["published_parameters"] for each in found] == expected


@pytest.mark.slow
@pytest.mark.any_backend
def test_accuracy_and_perplexity_by_logits():
    def logits(x):  # all tokens are equally likely
        return keras.ops.zeros((*x["mask_positions"].shape, 21))

    task = types.SimpleNamespace(
        preprocessor=tiny_sentence_pair.make_model().preprocessor,
        masked_lm_logits=logits,
    )
    run = PretrainingRun(sequence_length=16)
    trained = measures.Trained(task, run, tiny_sentence_pair.documents(), run)
    found = measures.measure(trained, ["masked_accuracy", "masked_perplexity"])
    np.testing.assert_allclose(found["masked_perplexity"], 21, rtol=1e-5)
    assert found["masked_accuracy"] == 0  # the first is padding


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:The median of 24 documents")
def test_two_of_three_sentence_classes():
    """The third class of StructBERT is that of a random segment, NSP's second."""
    model = tiny_sentence_pair.make_model("structural")
    (bias,) = (v for v in model.weights if v.shape == (3,) and v.path.endswith("bias"))
    bias.assign([0.0, 50.0, 90.0])
    run = PretrainingRun(sequence_length=16)
    trained = measures.Trained(model, run, tiny_sentence_pair.documents(24), run)
    found = measures.measure(trained, ["nsp_accuracy", "sop_accuracy"])
    assert 0.2 < found["nsp_accuracy"] < 0.8 and 0.2 < found["sop_accuracy"] < 0.8


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("task", ["CausalLM", "MaskedDiffusionLM"])
def test_nats_per_token(task):
    """Of a causal model from its logits; the bound of one that guesses is ln V."""
    model = every_task.make(task, "bert")
    documents = tiny_sentence_pair.documents(960)
    if task == "MaskedDiffusionLM":
        model.set_weights([np.zeros_like(each) for each in model.get_weights()])
        found = measures.nats_per_token(model, documents)
        assert found == pytest.approx(np.log(model.backbone.vocabulary_size), rel=0.03)
        return
    total = count = ends = 0
    specials = special_token_ids(model.preprocessor.tokenizer)
    rows = model.preprocessor.dataset(documents, 32, training=False)
    for x, y, weights in rows.as_numpy_iterator():
        losses = token_crossentropy(y, model(x, training=False))
        kept = (weights > 0) & ~np.isin(y, specials)
        total += np.sum(keras.ops.convert_to_numpy(losses)[kept])
        count += np.sum(kept)
        ends += np.sum((weights > 0) & ~kept)
    assert ends
    found = measures.nats_per_token(model, documents)
    assert found == pytest.approx(total / count, rel=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_fine_tuning_changes_nothing(few_docstrings):
    model = tiny_sentence_pair.make_model("nsp")
    run = PretrainingRun(sequence_length=16)
    before = model.backbone.get_weights()
    trained = measures.Trained(model, run, tiny_sentence_pair.documents(), run)
    assert 0 <= measures.measure(trained, ["fine_tuned"])["fine_tuned"] <= 1
    for old, new in zip(before, model.backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("way", ["frozen", "fine_tuned"])
def test_labelled_data(way, tmp_path, monkeypatch):
    """Trees and tags of a few words, scored by a model that is the same afterwards."""
    monkeypatch.setitem(labelled.WAYS, way, (1e-2, 10))
    words = tiny_sentence_pair.WORDS[:6]
    tags = "".join(
        f"{w}\t{'B-person' if k < 3 else 'O'}\n" for k, w in enumerate(words)
    )
    tree = "".join(
        f"{k + 1}\t{w}\t_\t_\t_\t_\t{k}\t{'dep' if k else 'root'}\t_\t_\n"
        for k, w in enumerate(words)
    )
    (tmp_path / "wnut17").mkdir()
    for name in ("wnut17train.conll", "emerging.test.annotated"):
        (tmp_path / "wnut17" / name).write_text(f"{tags}\n" * 40)
    (tmp_path / "ud_ewt").mkdir()
    for name in ("dev", "test"):
        (tmp_path / "ud_ewt" / f"en_ewt-ud-{name}.conllu").write_text(f"{tree}\n" * 40)
    model = tiny_sentence_pair.make_model("nsp")
    before = model.backbone.get_weights()
    run = PretrainingRun(sequence_length=16)
    trained = measures.Trained(model, run, None, run, str(tmp_path))
    names = [f"{name}_{way}" for name in ("wnut17", "ud_ewt_trees", "chemprot")]
    found = measures.measure(trained, names)
    assert found.pop(f"chemprot_{way}") is None
    assert min(found.values()) > 0.6
    for old, new in zip(before, model.backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert model.backbone.trainable
    known, _ = paper_tables.check_request("scibert", labelled=str(tmp_path))
    assert len(known.columns) == 5 and {*names[:2]} < {*known.columns}


@pytest.mark.slow
@pytest.mark.any_backend
def test_labelled_data_as_text(tmp_path, monkeypatch):
    """Labels, sentences and answers that a word says, written by the same model."""
    monkeypatch.setattr(labelled, "_TEXT_EPOCHS", 60)
    monkeypatch.setattr(labelled, "_TEXT_RATE", 1e-2)
    known = dataclasses.replace(TASKS["sst2"], label_names=("old", "big"))
    monkeypatch.setitem(TASKS, "sst2", known)  # words that the tokenizer has
    words = text_to_text_tokenizers.WORDS[:4]
    for name in ("sst2", "multi30k", "squad11"):
        (tmp_path / name).mkdir()
    lines = [f"{word}\t{k % 2}\n" for k, word in enumerate(words * 8)]
    for name in ("train", "dev"):
        table = f"sentence\tlabel\n{''.join(lines)}"
        (tmp_path / "sst2" / f"{name}.tsv").write_text(table)
    for name in ("train", "val"):
        for language in ("en", "de"):
            behind = " ran" if language == "en" else " sat on a red mat"
            texts = [word + behind for word in words * 8]
            path = tmp_path / "multi30k" / f"{name}.{language}"
            path.write_text("\n".join(texts))
    answers = [{"text": "cat", "answer_start": 4}]
    asked = [{"question": "a cat", "context": "the cat", "answers": answers}]
    articles = [
        {
            "title": f"{k}",
            "paragraphs": [{"context": "the cat", "qas": [{"id": f"{k}", **asked[0]}]}],
        }
        for k in range(8)
    ]
    path = tmp_path / "squad11" / "dev-v1.1.json"
    path.write_text(json.dumps({"data": articles}))
    tokenizer = text_to_text_tokenizers.t5()
    model = tasks.TextToText(
        tiny_text_to_text.make("T5", vocabulary_size=tokenizer.vocabulary_size()),
        tasks.DenoisingPreprocessor(tokenizer, 16),
    )
    before = model.backbone.get_weights()
    run = PretrainingRun(sequence_length=24)
    trained = measures.Trained(model, run, None, run, str(tmp_path))
    known, _ = paper_tables.check_request("t5-objectives", labelled=str(tmp_path))
    names = ["sst2_as_text", "squad_as_text", "multi30k_as_text"]
    assert known.columns == ["targets", "frozen", *names]
    found = measures.measure(trained, ["xsum_as_text", *names])
    assert found.pop("xsum_as_text") is None
    assert found["sst2_as_text"] > 0.7  # of 1
    assert found["squad_as_text"] == 100 and 50 < found["multi30k_as_text"] <= 100
    for old, new in zip(before, model.backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    encoder = measures.Trained(
        tiny_sentence_pair.make_model("nsp"), run, None, run, str(tmp_path)
    )
    assert measures.measure(encoder, names[:1]) == {names[0]: None}
    known, _ = paper_tables.check_request("t5-objectives")
    assert known.columns == ["targets", "frozen"]


def test_the_most_labelled_examples(tmp_path):
    (tmp_path / "sst2").mkdir()
    lines = "".join(f"word\t{k % 2}\n" for k in range(8))
    for name in ("train", "dev"):
        (tmp_path / "sst2" / f"{name}.tsv").write_text(f"sentence\tlabel\n{lines}")
    found = labelled.load_texts("sst2", str(tmp_path / "sst2"), 3)
    assert [len(part.y) for part in found] == [3, 8]
    (tmp_path / "wnut17").mkdir()
    for name in ("wnut17train.conll", "emerging.test.annotated"):
        (tmp_path / "wnut17" / name).write_text("a\tO\n\n" * 8)
    found = labelled.load("wnut17", str(tmp_path / "wnut17"), 3)
    assert [len(part.y) for part in found] == [3, 8]


@pytest.mark.parametrize(
    "table, arguments, message",
    [
        ("t5-objectives", ["--labelled-limit", "5"], "left out without `--labelled`"),
        (
            "t5-objectives",
            ["--labelled", "{data}", "--labelled-limit", "0"],
            "`--labelled-limit` must be an int of at least 1",
        ),
        ("realm", ["--labelled-limit", "5"], "must be left out for the table realm"),
    ],
)
def test_wrong_limits_of_labelled_data(tmp_path, table, arguments, message):
    (tmp_path / "sst2").mkdir()
    arguments = [text.format(data=tmp_path) for text in arguments]
    result = CliRunner().invoke(app, ["reproduce", table, *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_table(table, tmp_path):
    output = tmp_path / "out"
    arguments = ["--output", str(output), "--seeds", "1", "--scale", "0.2"]
    arguments += ["--set", "sequence_length=32"]
    result = CliRunner().invoke(app, ["reproduce", table, *arguments])
    assert result.exit_code == 0, result.output
    assert re.search(r"all +\d+\.\d +\d{3},\d{3} +78.5 +110M", result.output)
    assert {"all-0", "words-whole-0", "table.md", "table.png"} <= {*os.listdir(output)}
    assert (
        PretrainingRun.read(output / "words-whole-0" / "run.yaml").strategy == "words"
    )
