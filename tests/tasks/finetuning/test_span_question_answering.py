import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers.heads.span_heads import best_spans
from keras_bertfam.metrics import squad_scores
from keras_bertfam.tasks import SpanQuestionAnswering
from tests.tiny_fine_tuning import compiled, fast_families
from tests.tiny_questions import make_model, make_preprocessor, questions


def array(x):
    return ops.convert_to_numpy(x)


def test_best_spans_against_all_spans():
    rng = np.random.default_rng(0)
    start, end = rng.normal(size=(2, 4, 7)).astype("float32")
    start_mask, end_mask = rng.random((2, 4, 7)) < 0.6
    start_mask[3] = False
    firsts, lasts, scores = map(
        array, best_spans(start, end, start_mask, end_mask, 5, 3)
    )
    for row in range(4):
        allowed = [
            (start[row, i] + end[row, j], i, j)
            for i, j in itertools.product(range(7), range(7))
            if start_mask[row, i] and end_mask[row, j] and 0 <= j - i < 3
        ]
        expected = sorted(allowed, reverse=True)[:5]
        found = scores[row] > -1e29
        assert found.sum() == len(expected)
        np.testing.assert_allclose(scores[row][found], [e[0] for e in expected], 1e-6)
        assert firsts[row][found].tolist() == [e[1] for e in expected]
        assert lasts[row][found].tolist() == [e[2] for e in expected]


@pytest.mark.parametrize(("family", "layout"), [("xlnet", None), ("bert", "xlnet")])
def test_the_row_must_have_its_summary_where_the_family_has(family, layout):
    with pytest.raises(ValueError, match="`preprocessor` must make rows.*layout="):
        make_model(family, preprocessor=make_preprocessor(layout=layout))


@pytest.mark.slow
@pytest.mark.parametrize("family", fast_families("bert", "xlnet"))
def test_predicts_spans_of_the_text_with_any_family(family):
    model = make_model(family, make_preprocessor(20, family))
    x, _ = questions(6)
    answers = model.predict(x, batch_size=4, verbose=0)
    assert len(answers) == 6
    for context, answer in zip(x["context"], answers, strict=True):
        assert answer["text"] == context[answer["start"] : answer["end"]] != ""
        shares = [a["probability"] for a in answer["n_best"]]
        assert len(shares) == 3
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.any_backend
def test_answers_do_not_depend_on_batches_or_windows_of_others():
    model = make_model(preprocessor=make_preprocessor(sequence_length=18))
    x, _ = questions(8)
    together = model.predict(x, batch_size=3, verbose=0)
    for number in (0, 5):
        one = {name: texts[number] for name, texts in x.items()}
        alone = model.predict(one, verbose=0)
        assert alone["text"] == together[number]["text"]
        assert alone["score"] == pytest.approx(together[number]["score"], abs=1e-5)


def train(model, x, y):
    """Losses of four epochs, each of eight times all: to begin one takes long."""
    compiled(model, learning_rate=3e-3)
    x = {name: texts * 8 for name, texts in x.items()}
    return model.fit(x, y * 8, batch_size=16, epochs=4, verbose=0).history["loss"]


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_learns_to_answer():
    model = make_model()
    x, y = questions(128, sentences=(1, 3))
    losses = train(model, x, y)
    assert losses[-1] < 0.3 * losses[0]
    answers = model.predict(x, verbose=0)
    assert squad_scores(y, [answer["text"] for answer in answers])["exact_match"] > 80
    loss = model.evaluate(x, y, verbose=0)
    assert np.isfinite(loss)


@pytest.mark.slow("release")
@pytest.mark.any_backend
@pytest.mark.parametrize("end_head", ["independent", "conditional"])
def test_learns_when_there_is_no_answer(end_head):
    family = "bert" if end_head == "independent" else "xlnet"
    model = make_model(family, end_head=end_head)
    x, y = questions(96, impossible=0.5, sentences=(1, 2))
    losses = train(model, x, y)
    assert losses[-1] < 0.5 * losses[0]
    score, threshold = model.tune_null_threshold(x, y)
    assert model.null_threshold == threshold
    answers = model.predict(x, verbose=0)
    scores = squad_scores(y, [answer["text"] for answer in answers])
    assert scores["f1"] == pytest.approx(score)
    assert score > 75
    nothing = [a for a in answers if a["text"] == ""]
    assert nothing and all((a["start"], a["end"]) == (-1, -1) for a in nothing)
    assert all(a["no_answer_odds"] > threshold for a in nothing)


