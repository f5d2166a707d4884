import dataclasses
import sys

import keras
import numpy as np
import pytest

from keras_bertfam import analysis
from keras_bertfam.datasets import Examples
from keras_bertfam.datasets.task_data import get_task
from keras_bertfam.metrics import TaskMetrics, compute_metrics, scheme_of
from keras_bertfam.metrics.callback import predicted_labels
from keras_bertfam.metrics.scores import METRICS


def test_class_metrics_against_their_formulas():
    y_true = [1, 1, 1, 0, 0, 0, 0, 1]
    y_pred = [1, 0, 1, 0, 1, 0, 0, 0]
    tp, fn, fp, tn = 2, 2, 1, 3
    scores = compute_metrics(["accuracy", "f1", "matthews"], y_true, y_pred)
    assert scores["accuracy"] == pytest.approx(5 / 8)
    assert scores["f1"] == pytest.approx(2 * tp / (2 * tp + fp + fn))
    below = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert scores["matthews"] == pytest.approx((tp * tn - fp * fn) / below)
    constant = compute_metrics(["f1", "matthews"], y_true, [0] * 8)
    assert constant == {"f1": 0.0, "matthews": 0.0}


def test_correlations():
    y_true, y_pred = [1.0, 2.0, 3.0, 5.0], [[0.1], [0.4], [0.3], [9.0]]
    scores = compute_metrics(["pearson", "spearman"], y_true, y_pred)
    assert scores["pearson"] == pytest.approx(
        np.corrcoef(y_true, np.ravel(y_pred))[0, 1]
    )
    assert scores["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert compute_metrics(["pearson"], y_true, [1.0] * 4) == {"pearson": 0.0}


def test_scores_of_texts():
    right, written = ["the cat sat on a mat"], ["the cat sat on the mat"]
    names = ["bleu", "rouge1", "rouge2", "rougeL", "rougeLsum", "chrf"]
    scores = compute_metrics(names, right, written)
    # Of 6 words 5 are right, of 5 pairs 3, of 4 triples 2, and 1 of 3 of four words.
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert scores["bleu"] == pytest.approx(expected)
    assert scores["rouge1"] == pytest.approx(100 * 5 / 6)
    assert scores["rouge2"] == pytest.approx(100 * 3 / 5)
    assert scores["rougeL"] == scores["rougeLsum"] == scores["rouge1"]
    assert 50 < scores["chrf"] < 100
    # The best of several references counts; there may be more of one text.
    several = [[*right, *written], "cats"]
    scores = compute_metrics(names, several, [*written, "cat"])
    assert scores["rouge1"] == pytest.approx(100)  # stems
    assert scores["bleu"] < scores["rougeL"]


def test_entity_f1_is_of_whole_entities():
    """An I after O begins an entity, as in conlleval; a wrong end is an error."""
    y_true = [["B-a", "I-a", "O", "B-b"], ["O", "B-a"]]
    y_pred = [["B-a", "I-a", "O", "I-b"], ["B-a", "I-a"]]
    scores = compute_metrics(["entity_f1", "word_accuracy"], y_true, y_pred)
    assert scores["entity_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert scores["word_accuracy"] == pytest.approx(3 / 6)


WHOLE = {  # one entity of two words and one of one
    "CONLL": "B-PER I-PER O B-LOC",
    "IOBES": "B-PER E-PER O S-LOC",
    "BILOU": "B-PER L-PER O U-LOC",
}


@pytest.mark.parametrize("scheme", WHOLE)
def test_schemes_of_entities(scheme):
    pytest.importorskip("seqeval")
    right = WHOLE[scheme].split()
    assert scheme_of(right) == scheme
    entities = [((0, 2), "PER"), ((3, 4), "LOC")]
    assert analysis.entities([right]) == [entities]
    none = [*right[:2], -100, right[3]]
    assert analysis.entities([none], scheme=scheme) == [entities]
    for place, wrong in ((1, "O"), (0, "O"), (3, "B-PER"), (1, "B-PER")):
        tags = [*right]
        tags[place] = wrong
        (score,) = compute_metrics(["entity_f1"], [right], [tags]).values()
        assert score < 1, tags
    scores = compute_metrics(["entity_f1"], [right], [right], scheme=scheme)
    assert scores == {"entity_f1": 1.0}
    # What isn't whole is no entity, but by the official reading.
    found = analysis.entities([["I-PER", "O"]], scheme=scheme)
    assert found == [[((0, 1), "PER")] if scheme == "CONLL" else []]


def test_words_without_a_label_are_not_scored():
    pytest.importorskip("seqeval")
    for none in (-100, "-100"):
        y = [["B-PER", none, "O"], [none]]
        tags = [["B-PER", "I-PER", "B-LOC"], ["O"]]
        scores = compute_metrics(["entity_f1", "word_accuracy"], y, tags)
        assert scores == {"entity_f1": pytest.approx(2 / 3), "word_accuracy": 0.5}


def test_schemes_that_make_no_sense():
    with pytest.raises(ValueError, match="Tags must be of one scheme"):
        scheme_of(["U-PER", "S-PER"])
    with pytest.raises(ValueError, match="`scheme` must be `None` or one of"):
        compute_metrics(["accuracy"], [1], [1], scheme="IO")


def test_errors(monkeypatch):
    with pytest.raises(ValueError, match="`y_true` must have at least one label"):
        compute_metrics(["entity_f1", "bleu", "accuracy"], [], [])
    with pytest.raises(ValueError, match="`names` must be some of .* Received: meteor"):
        compute_metrics(["f1", "meteor"], [1], [1])
    with pytest.raises(ValueError, match="equally long. Received: 1 and 2"):
        compute_metrics(["f1"], [1], [1, 0])
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    with pytest.raises(ImportError, match=r"needs seqeval.metrics: pip install"):
        compute_metrics(["entity_f1"], [["O"]], [["O"]])
    # Before anything is trained.
    examples = Examples([["a"]], [["O"]], get_task("wnut17"))
    with pytest.raises(ImportError, match="pip install"):
        TaskMetrics(examples)


class Doubt(keras.Model):
    """Predicts class 1 with a probability that training changes."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        return self.dense(x)


def test_callback_adds_logs_that_others_monitor():
    x = np.eye(2, dtype="float32")[[0, 1, 0, 1]]
    y = [0, 1, 0, 1]
    examples = Examples(x, y, get_task("mrpc"))
    model = Doubt()
    model.compile(
        keras.optimizers.Adam(0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    metrics = TaskMetrics(examples)
    stop = keras.callbacks.EarlyStopping("val_f1", mode="max", patience=2)
    history = model.fit(
        x, np.array(y), epochs=20, callbacks=[metrics, stop], verbose=0
    ).history
    assert history.keys() == {"loss", "val_f1", "val_accuracy"}
    assert history["val_f1"][-1] == 1.0
    assert len(history["loss"]) < 20  # stopped by it
    assert metrics.compute() == {"f1": 1.0, "accuracy": 1.0}


class Says:
    """Predicts classes of its own names, in their order."""

    def __init__(self, *label_names):
        self.label_names = list(label_names)

    def predict(self, x, **kwargs):
        return np.eye(len(self.label_names))


def test_classes_are_compared_by_name():
    examples = Examples(["a", "b", "c"], [2, 0, 1], get_task("mnli"))
    names = ["CONTRADICTION", "ENTAILMENT", "NEUTRAL"]
    assert predicted_labels(Says(*names), examples) == [2, 0, 1]
    assert TaskMetrics(examples).compute(Says(*names)) == {"accuracy": 1.0}
    with pytest.raises(ValueError, match="`label_names` must be those of 'mnli'"):
        predicted_labels(Says("yes", "no", "maybe"), examples)
    # Names that differ in case only are two classes.
    cased = ("Good", "bad", "good")
    own = dataclasses.replace(get_task("mnli"), label_names=cased)
    examples = Examples(["a", "b", "c"], [0, 1, 2], own)
    assert predicted_labels(Says(*cased), examples) == [0, 1, 2]
    assert predicted_labels(Says("good", "Good", "bad"), examples) == [2, 0, 1]
    with pytest.raises(ValueError, match="must be those of 'mnli'"):
        predicted_labels(Says("GOOD", "bad", "good"), examples)


class Tags(Says):
    def tag(self, x, *args, **kwargs):
        words = [("Bonn", self.label_names[1], 0.9), ("is", self.label_names[0], 0.9)]
        return [words for _ in x]


def test_tags_are_compared_by_name():
    task = get_task("wnut17")
    task = dataclasses.replace(task, label_names=("O", "B-location"))
    examples = Examples([["Bonn", "is"]], [["B-location", "O"]], task)
    for names in (("O", "B-location"), ("o", "b-LOCATION"), ("O", "B-location", "B-x")):
        assert TaskMetrics(examples, ["entity_f1"]).compute(Tags(*names)) == {
            "entity_f1": 1.0
        }
    with pytest.raises(ValueError, match="`label_names` must be those of 'wnut17'"):
        predicted_labels(Tags("O", "B-LOC"), examples)
    outside = dataclasses.replace(
        examples, task=dataclasses.replace(task, label_names=("O",))
    )
    assert predicted_labels(Tags("O", "B-LOC"), outside) == [["B-LOC", "O"]]


class Answers:
    def predict(self, x, **kwargs):
        return [{"text": "Bonn"}, {"text": "Rome"}]


def test_open_questions_are_scored():
    examples = Examples(["where?", "who?"], [["Bonn"], ["Bert"]], get_task("nq_open"))
    assert TaskMetrics(examples).compute(Answers())["open_exact_match"] == 50.0


def test_callback_refuses_what_it_cannot_score():
    task = get_task("mrpc")
    with pytest.raises(ValueError, match="`examples` must have labels"):
        TaskMetrics(Examples(["a"], None, task))
    with pytest.raises(ValueError, match="`metrics` must be some of"):
        TaskMetrics(Examples(["a"], [1], task), metrics=["meteor"])
    texts = Examples(["a"], ["b"], get_task("xsum"))
    with pytest.raises(ValueError, match="`examples` must not be of texts to write"):
        TaskMetrics(texts).compute(Answers())


@pytest.mark.parametrize("metric", ["f1", "squad_f1", "entity_f1", "micro_f1", "bleu"])
def test_metrics_that_do_not_fit_are_refused_before_training(metric):
    examples = Examples(["a", "b", "c"], [0, 1, 2], get_task("cb"))
    with pytest.raises(ValueError, match=f"fit the labels of 'cb'.*'{metric}', which"):
        TaskMetrics(examples, metrics=[metric])


def test_labels_that_are_not_there():
    assert compute_metrics(["word_accuracy"], [[-100]], [["A"]])["word_accuracy"] == 0
    with pytest.raises(ValueError, match=r"once each for micro_f1.* \[1, 0, 1\]"):
        compute_metrics(["micro_f1"], [[1, 0, 1]], [[0, 1]])


def test_every_metric_of_the_tasks_exists():
    from keras_bertfam.datasets.task_data import TASKS

    assert {name for task in TASKS.values() for name in task.metrics} <= METRICS.keys()


def test_texts_that_have_no_score():
    with pytest.raises(ValueError, match="must be a list for micro_f1.*'joy'"):
        compute_metrics(["micro_f1"], ["joy"], ["yoj"])
    for name in ("bleu", "rouge1"):
        with pytest.raises(ValueError, match="`y_true` must have a reference"):
            compute_metrics([name], [[], ["a cat"]], ["a cat", "a dog"])
    with pytest.warns(UserWarning, match="1 of 2 references .*'кошка сидит'"):
        found = compute_metrics(["rouge1"], ["кошка сидит", "a cat"], ["a", "a cat"])
    assert found == {"rouge1": 50.0}
    assert compute_metrics(["word_macro_f1"], [[-100]], [["O"]])["word_macro_f1"] == 0


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("I-PER E-PER O E-LOC", "IOE2"),
        ("B-PER E-PER O B-LOC", "CONLL"),
        ("B-PER M-PER M-PER E-PER S-LOC", "CONLL"),
        ("B M E S O", "CONLL"),
    ],
)
def test_other_schemes_of_entities(tags, scheme):
    pytest.importorskip("seqeval")
    row = tags.split()
    assert scheme_of(row) == scheme
    assert compute_metrics(["entity_f1"], [row], [row]) == {"entity_f1": 1.0}
    wrong = [*row[:-1], "O" if row[-1] != "O" else "S"]
    assert compute_metrics(["entity_f1"], [row], [wrong])["entity_f1"] < 1


def test_tags_that_mark_no_entities():
    pytest.importorskip("seqeval")
    for tags in (["NOUN", "CCONJ"], ["PER", "O", "ORG"], ["0", "1"]):
        with pytest.raises(ValueError, match="for entity_f1. Received"):
            compute_metrics(["entity_f1"], [tags], [tags])
