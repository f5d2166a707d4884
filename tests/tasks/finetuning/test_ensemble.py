"""Several models that answer together, against numpy."""

import json

import numpy as np
import pytest
from scipy.special import softmax
from typer.testing import CliRunner

from keras_bertfam import tasks
from keras_bertfam.cli.app import app
from keras_bertfam.datasets import Examples
from keras_bertfam.datasets.task_data import TASKS, TaskData
from keras_bertfam.metrics import TaskMetrics
from keras_bertfam.metrics.callback import predicted_labels
from keras_bertfam.tasks.finetuning.merging import merged_answers
from tests import tiny_fine_tuning as tiny
from tests import tiny_questions

TEXTS = ["the cat sat", "a dog ran", "a mat"]


def make(cls, family="bert", seed=0, **kwargs):
    names = {k: v for k, v in kwargs.items() if k == "label_names"}
    preprocessor = cls.preprocessor_cls(tiny.make_tokenizer(), 24, **names)
    backbone = tiny.make_backbone(family, num_layers=1)
    model = tiny.compiled(cls(backbone, preprocessor=preprocessor, **kwargs))
    rng = np.random.default_rng(seed)
    # Tiny weights give like answers.
    head = getattr(model, "head", None)
    for variable in head.trainable_variables if head else ():
        variable.assign(rng.normal(size=variable.shape))
    return model


@pytest.mark.slow
def test_probabilities_are_averaged_by_the_names_of_classes(tmp_path):
    first = make(tasks.TextClassifier, label_names=["bad", "good", "fair"])
    other = make(
        tasks.TextClassifier, "electra", 1, label_names=["good", "fair", "bad"]
    )
    last = make(
        tasks.TextClassifier,
        seed=2,
        label_names=["bad", "good", "fair"],
        activation="softmax",
    )
    both = tasks.Ensemble([first, other, last])
    one, two, three = (m.predict(TEXTS, verbose=0) for m in both.models)
    expected = softmax(one, -1) + softmax(two, -1)[:, [2, 0, 1]] + three
    found = both.predict(TEXTS)
    np.testing.assert_allclose(found, expected / 3, rtol=1e-4)
    assert (both.label_names, both.text_columns) == (first.label_names, ("text",))
    assert np.abs(found - softmax(one, -1)).max() > 0.05  # they don't agree
    # The task's order may be another.
    task = TaskData("own", "classification", label_names=("fair", "bad", "good"))
    right = [["bad", "good", "fair"][k] for k in found.argmax(1)]
    examples = Examples(TEXTS, [task.label_names.index(name) for name in right], task)
    assert TaskMetrics(examples).compute(both) == {"accuracy": 1.0}
    for name, model in {"first": first, "other": other}.items():
        model.save_to_preset(tmp_path / name)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    arguments = [tmp_path / "first", "--ensemble", tmp_path / "other"]
    done = CliRunner().invoke(
        app, ["predict", *map(str, arguments), str(tmp_path / "texts.txt")]
    )
    assert done.exit_code == 0, done.output
    found = tasks.Ensemble([first, other]).predict(TEXTS)
    said = [json.loads(line) for line in done.output.splitlines()]
    assert [row["text"] for row in said] == TEXTS
    names = [first.label_names[k] for k in found.argmax(1)]
    assert [row["label"] for row in said] == names
    assert [row["probability"] for row in said] == pytest.approx(found.max(1), rel=1e-4)


@pytest.mark.slow
def test_numbers_and_choices_are_averaged():
    models = [make(tasks.TextRegressor, seed=seed) for seed in (0, 1)]
    both = tasks.Ensemble(models)
    outputs = [model.predict(TEXTS, verbose=0) for model in models]
    np.testing.assert_allclose(both.predict(TEXTS), np.mean(outputs, 0), rtol=1e-5)
    assert [row["score"] for row in both.answers([TEXTS])] == pytest.approx(
        np.mean(outputs, 0), rel=1e-5
    )
    models = [make(tasks.MultipleChoice, seed=seed) for seed in (0, 1)]
    both = tasks.Ensemble(models)
    columns = [TEXTS[:2], [["a", "dog", "mat"], ["the cat", "sat", "ran"]]]
    x = dict(zip(("context", "choices"), columns, strict=True))
    outputs = [softmax(model.predict(x, verbose=0), -1) for model in models]
    expected = np.mean(outputs, 0)
    np.testing.assert_allclose(both.predict(x), expected, rtol=1e-4)
    assert [row["choice"] for row in both.answers(columns)] == [*expected.argmax(1)]
    models = [make(tasks.RelationClassifier, seed=k, num_classes=2) for k in (0, 1)]
    both = tasks.Ensemble(models)
    columns = [TEXTS[:2], [[0, 3], [0, 1]], [[4, 7], [2, 5]]]
    x = dict(zip(both.text_columns, columns, strict=True))
    outputs = [softmax(model.predict(x, verbose=0), -1) for model in models]
    said = [*both.answers(columns)]
    assert [row["label"] for row in said] == [*np.mean(outputs, 0).argmax(1)]