@pytest.mark.slow
@pytest.mark.parametrize("end_head", ["independent", "conditional"])
def test_loss_against_numpy(end_head):
    model = make_model(end_head=end_head)
    x, y = questions(6, impossible=0.5)
    rows, targets = model.preprocessor(x, y)
    weights = np.linspace(0, 1, len(targets)).astype("float32")
    rows = {name: ops.convert_to_tensor(value.numpy()) for name, value in rows.items()}
    targets = targets.numpy()
    outputs = model(rows)
    loss = model.compute_loss(rows, ops.convert_to_tensor(targets), outputs, weights)

    def crossentropy(logits, target):
        logits = array(logits).astype("float64")
        top = logits.max(1, keepdims=True)
        total = np.log(np.exp(logits - top).sum(1)) + top[:, 0]
        return total - logits[np.arange(len(target)), target]

    expected = crossentropy(outputs["start_logits"], targets[:, 0])
    expected = (expected + crossentropy(outputs["end_logits"], targets[:, 1])) / 2
    if end_head == "conditional":
        chance = 1 / (1 + np.exp(-array(outputs["no_answer"]).astype("float64")))
        none = targets[:, 0] == 0
        expected -= np.log(np.where(none, chance, 1 - chance)) / 2
    expected = (expected * weights).sum() / weights.sum()
    assert float(array(loss)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_conditional_spans_are_scored_as_in_training():
    """The best span's score is the sum of the log-probabilities given its start."""
    model = make_model(end_head="conditional")
    x, _ = questions(3)
    rows = {k: v.numpy() for k, v in model.preprocessor(x, None).items()}
    spans = {name: array(value) for name, value in model(rows).items()}
    mask = rows.pop("start_mask")
    first, last = spans["starts"][:, 0], spans["ends"][:, 0]
    outputs = model({**rows, "start_positions": first})
    each = np.arange(len(first))
    start = array(ops.log_softmax(outputs["start_logits"]))
    end = np.where(rows["span_mask"], array(outputs["end_logits"]), -1e30)
    end = array(ops.log_softmax(end))
    expected = start[each, first] + end[each, last]
    np.testing.assert_allclose(spans["scores"][:, 0], expected, atol=1e-5)
    assert mask[each, first].all()
    np.testing.assert_allclose(spans["no_answer"], array(outputs["no_answer"]), 1e-5)


@pytest.mark.slow
def test_nothing_to_answer_from():
    model = make_model()
    answer = model.predict({"question": "where ?", "context": ""}, verbose=0)
    assert (answer["text"], answer["start"], answer["end"]) == ("", -1, -1)
    assert [a["text"] for a in answer["n_best"]] == [""]


@pytest.mark.slow
def test_preset_round_trip(tmp_path):
    model = make_model(null_threshold=-1.5, max_answer_length=4)
    model.save_to_preset(tmp_path / "qa")
    copy = SpanQuestionAnswering.from_preset(str(tmp_path / "qa"))
    assert (copy.null_threshold, copy.max_answer_length, copy.n_best) == (-1.5, 4, 3)
    x, _ = questions(3)
    a, b = (m.predict(x, verbose=0) for m in (model, copy))
    assert [r["text"] for r in a] == [r["text"] for r in b]
    assert copy.preprocessor.doc_stride == 8
    model.save(tmp_path / "qa.keras")
    again = keras.saving.load_model(tmp_path / "qa.keras")
    assert again.get_config()["null_threshold"] == -1.5


def test_settings_that_make_no_sense():
    with pytest.raises(ValueError, match="`end_head` must be one of .*'both'"):
        make_model(end_head="both")
    with pytest.raises(ValueError, match="`max_answer_length` must be an int"):
        make_model(max_answer_length=0)
