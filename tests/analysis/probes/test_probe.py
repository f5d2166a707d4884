"""Probes of states of which it is known what can be read off them."""

import itertools
import types

import keras
import numpy as np
import pytest
from keras import ops
from sklearn.linear_model import LogisticRegression

from keras_bertfam.analysis import probe
from keras_bertfam.analysis.probes import probe as probing
from keras_bertfam.analysis.probes.classifiers import Probes, Spans, shuffled, train
from keras_bertfam.analysis.probes.data import read_targets
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import EncoderBackbone
from tests.tiny_masked_lm import SPECIALS

WORDS = [a + b for a in "bcdfg" for b in "aeiou"]
CLASSES = 4
FAST = {"learning_rate": 0.1, "epochs": 8}


def sentences(count=60, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.choice(WORDS, rng.integers(3, 9)).tolist() for _ in range(count)]


def labels_of(words):
    return [[WORDS.index(word) % CLASSES for word in row] for row in words]


def label_backbone():
    """A model whose layers all give each word's one-hot label, and nothing else."""
    size = len(SPECIALS) + len(WORDS)
    backbone = EncoderBackbone(
        *(size, 2, 2, CLASSES, 4),
        max_sequence_length=None,
        norm_first=True,
        embedding_norm=False,
    )
    for weight in backbone.weights:
        if not weight.path.endswith("gamma"):
            weight.assign(ops.zeros(weight.shape))
    table = np.zeros((size, CLASSES))
    table[len(SPECIALS) :] = np.eye(CLASSES)[np.arange(len(WORDS)) % CLASSES]
    backbone.token_embedding.embeddings.assign(table)
    return backbone, BertTokenizer([*SPECIALS, *WORDS], lowercase=True)


def given_states(monkeypatch, states):
    """Has probes see some states, `(words, layers, dim)`, whatever the model."""
    monkeypatch.setattr(probing, "WordRows", lambda *_: None)
    monkeypatch.setattr(probing, "layer_states", lambda *_: states)


@pytest.mark.slow
def test_one_hot_labels_are_found_and_the_control_task_is_not(tmp_path, monkeypatch):
    words = sentences(100)
    y = labels_of(words)
    backbone, tokenizer = label_backbone()

    given = {"tokenizer": tokenizer}

    def report():
        return probe(backbone, words, y, control=True, cache=tmp_path, **given, **FAST)

    first = report()
    assert first.scores.tolist() == [[1, 1, 1, 1]]
    assert first.control_scores.max() < 0.6
    targets = read_targets(words, y)
    parts = probing._parts(targets, len(words), True)
    control = targets.control_labels(parts[0])
    counts = np.zeros((CLASSES, CLASSES))
    np.add.at(counts, (targets.labels[parts[0]], control[parts[0]]), 1)
    guess = counts.argmax(1)[targets.labels[parts[2]]]
    chance = np.mean(guess == control[parts[2]])
    # Where two labels are about as frequent, it may take the other one.
    np.testing.assert_allclose(first.control_scores, chance, atol=0.12)
    np.testing.assert_allclose(first.selectivity, 1 - chance, atol=0.12)
    # The states are there now; with other weights they are others.
    with monkeypatch.context() as patched:
        patched.setattr(probing, "_fill", None)
        np.testing.assert_array_equal(report().scores, first.scores)
    backbone.token_embedding.embeddings.assign(np.ones((30, CLASSES)))
    rows = probing.WordRows(backbone, words, tokenizer)
    other = probing.layer_states(rows, "first", tmp_path)
    np.testing.assert_array_equal(other[:, 0], 1)
    assert len([*tmp_path.glob("*.npy")]) == 2


def test_a_layer_that_adds_all_is_the_expected_one(monkeypatch):
    """Layer 1 has the labels, layer 0 nothing, layer 2 what layer 1 has."""
    words = sentences()
    flat = np.concatenate(labels_of(words))
    one_hot = np.eye(CLASSES, dtype="float32")[flat]
    given_states(monkeypatch, np.stack([0 * one_hot, one_hot, 0 * one_hot], axis=1))
    report = probe(None, words, labels_of(words), cumulative=True, seeds=(0, 1), **FAST)
    assert report.probes == ["0", "0-1", "0-2"] and report.scores.shape == (2, 3)
    np.testing.assert_array_equal(report.scores[:, 1:], 1)
    assert report.expected_layer == 1
    # Only layer 1 is of use, so that the mix goes there.
    assert report.mix_weights.argmax(1).tolist() == [1, 1]
    assert "expected layer 1.00" in str(report)


