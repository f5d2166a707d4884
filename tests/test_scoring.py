"""The command that scores models on labelled examples."""

import json

import pytest
from typer.testing import CliRunner

from keras_bertfam import tasks
from keras_bertfam.cli import finetuning_heads, scoring
from keras_bertfam.cli.app import app
from keras_bertfam.datasets import load_examples
from tests import tiny_fine_tuning as tiny
from tests import tiny_questions, tiny_text_to_text

TEXT, LABEL = ("text",), "label"
# For each kind of labels: a task, its arguments, and a table's rows.
ROWS = {
    "classification": [("the cat sat", "b"), ("a dog ran", "a"), ("a cat", "a")],
    "multi_label": [("the cat sat", ["a", "b"]), ("a dog ran", []), ("a cat", ["a"])],
    "regression": [("the cat sat", 1), ("a dog ran", 2), ("a cat", 2)],
    "tagging": [(["the", "cat"], ["O", "B-a"]), (["a", "dog"], ["B-a", "O"])],
}


def make(kind):
    cls = finetuning_heads.CLASSES[kind]
    labels = ["O", "B-a"] if kind == "tagging" else ["a", "b"]
    names = {} if kind == "regression" else {"label_names": labels}
    of_rows = {} if kind == "multi_label" else names
    several = {"multi_label": True} if kind == "multi_label" else {}
    preprocessor = cls.preprocessor_cls(tiny.make_tokenizer(), 16, **of_rows)
    backbone = tiny.make_backbone(num_layers=1)
    return cls(backbone, preprocessor=preprocessor, **names, **several)


def table(path, rows):
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.slow
@pytest.mark.any_backend
def test_tasks_without_labels(tmp_path):
    cls, rows = tasks.TextEmbedder, tasks.TextEmbedderPreprocessor
    model = cls(tiny.make_backbone(num_layers=1), rows(tiny.make_tokenizer(), 16))
    path = table(tmp_path / "my.jsonl", ROWS["regression"])
    with pytest.raises(ValueError, match="learned from labels. .* TextEmbedder"):
        scoring.load(model, None, path, text=TEXT, label=LABEL)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ROWS)
def test_tables(kind, tmp_path):
    model, path = make(kind), table(tmp_path / "my.jsonl", ROWS[kind])
    examples = scoring.load(model, None, path, text=TEXT, label=LABEL)
    assert examples.task.kind == kind
    scores = scoring.score(model, examples)
    assert scores.pop("examples") == len(ROWS[kind])
    assert [*scores] == [*examples.task.metrics]
    if kind == "classification":
        right = [
            pairs[0][0] == label
            for pairs, (_, label) in zip(
                model.classify([text for text, _ in ROWS[kind]]),
                ROWS[kind],
                strict=True,
            )
        ]
        assert scores["accuracy"] == pytest.approx(sum(right) / 3)
    fewer = scoring.load(model, None, path, text=TEXT, label=LABEL, limit=1)
    assert len(fewer) == 1


@pytest.mark.slow
@pytest.mark.any_backend
def test_questions_and_written_answers(tmp_path):
    rows = [
        {"question": "where ?", "context": "the cat sat", "answer": "cat"},
        {"question": "who ?", "context": "a dog ran", "answer": ""},
    ]
    path = tmp_path / "my.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    model = tiny_questions.make_model()
    model.null_threshold = -1e9  # as if it were sure that nothing has an answer
    columns = {"text": ("question", "context"), "label": "answer"}
    examples = scoring.load(model, None, str(path), **columns)
    scores = scoring.score(model, examples)
    assert scores["examples"] == 2 and scores[examples.task.metrics[0]] == 50
    assert model.null_threshold == -1e9  # which isn't tuned on what is scored
    tokenizer = tiny.make_tokenizer()
    backbone = tiny_text_to_text.make("T5", vocabulary_size=tokenizer.vocabulary_size())
    preprocessor = tasks.TextToTextPreprocessor(tokenizer, 16)
    model = tasks.TextToText(backbone, preprocessor=preprocessor)
    columns = {"text": ("context",), "label": "answer"}
    path.write_text(json.dumps(rows[0]))
    examples = scoring.load(model, None, str(path), **columns)
    assert examples.task.kind == "text_to_text"
    assert scoring.score(model, examples)["examples"] == 1