@pytest.mark.slow
@pytest.mark.parametrize("names", [["bad", "good", "fair"], None])
def test_lists_of_classes_are_scored(names):
    kwargs = {"num_classes": 3} if names is None else {"label_names": names}
    models = [
        make(tasks.TextClassifier, seed=k, multi_label=True, **kwargs) for k in (2, 3)
    ]
    both = tasks.Ensemble(models)
    chosen = both.predict(TEXTS) >= 0.5
    assert 0 < chosen.sum() < chosen.size
    known = names or range(3)
    y = [[known[k] for k in np.flatnonzero(row)] for row in chosen]
    examples = Examples(TEXTS, y, TaskData("own", "multi_label", label_names=names))
    assert predicted_labels(both, examples) == y
    assert TaskMetrics(examples).compute(both) == {"micro_f1": 1.0}


def answer(odds, *best):
    names = ("text", "start", "end", "probability")
    n_best = [dict(zip(names, each, strict=True)) for each in best]
    return {"no_answer_odds": odds, "n_best": n_best}


def test_lists_of_answers_are_merged():
    one = answer(-3.0, ("a mat", 3, 8, 0.5), ("mat", 5, 8, 0.4), ("mat", 20, 23, 0.1))
    other = answer(1.0, ("mat", 5, 8, 0.75), ("sat", 0, 3, 0.25))
    found = merged_answers([one, other], [None, None])
    assert [(e["text"], e["start"], e["end"]) for e in found["n_best"]] == [
        ("mat", 5, 8),
        ("a mat", 3, 8),
        ("sat", 0, 3),
        ("mat", 20, 23),
    ]
    shares = [each["probability"] for each in found["n_best"]]
    assert shares == pytest.approx([0.575, 0.25, 0.125, 0.05])
    chosen = {name: found[name] for name in ("text", "start", "end", "score")}
    assert chosen == {"text": "mat", "start": 5, "end": 8, "score": shares[0]}
    assert found["no_answer_odds"] == -1.0
    # Each model's odds are compared with its own threshold.
    none = answer(1.0, ("", -1, -1, 0.9), ("mat", 5, 8, 0.1))
    assert merged_answers([one, none], [-6.0, 0.0])["text"] == ""  # 3 and 1
    said = merged_answers([one, none], [-2.0, 1.0])  # -1 and 0
    assert (said["text"], said["no_answer_odds"]) == ("a mat", -0.5)
    assert said["n_best"][0]["text"] == "" and said["n_best"][0]["start"] == -1
    empty = answer(float("inf"), ("", -1, -1, 1.0))  # of an empty context
    said = merged_answers([empty, empty], [None, None])
    assert (said["text"], said["start"], said["score"]) == ("", -1, 1.0)
    assert said["no_answer_odds"] == float("inf")
    # A model without a span doesn't silence the other.
    for pair, thresholds in (([one, empty], [0.5, 0.0]), ([empty, one], [0.0, 0.5])):
        said = merged_answers(pair, thresholds)
        assert (said["text"], said["no_answer_odds"]) == ("a mat", -3.5)


@pytest.mark.slow
def test_questions():
    x, _ = tiny_questions.questions(12)
    first = tiny_questions.make_model()
    both = tasks.Ensemble([first, first])
    alone, found = first.predict(x, verbose=0), both.predict(x)
    assert [one["text"] for one in found] == [one["text"] for one in alone]
    for one, other in zip(found, alone, strict=True):
        assert one["score"] == pytest.approx(other["n_best"][0]["probability"])
    said = [*both.answers([x["question"], x["context"]])]
    assert [row["answer"] for row in said] == [one["text"] for one in alone]
    odds = sorted(one["no_answer_odds"] for one in alone)
    first.null_threshold = sum(odds[5:7]) / 2
    found = tasks.Ensemble([first, first]).predict(x)
    alone = first.predict(x, verbose=0)
    assert [one["text"] for one in found] == [one["text"] for one in alone]
    assert sum(one["text"] == "" for one in found) == 6
    # The answers count as they are, without a threshold for these questions.
    y = [{"text": [one["text"]] if one["text"] else []} for one in found]
    examples = Examples(x, y, TASKS["squad_v2"])
    scores = TaskMetrics(examples).compute(tasks.Ensemble([first, first]))
    assert scores == {"squad_f1": 100.0, "squad_exact_match": 100.0}
    with pytest.raises(ValueError, match="must all have a `null_threshold`"):
        tasks.Ensemble([first, tiny_questions.make_model()])


def test_what_does_not_go_together():
    bad = make(tasks.TextClassifier, label_names=["bad", "good"])
    for models, message in {
        (): r"must be of one task.*Received: \[\]",
        (bad, make(tasks.TextRegressor)): "'TextClassifier', 'TextRegressor'",
        (make(tasks.TextEmbedder),): "must be of one task.*'TextEmbedder'",
        (
            bad,
            make(tasks.TextClassifier, label_names=["bad", "best"]),
        ): "the same classes.*'best'",
        (bad, make(tasks.TextClassifier, num_classes=2)): "the same classes",
        (
            bad,
            make(tasks.TextClassifier, label_names=["bad", "good"], multi_label=True),
        ): "multi_label=False and True",
        (tasks.TextRegressor(tiny.make_backbone()),): "must have preprocessors",
    }.items():
        with pytest.raises(ValueError, match=message):
            tasks.Ensemble(models)