@pytest.mark.any_backend
def test_edge_probes_attend_to_the_word_that_tells(monkeypatch):
    """The label of a span is that of its one word that isn't zero."""
    rng = np.random.default_rng(0)
    words = [["x"] * 6 for _ in range(200)]
    states = np.zeros((1200, 1, 8), "float32")
    labels = []
    for row in range(200):
        begin, label = int(rng.integers(0, 3)), int(rng.integers(0, 2))
        end = begin + int(rng.integers(1, 4))
        if row == 0:
            begin, end = 0, 6  # longer than others, as in few batches
        states[row * 6 + rng.integers(begin, end), 0, label] = 3
        states[row * 6 + end : row * 6 + 6, 0, 1 - label] = 3  # outside
        labels.append([((begin, end), label)])
    given_states(monkeypatch, states)
    fast = {"pool": "first", "learning_rate": 0.01, "epochs": 20}
    report = probe(None, words, labels, "edge", **fast)
    assert report.metric == "micro_f1" and report.scores.max() == 1


@pytest.mark.slow
def test_edge_probes_find_any_number_of_labels(monkeypatch):
    """Each label is a number of the state; a third of the targets have none."""
    rng = np.random.default_rng(0)
    there = rng.random((600, 3)) < [0.5, 0.3, 0.2]
    states = there.astype("float32")[:, None]
    given_states(monkeypatch, states)
    labels = [[*itertools.compress("abc", each)] for each in there]
    rows = [[*enumerate(labels[at : at + 6])] for at in range(0, 600, 6)]
    words = [[f"{row}.{k}" for k in range(6)] for row in range(100)]
    fast = {"pool": "first", "learning_rate": 0.01, "epochs": 20}
    report = probe(None, words, rows, "edge", control=True, **fast)
    assert report.label_names == ["a", "b", "c"] and report.scores.tolist() == [[1]]
    assert report.control_scores.max() < 0.8
    # Single labels in lists are as without the lists, also where a span is longer.
    rows[0] = [((0, 6), ["a"])]
    only = [[(span, [*names[:1], "none"][:1]) for span, names in row] for row in rows]
    bare = [[(span, name) for span, [name] in row] for row in only]
    scores = [
        probe(None, words, each, "edge", pool="first", epochs=2).scores
        for each in (only, bare)
    ]
    np.testing.assert_array_equal(*scores)


@pytest.mark.any_backend
def test_micro_f1_and_losses_of_sets_are_those_by_hand(monkeypatch):
    targets = read_targets(
        [["x"] * 4], [[(0, ["b", "a", "b"]), (1, []), (2, ["a"]), (3, "c")]]
    )
    assert targets.names == ["a", "b", "c"]
    sets = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert targets.sets.astype(int).tolist() == sets
    assert targets.labels.tolist() == [2, 0, 1, 3]
    states = np.zeros((4, 1, 2), "float32")
    labels = [targets.labels]
    runner = probing._Runner("edge", True, states, targets, labels, 1e-3)
    logits = np.array([[2.0, -1, 0.3], [-1, -2, -3], [0.4, 1, -2], [-1, -1, -1]])
    runner.logits = lambda rows: logits[rows][:, None]
    rows = np.arange(4)
    # 4 labels there, 4 said from a logit of 0 on, 2 of these right.
    assert runner.scores(rows, "micro_f1").tolist() == [2 * 2 / (4 + 4)]
    gold = targets.sets[targets.labels]
    p = 1 / (1 + np.exp(-logits))
    losses = -np.where(gold, np.log(p), np.log(1 - p)).mean(-1)
    np.testing.assert_allclose(runner.losses(rows)[:, 0], losses)
    y = gold[:, None]
    loss = runner.model.compute_loss(y=y, y_pred=ops.convert_to_tensor(logits[:, None]))
    assert float(loss) == pytest.approx(losses.mean(), rel=1e-5)
    # Nothing there and nothing said.
    assert runner.scores(rows[1:2], "micro_f1").tolist() == [0]


