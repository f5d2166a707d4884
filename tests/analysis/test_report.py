import html
import re
import warnings

import numpy as np
import pytest
from sklearn import metrics

from keras_bertfam.analysis.report import (
    answer_report,
    class_report,
    label_set_report,
    number_report,
)

PNG = b"\x89PNG\r\n\x1a\n"
NAMES = ["bad", "good", "a|b"]


def example(count=60, classes=3, names=NAMES, worst=5):
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([1.0] * classes, count)
    y_true = rng.integers(0, classes, count)
    texts = {"text": [f"text {k}" for k in range(count)]}
    report = class_report("Test", texts, y_true, probabilities, names, worst)
    return report, y_true, probabilities


def tables_of(markdown):
    """The tables of a Markdown text: lists of rows of cells, as a reader sees them."""
    tables = {}
    for block in markdown.split("### ")[1:]:
        title, _, table = block.partition("\n\n")
        header, rule, *rows = (
            re.split(r"(?<!\\) ?\| ?", line.strip())[1:-1]
            for line in table.strip().splitlines()
        )
        assert set(rule) == {"---"}
        tables[title] = [
            [html.unescape(re.sub(r"\\(.)", r"\1", cell)) for cell in row]
            for row in (header, *rows)
        ]
    return tables


def test_scores_and_tables_are_those_of_scikit_learn():
    report, y_true, probabilities = example()
    y_pred = probabilities.argmax(1)
    np.testing.assert_array_equal(
        report.confusion, metrics.confusion_matrix(y_true, y_pred)
    )
    theirs = metrics.classification_report(
        y_true, y_pred, target_names=NAMES, output_dict=True
    )
    for name in NAMES:
        assert report.classes[name] == {
            score.removesuffix("-score"): pytest.approx(value)
            for score, value in theirs[name].items()
        }
    assert report.scores == {
        "accuracy": pytest.approx(theirs["accuracy"]),
        "macro_f1": pytest.approx(theirs["macro avg"]["f1-score"]),
        "matthews": pytest.approx(metrics.matthews_corrcoef(y_true, y_pred)),
        "crossentropy": pytest.approx(metrics.log_loss(y_true, probabilities)),
    }


def test_the_worst_errors_come_first():
    report, y_true, probabilities = example(worst=4)
    losses = -np.log(probabilities[np.arange(60), y_true])
    wrong = probabilities.argmax(1) != y_true
    expected = sorted(np.flatnonzero(wrong), key=lambda k: -losses[k])[:4]
    assert [error["text"] for error in report.errors] == [f"text {k}" for k in expected]
    for error, k in zip(report.errors, expected, strict=True):
        assert error["true"] == NAMES[y_true[k]]
        assert error["predicted"] == NAMES[probabilities[k].argmax()]
        assert error["probability"] == pytest.approx(probabilities[k].max())
        assert error["loss"] == pytest.approx(losses[k])


def test_markdown_says_what_the_report_has():
    report, *_ = example()
    odd = "a | b\n*c* <sep> _d_ e_f \\| `g` [h](i) ~~j~~ &amp;"
    report.errors[0]["text"] = odd
    tables = tables_of(report.to_markdown())
    scores = dict(tables["Scores"][1:])
    assert {k: float(v) for k, v in scores.items()} == {
        name: pytest.approx(value, rel=1e-3) for name, value in report.scores.items()
    }
    [header, *rows] = tables["Confusion: true in rows, predicted in columns"]
    assert header == ["", *NAMES] and [row[0] for row in rows] == NAMES
    assert [[int(n) for n in row[1:]] for row in rows] == report.confusion.tolist()
    [header, *rows] = tables["Classes"]
    assert header == ["class", "precision", "recall", "f1", "support"]
    assert [int(row[-1]) for row in rows] == report.confusion.sum(1).tolist()
    [header, *rows] = tables["The worst errors"]
    assert header == ["text", "true", "predicted", "probability", "loss"]
    assert rows[0][0] == odd.replace("\n", " ") and len(rows) == 5


def test_markdown_is_read_as_it_is_meant():
    markdown = pytest.importorskip("markdown")
    report, *_ = example()
    odd = "a | b *c* <sep> _d_ \\| `g` [h](i)"
    report.errors[0]["text"] = odd
    page = markdown.markdown(report.to_markdown(), extensions=["tables"])
    cells = re.findall(r"<td>(.*?)</td>", page)
    assert odd in map(html.unescape, cells) and page.count("<table>") == 4


