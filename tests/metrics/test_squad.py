import json

import numpy as np
import pytest

from keras_bertfam.datasets import load_examples
from keras_bertfam.metrics import compute_metrics, squad_scores
from keras_bertfam.metrics.squad import best_null_threshold, normalize_answer


def gold(*texts):
    return {"text": list(texts), "answer_start": [0] * len(texts)}


def test_normalization():
    assert (
        normalize_answer("  The  Cat's, an  A-team\u2019s the\n") == "cats ateam\u2019s"
    )
    assert normalize_answer("Theatre a") == "theatre"
    assert normalize_answer("a the . !") == ""


@pytest.mark.parametrize(
    "golds,prediction,exact,f1",
    [
        (["a red mat"], "The Red Mat!", 1, 1),
        (["red mat", "mat"], "mat", 1, 1),
        (["red red mat"], "red mat mat", 0, 4 / 6),  # a bag: one red, one mat
        (["mat"], "cat", 0, 0),
        (["mat"], "", 0, 0),
        (["mat"], None, 0, 0),
        ([], "", 1, 1),
        ([], "the", 1, 1),
        ([], "mat", 0, 0),
        ([""], "", 1, 1),
        (["", " "], "mat", 0, 0),
        (["A"], "a", 1, 1),  # an answer, if all of it is an article
        (["A"], "", 0, 0),
        (["A"], "the", 0, 0),
        (["the", "mat"], "a mat", 1, 1),
    ],
)
def test_rules(golds, prediction, exact, f1):
    scores = squad_scores([gold(*golds)], [prediction])
    assert scores["exact_match"] == 100 * exact
    assert scores["f1"] == pytest.approx(100 * f1)


def test_parts_of_version_2():
    impossible = {"text": ["the other mat"], "is_impossible": True}
    answers = [impossible, {"text": "mat"}, gold("")]
    scores = squad_scores(answers, ["", "red mat", "cat"])
    assert scores["f1"] == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert scores["has_answer_f1"] == pytest.approx(100 * 2 / 3)
    assert scores["no_answer_f1"] == pytest.approx(50)


def test_threshold_against_all_thresholds():
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 12))
        answers = [gold("mat") if rng.random() < 0.5 else gold() for _ in range(count)]
        texts = list(rng.choice(["mat", "red mat", "cat", ""], count))
        odds = rng.integers(-3, 4, count).astype(float)
        best, threshold = best_null_threshold(answers, texts, odds)

        def score(threshold, answers=answers, texts=texts, odds=odds):
            chosen = np.where(odds > threshold, "", texts).tolist()
            return squad_scores(answers, chosen)["f1"]

        assert best == pytest.approx(score(threshold))
        assert best == pytest.approx(max(map(score, np.arange(-4.5, 5))))


def test_errors():
    with pytest.raises(ValueError, match="Received: 1 and 2"):
        squad_scores([gold()], ["", ""])
    with pytest.raises(ValueError, match="Received: 0 and 0"):
        squad_scores([], [])
    with pytest.raises(ValueError, match="`metric` must be one of"):
        best_null_threshold([gold()], [""], [0.0], metric="bleu")


@pytest.mark.data
@pytest.mark.parametrize(
    "name,exact,f1",
    [("pred_bert_ensemble", 86.2062, 92.1956), ("pred_logreg", 40.1419, 50.9815)],
)
def test_published_predictions_get_their_published_scores(data_dir, name, exact, f1):
    folder = data_dir / "squad11"
    examples = load_examples("squad", data=folder / "dev-v1.1.json")
    predicted = json.loads((folder / f"{name}.json").read_text("utf-8"))
    scores = compute_metrics(
        ["squad_exact_match", "squad_f1"],
        examples.y,
        [predicted.get(key) for key in examples.ids],
    )
    assert round(scores["squad_exact_match"], 4) == exact
    assert round(scores["squad_f1"], 4) == f1
