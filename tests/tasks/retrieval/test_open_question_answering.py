"""Open questions: the marginal over spans, what is trained, answers, bad input."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.metrics import squad_scores
from tests import tiny_passages
from tests.gradients import loss_and_gradients
from tests.tasks.generation.text_to_text_tokenizers import word_piece

TEXTS = tiny_passages.passages()
QUESTIONS = TEXTS[:8]


@functools.cache
def answers():
    """Two answers to each question: of one and of two words of its first passage."""
    search = tiny_passages.make_search()
    numbers = search.index.search(search.retriever.encode(QUESTIONS), 1)[1][:, 0]
    found = [TEXTS[number].split() for number in numbers]
    return [[" ".join(words[1:3]), words[0]] for words in found]


def make_preprocessor(search, **kwargs):
    settings = {"sequence_length": 14, "num_passages": 3, "max_answer_length": 2}
    preprocessor = tasks.OpenQuestionAnsweringPreprocessor(
        word_piece(), **{**settings, **kwargs}
    )
    preprocessor.search = search
    return preprocessor


def make_task(preprocessor=None, retriever=None, **kwargs):
    if preprocessor is None:
        search = tiny_passages.make_search(trained=True)
        preprocessor, retriever = make_preprocessor(search), search.retriever
    task = tasks.OpenQuestionAnswering(
        tiny_passages.bert(), preprocessor, retriever, max_answer_length=2, **kwargs
    )
    eagerly = keras.backend.backend() == "tensorflow"
    task.compile(keras.optimizers.Adam(0.02), run_eagerly=eagerly)
    return task


@pytest.fixture(scope="module")
def task():
    return make_task()


def arrays(example):
    return keras.tree.map_structure(np.asarray, example)


def softmax(x, axes):
    x = np.exp(x - x.max(axes, keepdims=True))
    return x / x.sum(axes, keepdims=True)


def parts(task, x):
    """Scores of passages, and of all spans of each, by the weights of the layers."""
    query = {name[6:]: x[name] for name in x if name.startswith("query_")}
    vectors = ops.convert_to_numpy(task.retriever.query_vectors(query))
    if "passage_vectors" in x:
        passages = x["passage_vectors"]
    else:
        rows = {name[8:]: x[name] for name in x if name.startswith("passage_")}
        rows.pop("ids")
        passages = ops.convert_to_numpy(task.retriever.passage_vectors(rows))
    prior = np.einsum("bd,bkd->bk", vectors, passages)
    layers = (task.head.start, task.head.end, task.head.norm, task.head.score)
    start, bias, end, gamma, beta, kernel, offset = (
        ops.convert_to_numpy(v) for layer in layers for v in layer.weights
    )
    names = ("token_ids", "segment_ids", "padding_mask")
    rows = {n: x[n].reshape(-1, x[n].shape[-1]) for n in names}
    states = ops.convert_to_numpy(task.backbone(rows)["sequence_output"])
    states = states.reshape(*x["token_ids"].shape, -1)
    spans = np.full((*x["span_mask"].shape, 2), -np.inf)
    for *row, first in np.argwhere(x["span_mask"]).tolist():
        for last in (first, first + 1):
            row = tuple(row)
            if x["span_mask"][row][last]:
                ends = states[row][first] @ start + bias, states[row][last] @ end
                hidden = np.maximum(sum(ends), 0)
                hidden = hidden - hidden.mean()
                hidden = hidden / np.sqrt((hidden**2).mean() + 1e-3)
                score = (hidden * gamma + beta) @ kernel + offset
                spans[(*row, first, last - first)] = score[0]
    return prior, spans


@pytest.mark.slow
@pytest.mark.parametrize("trained", [False, True])
def test_losses_against_numpy_and_what_is_trained(task, trained):
    preprocessor = make_preprocessor(task.preprocessor.search, passage_rows=trained)
    x, y = arrays(preprocessor(QUESTIONS[:4], [*answers()[:3], ["nowhere"]]))
    assert y[:3].any((1, 2, 3)).all() and not y[3].any()
    task = tasks.OpenQuestionAnswering(
        task.backbone, None, task.retriever, max_answer_length=2, train_passages=trained
    )
    prior, spans = parts(task, x)
    weights = np.array([1.0, 2.0, 1.0, 1.0], "float32")

    def mean(likelihoods):  # of the three questions that have an answer
        return -(np.log(likelihoods[:3]) * weights[:3]).sum() / 4

    paper = softmax(prior, 1)[:, :, None, None] * softmax(spans, (2, 3))
    code = softmax(prior[:, :, None, None] + spans, (1, 2, 3))
    paper, code = ((p * y).sum((1, 2, 3)) for p in (paper, code))
    retrieved = (softmax(prior, 1) * y.any((2, 3))).sum(1)
    loss, gradients = loss_and_gradients(task, x, y, weights)
    assert loss == pytest.approx(mean(paper), rel=1e-4)
    task.normalization, task.retrieval_weight = "joint", 1.0
    both = float(ops.convert_to_numpy(task.compute_loss(x, y, task(x), weights)))
    assert both == pytest.approx(mean(code) + mean(retrieved), rel=1e-4)
    sizes = {
        v.path: np.abs(g).max()
        for v, g in zip(task.trainable_variables, gradients, strict=True)
    }
    retriever = task.retriever
    for layer in (retriever.projection.dense, task.head.start, task.head.end):
        assert sizes[layer.kernel.path] > 1e-6
    kernel = retriever.passage_projection.dense.kernel.path
    assert (kernel in sizes) is trained and sizes.get(kernel, 1.0) > 1e-6


@pytest.mark.slow
def test_questions_without_an_answer_have_no_part(task):
    x, y = arrays(task.preprocessor(QUESTIONS[:2], ["nowhere", answers()[1]]))
    found = task.test_on_batch(x, y, return_dict=True)
    assert float(found["answers_found"]) == 0.5
    x, y = (keras.tree.map_structure(lambda v: v[1:], part) for part in (x, y))
    alone = task.test_on_batch(x, y, return_dict=True)
    assert float(alone["answers_found"]) == 1.0
    assert float(found["loss"]) == pytest.approx(float(alone["loss"]), rel=1e-5)
    x, y = arrays(task.preprocessor(QUESTIONS[:1], ["nowhere"]))
    assert float(task.test_on_batch(x, y, return_dict=True)["loss"]) == 0.0


@pytest.mark.slow
@pytest.mark.any_backend
def test_answers_add_their_spans_up(task):
    found = task.predict(QUESTIONS[:3], batch_size=2, verbose=0)
    questions = task.preprocessor.as_tensors(QUESTIONS[:3])
    x = arrays(task.preprocessor.read_in_graph(questions)[0])
    prior, spans = parts(task, x)
    p = softmax(prior, 1)[:, :, None, None] * softmax(spans, (2, 3))
    for row, answer in enumerate(found):
        words = {}
        for k, first, more in np.argwhere(p[row] > 0):
            number = int(x["passage_ids"][row, k])
            at = first - np.flatnonzero(x["span_mask"][row, k])[0]
            text = " ".join(TEXTS[number].split()[at : at + more + 1])
            words[text] = words.get(text, 0.0) + p[row, k, first, more]
        best = max(words, key=words.get)
        assert answer["text"] == best
        assert answer["probability"] == pytest.approx(words[best], rel=2e-3)
        assert answer["score"] == pytest.approx(np.log(answer["probability"]))
        for each in answer["n_best"]:
            assert each["passage"] == TEXTS[each["passage_id"]]
            assert each["passage"][each["start"] : each["end"]] == each["text"]
            assert each["probability"] <= words[each["text"]] * 1.001
    single = task.predict(QUESTIONS[0], verbose=0)
    assert single["text"] == found[0]["text"]


@pytest.mark.slow
@pytest.mark.any_backend
def test_saved_and_loaded(task, tmp_path):
    x = arrays(task.preprocessor(QUESTIONS[:2]))
    expected = ops.convert_to_numpy(task.log_probabilities(task(x)))
    task.save(tmp_path / "task.keras")
    task.save_to_preset(str(tmp_path / "preset"))
    for other in (
        keras.saving.load_model(tmp_path / "task.keras"),
        tasks.OpenQuestionAnswering.from_preset(str(tmp_path / "preset")),
    ):
        assert other.preprocessor.num_passages == 3 and other.max_answer_length == 2
        found = ops.convert_to_numpy(other.log_probabilities(other(x)))
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_fit_and_answers():
    task = make_task()
    search = task.preprocessor.search
    history = task.fit(QUESTIONS, answers(), 4, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["answers_found"][-1] == 1.0
    assert history["exact_match"][-1] >= 0.75
    found = task.evaluate(QUESTIONS, answers(), 4, return_dict=True, verbose=0)
    predicted = task.predict(QUESTIONS, verbose=0)
    y = [{"text": texts} for texts in answers()]
    scores = squad_scores(y, [answer["text"] for answer in predicted])
    report = task.report(QUESTIONS, answers())
    assert report.scores == pytest.approx(scores) and scores["exact_match"] >= 75
    assert found["exact_match"] >= 0.75
    # Passages are looked up by the trained question encoder afterwards.
    x = arrays(task.preprocessor(QUESTIONS[:2]))
    query = {name[6:]: x[name] for name in x if name.startswith("query_")}
    ours = ops.convert_to_numpy(task.retriever.query_vectors(query))
    expected = search.index.search(ours, 3)[1]
    np.testing.assert_array_equal(x["passage_ids"], expected)


@pytest.mark.slow
@pytest.mark.any_backend
def test_an_epoch_that_teaches_nothing_says_so():
    task = make_task()
    with pytest.warns(UserWarning, match="no question had an answer in the passages"):
        history = task.fit(QUESTIONS[:2], ["nowhere", "at all"], verbose=0).history
    assert history["loss"] == [0.0] and history["answers_found"] == [0.0]


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_question_that_is_too_long(task):
    with pytest.raises(ValueError, match="^`x` must be queries that fit.*in row 1"):
        task.predict(["the cat", "the cat " * 50], verbose=0)


def test_bad_input(task):
    backbone, retriever = task.backbone, task.retriever
    cls = tasks.OpenQuestionAnswering
    for arguments, message in (
        ((backbone,), "`retriever` must be a .*Received: NoneType"),
        ((backbone, None, retriever, "all"), "`normalization` must be one of"),
        ((backbone, None, retriever, "joint", -1), "`retrieval_weight` must be a"),
        ((backbone, None, retriever, "joint", 0, False, 0), "`max_answer_length` must"),
        ((backbone, task.preprocessor, retriever), "must have max_answer_length=10"),
        (
            (backbone, task.preprocessor, retriever, "joint", 0, True, 2),
            "must have passage_rows=True, as the task has. .*=False",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            cls(*arguments)
    for call, message in (
        (lambda: task.fit(QUESTIONS), "`y` must be the labels of `x`. Received: None"),
        (
            lambda: task.fit(QUESTIONS, answers()[:2]),
            "`y` must be a list of the answers",
        ),
        (lambda: task.predict([]), "`x` must have at least one example"),
        (lambda: task.fit([], []), "`x` must have at least one example"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(Exception, match="`x` must be queries that fit into rows of 12"):
        task.predict([" ".join(["cat"] * 20)], verbose=0)