@pytest.mark.any_backend
def test_spans_have_the_tokens_of_their_words():
    """The first token of the first word to the last one of the last, in any part."""
    backbone, _ = label_backbone()
    tokenizer = BertTokenizer([*SPECIALS, "##be", "##bi", *WORDS[:23]], lowercase=True)
    sentences = [["babebi", "ca", "babe"], [], ["ca"], ["ba", "babebibi"]]
    rows = probing.WordRows(backbone, sentences, tokenizer)
    starts = rows.word_starts
    assert starts.tolist() == [0, 3, 4, 6, 7, 8, 12]
    found = probing.layer_states(rows, "pieces")
    assert found.shape == (12, 3, CLASSES)
    first = probing.layer_states(rows, "first")
    np.testing.assert_array_equal(found[starts[:-1]], first)
    # Longer than a row: as its parts.
    starts = probing.WordRows(backbone, [["babebi"] * 400], tokenizer).word_starts
    assert starts.tolist() == [*range(0, 1201, 3)]


@pytest.mark.any_backend
def test_rows_are_made_once(monkeypatch):
    """One pass to tell where pieces begin, and one for their states."""
    passes = []

    class Rows(probing.WordRows):
        def batches(self, size):
            passes.append(self)
            return super().batches(size)

    monkeypatch.setattr(probing, "WordRows", Rows)
    monkeypatch.setattr(probing._Runner, "fit", lambda *_: None)
    backbone, tokenizer = label_backbone()
    words = sentences(4)
    probe(backbone, words, labels_of(words), "edge", tokenizer=tokenizer)
    assert len(passes) == 2 and len({*passes}) == 1


@pytest.mark.any_backend
def test_the_most_frequent_set_is_scored_as_probes_are(monkeypatch):
    """Two of three labels are right, and two of three said; never the whole set."""
    words = [["x"]] * 9
    given_states(monkeypatch, np.zeros((12, 1, 2), "float32"))
    monkeypatch.setattr(probing._Runner, "fit", lambda *_: None)
    labels = [[(0, ["a", "b", "c"])]] * 9
    test = (words[:3], [[(0, ["a", "b"])], [(0, ["c", "d"])], [(0, [])]])
    report = probe(None, words, labels, "edge", pool="first", test=test)
    assert report.majority == 2 * (2 + 1) / (9 + 4)
    said = "micro F1 0.4615 of always saying the most frequent set of labels"
    assert report.title.endswith(said)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["linear", "mlp", "edge"])
def test_pairs_have_a_product(monkeypatch, kind):
    """Whether two words are the same; no linear function of the two alone."""
    words = sentences(150)
    flat = np.concatenate(labels_of(words))
    given_states(monkeypatch, np.eye(CLASSES, dtype="float32")[flat][:, None])
    pairs = [
        [(0, k, "same" if row[0] == row[k] else "other") for k in range(1, len(row))]
        for row in labels_of(words)
    ]
    fast = {"learning_rate": 0.1 if kind == "linear" else 0.003, "epochs": 15}
    report = probe(None, words, pairs, kind, pool="first", **fast)
    assert report.scores.max() == 1 and report.label_names == ["other", "same"]


@pytest.mark.any_backend
def test_a_linear_probe_is_a_logistic_regression(monkeypatch):
    rng = np.random.default_rng(0)
    words, test = ([["x"] * 10 for _ in range(n)] for n in (220, 80))
    y = rng.integers(0, 3, 3000)
    states = (np.eye(3, 5)[y] + rng.normal(0, 0.6, (3000, 5))).astype("float32")
    given_states(monkeypatch, states[:, None])
    rows = y.reshape(300, 10).tolist()
    given = {"test": (test, rows[220:]), "learning_rate": 0.02, "epochs": 15}
    report = probe(None, words, rows[:220], metric="macro_f1", **given)
    theirs = LogisticRegression(C=1e4).fit(states[:2200], y[:2200])
    from sklearn.metrics import f1_score

    expected = f1_score(y[2200:], theirs.predict(states[2200:]), average="macro")
    assert report.counts == (1980, 220, 800)
    np.testing.assert_allclose(report.scores, expected, atol=0.02)