def test_text_fits_on_lines():
    report, *_ = example()
    report.errors[0]["text"] = "long " * 40
    lines = str(report).splitlines()
    assert repr(report) == str(report) and report == report
    assert lines[0] == "Test" and max(map(len, lines)) < 110
    assert any(line.startswith("long long") and "…" in line for line in lines)
    at = lines.index("Confusion: true in rows, predicted in columns")
    assert lines[at + 1].split() == NAMES
    assert lines[at + 2].split() == ["bad", *map(str, report.confusion[0])]


def test_many_classes_have_a_table_of_the_most_frequent_confusions():
    report, y_true, probabilities = example(400, 30, names=None)
    rows = tables_of(report.to_markdown())["The most frequent confusions"][1:]
    assert len(rows) == 20
    counts = report.confusion[~np.eye(30, dtype=bool)]
    assert [int(row[-1]) for row in rows] == sorted(counts, reverse=True)[:20]
    assert all(report.confusion[int(i), int(j)] == int(n) for i, j, n in rows)


def test_pictures(tmp_path):
    reports = {
        "classes": example()[0],
        "many": example(400, 30, names=None)[0],
        "numbers": number_report(
            "Numbers", {"text": ["a"]}, np.ones(1), np.zeros(1), 3
        ),
        "answers": answer_report(
            "Answers",
            {"question": ["q"]},
            [{"text": ["b"]}],
            [{"text": "b", "n_best": [{"text": "b", "probability": 0.5}]}],
            3,
        ),
    }
    for name, report in reports.items():
        path = tmp_path / f"{name}.png"
        figure = report.plot(path)
        assert path.read_bytes().startswith(PNG)
        assert figure.get_suptitle() == report.title


def test_numbers():
    y_true, y_pred = np.array([1.0, 2, 3, 4]), np.array([1.5, 2, 1, 4.25])
    texts = {"text": list("abcd")}
    report = number_report("Numbers", texts, y_true, y_pred, 2)
    assert report.scores["pearson"] == pytest.approx(np.corrcoef(y_true, y_pred)[0, 1])
    assert report.scores["rmse"] == pytest.approx(np.sqrt(4.3125 / 4))
    assert report.scores["mean_absolute_error"] == pytest.approx(2.75 / 4)
    assert report.errors == [
        {"text": "c", "true": 3.0, "predicted": 1.0, "error": -2.0},
        {"text": "a", "true": 1.0, "predicted": 1.5, "error": 0.5},
    ]
    assert report.confusion is None and "Confusion" not in str(report)


def test_predictions_that_are_no_numbers_are_the_worst():
    texts = {"text": list("abc")}
    y = np.array([1, 1, 0])
    probabilities = np.array([[0.9, 0.1], [np.nan, np.nan], [0.6, 0.4]])
    report = class_report("Test", texts, y, probabilities, None, 3)
    assert [error["text"] for error in report.errors] == ["b", "a"]
    assert report.scores["f1"] == 0 and np.isnan(report.scores["crossentropy"])


def test_one_class_only():
    """Without scikit-learn's warning, which isn't about the report."""
    texts, y, probabilities = {"text": ["a"]}, np.zeros(1, int), np.eye(3)[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = class_report("Test", texts, y, probabilities, NAMES, 3)
    assert report.scores["accuracy"] == 1 and report.errors == []
    assert report.confusion.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert "worst" not in str(report) and report.classes["good"]["support"] == 0


@pytest.mark.any_backend
@pytest.mark.parametrize("there", [[True, False, True], [False] * 3, [True] * 3])
def test_sets_of_one_label(there):
    y_true = np.array(there)[:, None]
    probabilities = np.array([[0.9], [0.2], [0.1]])
    texts = {"text": ["a", "b", "c"]}
    report = label_set_report("T", texts, y_true, probabilities, ["toxic"], 5)
    found = (probabilities >= 0.5) & y_true
    expected = 2 * found.sum() / (y_true.sum() + 1) if y_true.any() else 0.0
    row = report.classes["toxic"]
    assert row["support"] == y_true.sum() and len(report.classes) == 1
    for score in (row["f1"], report.scores["micro_f1"], report.scores["macro_f1"]):
        assert score == pytest.approx(expected)