@pytest.mark.slow
def test_the_command_and_what_it_refuses(tmp_path):
    def run(*arguments):
        done = CliRunner().invoke(app, ["score", *map(str, arguments)])
        return done.exit_code, done.stdout, " ".join(done.output.split())

    preset = tmp_path / "preset"
    path = table(tmp_path / "a.jsonl", [(["the", "cat"], ["a", "b"])])
    model = make("classification")
    model.save_to_preset(preset)
    columns = ["--text", "text", "--label", "label"]
    own = table(tmp_path / "b.jsonl", ROWS["classification"])
    given = ["--data", own, *columns]
    code, line, said = run(preset, *given, "--ensemble", preset)
    assert code == 0, said
    expected = scoring.load(model, None, own, text=TEXT, label=LABEL)
    assert json.loads(line) == pytest.approx(scoring.score(model, expected))
    for arguments, words in [
        (["--data", own, "--text", "text"], "`--label` must be the column"),
        (
            [*given, "--task", "sst2"],
            "`--text` and `--label` must be given for a table",
        ),
        ([], "Received: neither"),
        (["--data", path, *columns], "for examples of kind 'tagging'."),
    ]:
        code, _, said = run(preset, *arguments)
        assert code == 2 and words in said, said


@pytest.mark.slow
@pytest.mark.any_backend
def test_models_without_names_of_classes(tmp_path):
    tokenizer, backbone = tiny.make_tokenizer(), tiny.make_backbone(num_layers=1)
    rows = tasks.TextClassifierPreprocessor(tokenizer, 16)
    model = tasks.TextClassifier(backbone, num_classes=3, preprocessor=rows)
    model.head.weights[-1].assign([0.0, 100.0, 0.0])  # always class 1

    def scores(model, labels, texts=("the cat", "a dog", "a cat")):
        path = table(tmp_path / "my.jsonl", [*zip(texts, labels, strict=True)])
        examples = scoring.load(model, None, path, text=TEXT, label=LABEL)
        return scoring.score(model, examples)

    assert scores(model, [1, 2, 1])["accuracy"] == pytest.approx(2 / 3)
    for labels in (["positive", "positive", "neutral"], [1, 7, 1]):
        with pytest.raises(ValueError, match=r"must be one of \['0', '1', '2'\]"):
            scores(model, labels)
    several = tasks.TextClassifier(
        backbone, num_classes=3, preprocessor=rows, multi_label=True
    )
    several.head.weights[-1].assign([100.0, -100.0, 100.0])
    assert scores(several, [[0, 2], [2, 0], [0, 2]])["micro_f1"] == 1
    [answer, *_] = several.answers([["the cat", "a dog"]])
    assert answer["labels"] == [0, 2] and {*answer["probabilities"]} == {*"012"}
    words = tasks.TokenClassifierPreprocessor(tokenizer, 16)
    tagger = tasks.TokenClassifier(backbone, num_classes=2, preprocessor=words)
    tagger.head.weights[-1].assign([0.0, 100.0])
    scored = scores(tagger, [["1", "1"]], [["the", "cat"]])
    assert scored.pop("examples") == 1 and all(0 <= x <= 1 for x in scored.values())
    examples = load_examples("sst2", "validation", [str(sst2(tmp_path))])
    with pytest.raises(ValueError, match="must have the 2 classes of 'sst2'"):
        scoring.score(model, examples)


def sst2(folder):
    path = folder / "dev.tsv"
    path.write_text("sentence\tlabel\na cat\t1\n")
    return path