@pytest.mark.any_backend
def test_description_length(monkeypatch):
    """Little is left of labels that are in the states, and nothing saved of others."""
    words = sentences(120)
    flat = np.concatenate(labels_of(words))
    noise = np.random.default_rng(0).normal(size=(len(flat), CLASSES))
    states = np.stack([np.eye(CLASSES)[flat], noise], axis=1).astype("float32")
    given_states(monkeypatch, states)
    report = probe(
        None, words, labels_of(words), description_length=True, control=True, **FAST
    )
    assert report.uniform_bits == 2 * report.counts[0]
    known, noise, _ = report.compression[0]
    assert known > 4 and 0.7 < noise < 1.05
    assert report.control_bits[0, 0] > 2 * report.description_bits[0, 0]
    assert "compression" in str(report)


@pytest.mark.any_backend
def test_scalar_mix():
    """G10: w = (0, ln 2, 0) is (.25, .5, .25); with gamma 2 ones become 2."""
    model = Probes("linear", np.array([[True] * 3, [True, False, False]]), 1, 1, 1, 1)
    model.restart(0)
    model.values["mix"].assign([[0, np.log(2), 0]] * 2)
    model.values["gamma"].assign([2, 2])
    model.values["kernel"].assign(np.ones((2, 1, 1)))
    shares = model.mix_weights()
    np.testing.assert_allclose(shares, [[0.25, 0.5, 0.25], [1, 0, 0]], atol=1e-6)
    x = {"states": np.ones((1, 1, 1, 3, 1)), "mask": np.ones((1, 1, 1), bool)}
    # A single layer is as it is.
    np.testing.assert_allclose(ops.convert_to_numpy(model(x)), [[[2], [1]]], atol=1e-6)


@pytest.mark.any_backend
def test_each_probe_ends_by_itself():
    losses = iter([[3.0, 3], [2, 4], [1, 5], [2, 1], [3, 1], [0, 0]])
    value = keras.Variable(np.zeros(2))
    model = types.SimpleNamespace(mixed=[0, 0], values={"v": value}, epoch=0)

    def batches():
        yield None, None

    def train_on_batch(x, y):
        model.epoch += 1
        value.assign([model.epoch] * 2)

    model.train_on_batch = train_on_batch
    train(model, batches, lambda: np.array(next(losses)), epochs=9, patience=2)
    # The second one has been worse twice when it becomes better.
    assert model.epoch == 5 and ops.convert_to_numpy(value).tolist() == [3, 1]


@pytest.mark.any_backend
def test_spans_have_all_their_words():
    places = np.array([[[0, 1]], [[1, 4]], [[4, 6]]])
    spans = Spans(np.arange(6.0)[:, None, None], places)
    x = spans[np.array([2, 0, 1])]
    sums = (x["states"][..., 0, 0] * x["mask"]).sum(-1)[:, 0]
    assert sums.tolist() == [9, 0, 6]
    model = types.SimpleNamespace(predict_on_batch=lambda x: x["mask"].sum(-1))
    assert spans.logits(model, np.array([1, 0, 2]), 2).tolist() == [[3], [1], [2]]
    sizes = []

    def predict(x):
        sizes.append(x["mask"].shape)
        return x["mask"].sum(-1)

    # Of long spans fewer at once, whatever is beside them.
    long = Spans(np.zeros((9000, 1, 1)), np.array([[[0, 1]], [[0, 9000]], [[5, 8]]]))
    model = types.SimpleNamespace(predict_on_batch=predict)
    assert long.logits(model, np.arange(3)).tolist() == [[1], [9000], [3]]
    assert sizes == [(1, 1, 9000), (256, 1, 4)]
    # As wide as a batch needs, in few steps.
    shape = spans[np.array([0])]["states"].shape
    assert spans.width == 3 and shape == (1, 1, 2, 1, 1)


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["linear", "edge"])
def test_logits_do_not_depend_on_the_width(kind):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(9, 2, 4)).astype("float32")
    spans = Spans(states, np.array([[[0, 2], [3, 4]], [[1, 9], [2, 7]]]))
    model = Probes(kind, np.array([[True, True]]), 2, spans.width, 4, 3)
    model.restart(0)
    alone, both = spans[np.array([0])], spans[np.array([0, 1])]
    assert alone["mask"].shape[-1] == 2 and both["mask"].shape[-1] == 8
    logits = [ops.convert_to_numpy(model(x))[0] for x in (alone, both)]
    np.testing.assert_allclose(*logits, atol=1e-6)


