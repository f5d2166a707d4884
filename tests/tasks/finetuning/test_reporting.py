import sys

import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis import calibration
from keras_bertfam.metrics import compute_metrics
from keras_bertfam.tasks import (
    MultipleChoice,
    MultipleChoicePreprocessor,
    TextClassifier,
    TextClassifierPreprocessor,
    TextEmbedder,
    TextEmbedderPreprocessor,
    TextRegressor,
    TextRegressorPreprocessor,
    TokenClassifier,
    TokenClassifierPreprocessor,
)
from tests import tiny_fine_tuning as tiny
from tests import tiny_questions

TEXTS = ["the cat sat", "a dog", "", "a red hat by the tree"]
PAIRS = list(zip(TEXTS, TEXTS[::-1], strict=True))
NAMES = ["no", "yes"]


def make(cls, preprocessor_cls, task_arguments=None, **kwargs):
    preprocessor = preprocessor_cls(tiny.make_tokenizer(), 16, **kwargs)
    backbone = tiny.make_backbone(num_layers=1, initializer_range=1.0)
    arguments = {"preprocessor": preprocessor, **(task_arguments or {})}
    # Tracing takes longer than the few batches.
    return tiny.compiled(cls(backbone, **arguments), run_eagerly=True)


@pytest.fixture(scope="module")
def classifier():
    names = {"label_names": NAMES}
    return make(TextClassifier, TextClassifierPreprocessor, names)


def kept_outputs(model, monkeypatch):
    """A list that gets what the model predicts, which isn't computed twice then."""
    kept, predict = [], model.predict

    def keep(*args, **kwargs):
        kept.append(predict(*args, **kwargs))
        return kept[-1]

    monkeypatch.setattr(model, "predict", keep)
    return kept