@pytest.mark.any_backend
def test_batches_are_of_one_size():
    rng = np.random.default_rng(0)
    [batch] = shuffled(np.arange(3), 5, rng)
    assert len(batch) == 5 and {*batch.tolist()} == {0, 1, 2}
    batches = np.concatenate([*shuffled(np.arange(7), 3, rng)])
    assert len(batches) == len({*batches.tolist()}) == 6


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"labels": []}, "`labels` must have a list .* sentence. .* 0 for 3"),
        ({"labels": None}, "`labels` must have a list .* None for 3"),
        ({"labels": "abc"}, "`labels` must have a list .* 'abc' for 3"),
        ({"labels": [1, 2, 3]}, r"`labels` must have a list .* \[1, 2, 3\] for 3"),
        ({"labels": [[("a", 1)]] * 3}, r"within the 1 words .* \('a', 1\)"),
        ({"labels": [[((), 1)]] * 3}, r"within the 1 words .* \(\(\), 1\)"),
        ({"test": (["a"], [])}, "`test` must have a list of labels .* 0 for 1"),
        (
            {"labels": [[1, 2]] * 3},
            "`labels` must have a label for each .* 2 for 1 words",
        ),
        ({"labels": [[], [], [(0, 1)]]}, "at least 3 sentences.* 1 sentences"),
        ({"labels": [[None]] * 3}, "must have at least one label.* 0 labels"),
        ({"labels": [[(0, 2, 2)]] * 3}, r"within the 1 words .* 0: \(0, 2, 2\)"),
        ({"labels": [[(0,)]] * 3}, r"one or two spans and a label.*\(0,\)"),
        (
            {"labels": [[(0, 1)], [(0, 0, 1)], []]},
            r"each of one span or .*\[1, 2\] spans",
        ),
        ({"kind": "tree"}, "`kind` must be one of .*'tree'"),
        ({"metric": "bleu"}, "`metric` must be one of .*'bleu'"),
        ({"seeds": ()}, r"`seeds` must be a list of ints.*\(\)"),
        ({"kind": "edge", "description_length": True}, "`description_length`"),
        ({"epochs": 0}, "`epochs` must be at least 1"),
        ({"pool": "last"}, "`pool` must be one of .*'last'"),
        ({"labels": [[(0, [])]] * 3, "kind": "edge"}, "only empty lists"),
        ({"labels": [[(0, ["a", "b"])]] * 3}, 'one for each target, except.*"edge"'),
        (
            {"labels": [[(0, ["a"])], [(0, [])]] * 2, "kind": "edge"}
            | {"metric": "accuracy"},
            "up to 1, down to 0, kind='edge', metric='accuracy'",
        ),
        ({"test": (["a"], [[None]])}, "and of at least one of `test`"),
    ],
)
def test_what_cannot_be_probed(arguments, message):
    arguments = {"labels": [[1]] * 3, **arguments}
    with pytest.raises(ValueError, match=message):
        probe(None, ["a"] * len(arguments["labels"] or "abc"), **arguments)


@pytest.mark.slow
@pytest.mark.any_backend
def test_damaged_states_are_made_anew(tmp_path):
    backbone, tokenizer = label_backbone()
    rows = probing.WordRows(backbone, [WORDS], tokenizer)
    states = probing.layer_states(rows, cache=tmp_path)
    expected = np.array(states)
    assert states.shape == (len(WORDS), 3, CLASSES)
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        for damaged in (bytes(len(content)), content[:-1] + b"z"):
            path.write_bytes(damaged)
            states = probing.layer_states(rows, cache=tmp_path)
            np.testing.assert_array_equal(states, expected)
            assert path.read_bytes() == content


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_seed_gives_the_same_scores_after_others(monkeypatch):
    words = sentences(12)
    labels = labels_of(words)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(sum(map(len, words)), 2, 8)).astype("float32")
    given_states(monkeypatch, states)
    alone, second = (
        probe(None, words, labels, "edge", epochs=2, pool="first", seeds=seeds).scores[
            -1
        ]
        for seeds in ((1,), (0, 1))
    )
    np.testing.assert_array_equal(alone, second)


def test_words_without_a_label_are_no_class():
    targets = read_targets([["a", "b", "c", "d"]], [["x", None, -100, "-100"]])
    assert targets.names == ["x"] and len(targets.places) == 1