@pytest.mark.slow
def test_texts_with_classes(classifier, monkeypatch):
    kept = kept_outputs(classifier, monkeypatch)
    y = [0, 1, 1, 0]
    report = classifier.report(TEXTS, y, batch_size=2)
    preprocessor = classifier.preprocessor
    rows = preprocessor.encode(preprocessor.as_tensors(TEXTS))
    logits = classifier({name: np.asarray(value) for name, value in rows.items()})
    np.testing.assert_allclose(ops.convert_to_numpy(logits), kept[0], atol=1e-4)
    predicted = np.argmax(kept[0], axis=1)
    assert report.title == "TextClassifier on 4 examples"
    assert report.scores["accuracy"] == np.mean(predicted == y)
    assert report.confusion.sum() == 4 and list(report.classes) == NAMES
    wrong = {TEXTS[k]: NAMES[y[k]] for k in range(4) if y[k] != predicted[k]}
    assert {error["text"]: error["true"] for error in report.errors} == wrong
    shares = ops.convert_to_numpy(ops.softmax(kept[0]))
    expected = calibration(shares, np.array(y))["error"]
    assert report.scores["calibration_error"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.any_backend
def test_a_diverged_model_has_a_report(classifier, monkeypatch):
    nans = np.full((4, 2), np.nan, "float32")
    monkeypatch.setattr(classifier, "predict", lambda *_, **__: nans)
    scores = classifier.report(TEXTS, [0, 1, 1, 0]).scores
    assert np.isnan(scores["calibration_error"]) and scores["accuracy"] == 0.5


@pytest.mark.slow
@pytest.mark.any_backend
def test_pairs_with_names_of_classes(classifier, monkeypatch):
    kept = kept_outputs(classifier, monkeypatch)
    texts = tuple(map(list, zip(*PAIRS, strict=True)))
    report = classifier.report(texts, np.array(NAMES * 2), worst=1)
    right = np.argmax(kept[0], axis=1) == [0, 1, 0, 1]
    assert report.scores["accuracy"] == np.mean(right) < 1
    [error] = report.errors
    assert (error["text"], error["text_pair"]) in PAIRS


@pytest.mark.slow
@pytest.mark.any_backend
def test_numbers(monkeypatch):
    model = make(TextRegressor, TextRegressorPreprocessor)
    kept, y = kept_outputs(model, monkeypatch), [1, 2, 3, 5]
    report = model.report(TEXTS, y)
    expected = compute_metrics(["pearson", "spearman"], y, kept[0])
    assert {name: report.scores[name] for name in expected} == pytest.approx(expected)
    assert report.errors[0]["text"] == TEXTS[np.abs(kept[0] - y).argmax()]


@pytest.mark.slow
@pytest.mark.any_backend
def test_similarities(monkeypatch):
    model = make(TextEmbedder, TextEmbedderPreprocessor)
    kept = kept_outputs(model, monkeypatch)
    report = model.report(PAIRS, [0.1, 0.2, 0.3, 1.0])
    cosines = np.sum(kept[0][:4] * kept[0][4:], axis=1)
    np.testing.assert_allclose(report.pairs[:, 1], cosines, atol=1e-6)
    assert report.errors[0].keys() >= {"text", "text_pair"}
    with pytest.raises(ValueError, match="must be pairs"):
        model.report(TEXTS, [0.1, 0.2, 0.3, 1.0])


@pytest.mark.slow
@pytest.mark.any_backend
def test_every_word_counts_also_beyond_a_row(monkeypatch):
    names = ["O", "B-x", "I-x"]
    labels = {"label_names": names}
    model = make(TokenClassifier, TokenClassifierPreprocessor, labels)
    kept = kept_outputs(model, monkeypatch)
    words = [["the", "cats"], ["a", "dog"] * 15, []]
    y = [["O", "B-x"], ["O", "B-x"] * 15, []]
    report = model.report(words, y, worst=40)
    assert report.title == "TokenClassifier on 32 words"
    parts, owners = model.preprocessor.fitting_parts(words)
    tags = [[], [], []]
    for part, owner, row in zip(parts, owners, kept[0], strict=True):
        tags[owner] += [names[k] for k in row[: len(part)].argmax(1)]
    expected = compute_metrics(["entity_f1", "word_accuracy"], y, tags)
    assert report.scores["entity_f1"] == expected["entity_f1"]
    assert report.scores["accuracy"] == pytest.approx(expected["word_accuracy"])
    assert report.confusion.sum(1).tolist() == [16, 16, 0]
    pairs = zip(sum(y, []), sum(tags, []), strict=True)
    # A word that a sentence has wrong several times is told once.
    told = {(error["word"], error["sentence"]) for error in report.errors}
    assert 0 < len(told) == len(report.errors) < sum(a != b for a, b in pairs)
    error = report.errors[0]
    assert error["word"] in error["sentence"].split()
    with pytest.raises(ValueError, match="must have words"):
        model.report([[], []], [[], []])


@pytest.mark.slow
@pytest.mark.any_backend
def test_choices(monkeypatch):
    x = {"choices": [["cat", "dog", text] for text in TEXTS], "context": TEXTS}
    preprocessor = {"label_names": "ABC"}
    model = make(MultipleChoice, MultipleChoicePreprocessor, **preprocessor)
    kept = kept_outputs(model, monkeypatch)
    report = model.report(x, list("ABCA"))
    right = np.argmax(kept[0], axis=1) == [0, 1, 2, 0]
    assert report.scores["accuracy"] == np.mean(right)
    assert list(report.classes) == list("ABC")
    wrong = {text for text, ok in zip(TEXTS, right, strict=True) if not ok}
    assert wrong and {error["context"] for error in report.errors} == wrong
    assert list(report.errors[0])[:3] == ["context", "choices", "true"]
    assert "| cat / dog / " in report.to_markdown()


@pytest.mark.slow
@pytest.mark.any_backend
def test_answers(monkeypatch):
    model = tiny_questions.make_model(null_threshold=0.0)
    model.compile(run_eagerly=True, jit_compile=False)
    kept = kept_outputs(model, monkeypatch)
    x, y = tiny_questions.questions(12, impossible=0.4)
    report = model.report(x, y)
    answers = [answer["text"] for answer in kept[-1]]
    scores = compute_metrics(["squad_f1", "squad_exact_match"], y, answers)
    assert report.scores["f1"] == scores["squad_f1"]
    assert report.scores["exact_match"] == scores["squad_exact_match"]
    flagged = [{**row, "is_impossible": True} for row in y]
    scores = compute_metrics(["squad_f1"], flagged, answers)
    assert model.report(x, flagged).scores["f1"] == scores["squad_f1"]
    f1 = [error["f1"] for error in report.errors]
    assert f1 == sorted(f1) and report.errors[0]["question"] in x["question"]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "x, y, message",
    [
        (TEXTS, [0, 1], "equally many examples. Received: x of 4, y of 2"),
        ([], [], "`x` must have at least one example"),
        (TEXTS, None, "`y` must be the labels of `x`. Received: None"),
        (TEXTS, ["no", "yes", "maybe", "no"], "label_names.*maybe.*row 2"),
        (TEXTS, [0, 1, 2, 0], "num_classes=2.*Received: .2., first in row 2"),
        (TEXTS, [0.5, 1.0, 0.0, 0.0], "0.5 in row 0"),
        ((TEXTS, TEXTS[:2]), [0, 1, 0, 1], "equally many"),
        (TEXTS[0], [0], "must be a batch"),
        ([3, 4], [0, 1], "must be strings"),
        (None, [0, 1], "`x` must be strings"),
    ],
)
def test_what_is_no_labelled_batch(classifier, x, y, message):
    with pytest.raises(ValueError, match=message):
        classifier.report(x, y)


@pytest.mark.any_backend
def test_what_a_report_needs(classifier, monkeypatch):
    with pytest.raises(ValueError, match="`worst` must be .*at least 0. Received: -1"):
        classifier.report(TEXTS, [0, 1, 0, 1], worst=-1)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sklearn.metrics", None)
        with pytest.raises(ImportError, match=r"install keras-bertfam\[evaluation\]"):
            classifier.report(TEXTS, [0, 1, 0, 1])
    monkeypatch.setattr(classifier, "preprocessor", None)
    with pytest.raises(ValueError, match="`report` needs a task with a preproc"):
        classifier.report(TEXTS, [0, 1, 0, 1])
