import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.layers.heads.biaffine import BiaffineHead
from keras_bertfam.models import FeatureBackbone
from keras_bertfam.tasks import DependencyParser, DependencyParserPreprocessor
from tests import tiny_fine_tuning as tiny
from tests.tiny_masked_lm import WORDS

NAMES = ["root", "nsubj", "obj"]
SENTENCES = [["the", "cats", "sat"], ["reding", "mat"], ["a"]]
TREES = [
    [(2, "obj"), (3, "nsubj"), (0, "root")],
    [(0, "root"), (1, "obj")],
    [(0, "root")],
]


def make_preprocessor(length=16, **kwargs):
    return DependencyParserPreprocessor(tiny.make_tokenizer(), length, **kwargs)


def make(family="bert", backbone=None, **kwargs):
    layout = "xlnet" if family == "xlnet" else None
    model = DependencyParser(
        backbone or tiny.make_backbone(family, num_layers=1),
        preprocessor=make_preprocessor(layout=layout),
        label_names=NAMES,
        arc_dim=8,
        relation_dim=6,
        **kwargs,
    )
    return tiny.compiled(model)


def chains(count=40):
    """Sentences in which each word depends on the next one, by a kind of its own."""
    rng = np.random.default_rng(0)
    rows = [list(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(count)]
    trees = [
        [
            (k + 2, "obj" if WORDS.index(word) % 2 else "nsubj")
            for k, word in enumerate(row[:-1])
        ]
        + [(0, "root")]
        for row in rows
    ]
    return rows, trees


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def scores_by_hand(head, states):
    """Scores of arcs and relations in numpy, of one sentence."""

    def weights(name):
        return [ops.convert_to_numpy(w) for w in getattr(head, name).weights]

    def perceptron(name, x):
        kernel, bias = weights(name)
        return elu(x @ kernel + bias)

    rooted = np.concatenate([ops.convert_to_numpy(head.root)[None], states])
    d, h = perceptron("arc_dependent", states), perceptron("arc_head", rooted)
    kernel, bias = weights("arcs")
    arcs = np.array([[x @ kernel @ y + bias @ y for y in h] for x in d])
    d = perceptron("relation_dependent", states)
    h = perceptron("relation_head", rooted)
    kernel, bias = weights("relations")
    logits = np.zeros((len(d), len(h), head.num_classes))
    for i, x in enumerate(d):
        form = (x @ kernel + bias).reshape(head.num_classes, -1)
        for j, y in enumerate(h):
            logits[i, j] = form @ np.append(y, 1)
    return arcs, logits


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.slow
def test_scores_and_loss_are_those_of_a_few_lines_of_numpy():
    model = make()
    for weight in model.head.weights:
        value = np.random.default_rng(1).normal(0, 0.5, weight.shape)
        if "seed" not in weight.path:
            weight.assign(value.astype("float32"))
    x, y, weights = model.preprocessor(SENTENCES, TREES)
    x = {name: np.asarray(value) for name, value in x.items()}
    y, weights = np.asarray(y), np.asarray(weights)
    outputs = model(x, training=False)
    rows = {k: v for k, v in x.items() if not k.startswith("word")}
    states = ops.convert_to_numpy(model.backbone(rows)["sequence_output"])
    total = 0.0
    for row, sentence in enumerate(SENTENCES):
        n = len(sentence)
        of_words = states[row, x["word_positions"][row, :n]]
        arcs, logits = scores_by_hand(model.head, of_words)
        arcs[np.arange(n), np.arange(n) + 1] = -1e30
        found = ops.convert_to_numpy(outputs["arcs"])[row, :n, : n + 1]
        np.testing.assert_allclose(found, arcs, rtol=1e-4, atol=1e-4)
        for word, (head, relation) in enumerate(TREES[row]):
            total -= log_softmax(arcs[word])[head]
            total -= log_softmax(logits[word, head])[NAMES.index(relation)]
    loss = model.compute_loss(x, y, outputs, weights)
    assert float(ops.convert_to_numpy(loss)) == pytest.approx(total / 6, rel=1e-4)
    # Without right heads there is the best relation to each.
    asked = model({k: v for k, v in x.items() if k != "word_heads"}, training=False)
    arcs, logits = scores_by_hand(model.head, states[0, x["word_positions"][0, :3]])
    best = ops.convert_to_numpy(asked["relations"])[0, :3, :4]
    np.testing.assert_array_equal(best, logits.argmax(-1))
    # Words beyond a sentence are no heads.
    assert (ops.convert_to_numpy(asked["arcs"])[2, 0, 1:] < -1e29).all()


@pytest.mark.any_backend
def test_a_head_has_the_papers_weights():
    head = BiaffineHead(7)
    head.build((None, None, 800))
    assert head.arcs.count_params() == 250_500
    assert head.relations.count_params() == 7 * 10_201
    again = BiaffineHead.from_config(head.get_config())
    assert again.get_config() == head.get_config()
    assert head.compute_output_shape((2, 5, 800)) == ((2, 5, 6), (2, 5, 6, 7))


@pytest.mark.slow
@pytest.mark.any_backend
def test_what_is_cut_has_no_weight():
    made = make_preprocessor(6, label_names=NAMES)
    words = [["the", "cat", "a", "the", "mat", "dog"]]  # of which four begin in a row
    trees = [[(2, "obj"), (6, "nsubj"), (0, "root"), (4, "obj"), (6, "obj"), (1, -100)]]
    trees[0][3] = (1, "obj")
    with pytest.warns(UserWarning, match="cut 1 of 1 sentences"):
        x, y, weights = made(words, trees)
    assert weights.numpy()[0, :6].tolist() == [1, 0, 1, 1, 0, 0]
    assert x["word_heads"].numpy()[0, :4].tolist() == [2, 0, 0, 1]
    assert y.numpy()[0, :4].tolist() == [2, 0, 0, 2]
    _, _, weights = make_preprocessor(label_names=NAMES)(
        words, [[*trees[0][:5], (1, -100)]], [[1.0, 2, 3, 4, 5, 6]]
    )
    assert weights.numpy()[0, :6].tolist() == [1, 2, 3, 4, 5, 0]


@pytest.mark.slow
@pytest.mark.any_backend
def test_lists_tensors_and_datasets_give_the_same():
    made = make_preprocessor(label_names=NAMES)
    expected = made(SENTENCES, TREES)
    words = tf.ragged.constant(SENTENCES).to_tensor("")
    pairs = [[[str(head), name] for head, name in row] for row in TREES]
    pairs = tf.ragged.constant(pairs, ragged_rank=1, inner_shape=(2,)).to_tensor("")
    tf.nest.map_structure(np.testing.assert_array_equal, made(words, pairs), expected)
    numbers = [[(head, NAMES.index(name)) for head, name in row] for row in TREES]
    found = make_preprocessor(num_classes=3)(SENTENCES, numbers)
    tf.nest.map_structure(np.testing.assert_array_equal, found, expected)
    rows = [tf.constant(row) for row in SENTENCES]
    labels = [tf.constant([[str(h), r] for h, r in row]) for row in TREES]

    def each():
        yield from zip(rows, labels, strict=True)

    signature = tuple(tf.TensorSpec(shape, tf.string) for shape in ((None,), (None, 2)))
    data = tf.data.Dataset.from_generator(each, output_signature=signature)
    one = next(iter(made.dataset(data, 3, training=False)))
    other = next(iter(made.dataset((SENTENCES, TREES), 3, training=False)))
    tf.nest.map_structure(np.testing.assert_array_equal, one, other)
    single = made(SENTENCES[0], TREES[0])
    assert single[0]["word_heads"].numpy()[:3].tolist() == [2, 3, 0]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[(0, "root")]], "Received: 1 labels for the 2 words of row 0"),
        ([[(0, "root"), 3]], r"`\(head, relation\)` for each word.*row 0: 3"),
        ([[(0, "root"), (3, "obj")]], "number of a word of their sentence.*3.*row 0"),
        ([[(0, "root"), (2, "obj")]], "heads that are other words.*in row 0"),
        ([[(0, "root"), (1, "what")]], "of label_names.*what"),
        ([[(0, "root"), (1.5, "obj")]], "numbers of words, or 0.*row 0: 1.5"),
        ([[(0, "root"), (-1, "obj")]], "number of a word of their sentence.*-1"),
        ([[(0, "root"), (2**32 + 1, "obj")]], "number of a word of their sentence"),
        (np.zeros((1, 3, 2), int), r"the shape \(1, 2, 2\)"),
        (np.array([[[0, 0], [2, 1]]]), "heads that are other words"),
    ],
)
def test_labels_that_can_not_be(y, message):
    made = make_preprocessor(label_names=NAMES)
    with pytest.raises(ValueError, match=message):
        made([["a", "cat"]], y)


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_sentence_is_a_row():
    with pytest.raises(ValueError, match="`packed` must be `False` for a parser"):
        make_preprocessor(packed=True)
    model = make()
    with pytest.raises(ValueError, match="split a text first"):
        model.parse("the cat")
    with pytest.raises(ValueError, match="`sentences` must have words.*row 1: 'the"):
        model.parse([["a", "cat"], "the cat"])
    model.head.set_weights([w * np.nan for w in model.head.get_weights()])
    with pytest.raises(ValueError, match="with nan or infinity"):
        model.parse([["a", "cat"]])
    plain = DependencyParser(tiny.make_backbone(num_layers=1), 3)
    with pytest.raises(ValueError, match="`parse` needs a task with a preprocessor"):
        plain.parse([["a"]])


@pytest.mark.slow
@pytest.mark.parametrize("features", [False, True])
def test_it_learns_and_is_saved(features, tmp_path):
    words, trees = chains()
    backbone = None
    if features:
        backbone = tiny.make_backbone(num_layers=1)
        backbone = FeatureBackbone(backbone, lstm_dim=16, dropout=0.0)
    model = make(backbone=backbone, dropout=0.0)
    history = model.fit(words, trees, batch_size=8, epochs=20, verbose=0).history
    assert history["loss"][-1] < 0.4 * history["loss"][0]
    assert {"arcs_accuracy", "relation_logits_accuracy"} < {*history}
    report = model.report(words, trees, worst=3)
    assert min(report.scores.values()) > (0.7 if features else 0.9)
    assert {*report.classes} == {*NAMES} and "las" in str(report)
    scores = model.evaluate(words, trees, batch_size=8, return_dict=True, verbose=0)
    assert scores["arcs_accuracy"] > 0.7
    parsed = model.parse([*words[:3], []])
    assert [word for word, _, _ in parsed[0]] == words[0] and parsed[3] == []
    assert sum(head == 0 for _, head, _ in parsed[0]) == 1
    (answer,) = model.answers([[" ".join(words[0])]])
    assert answer["heads"] == [head for _, head, _ in parsed[0]]
    model.save_to_preset(str(tmp_path))
    again = DependencyParser.from_preset(str(tmp_path))
    assert again.parse(words[:3]) == parsed[:3]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.parse(words[:3]) == parsed[:3]


@pytest.mark.slow
@pytest.mark.any_backend
def test_words_without_room_have_no_head():
    model = make()
    tree = model.parse(["cats"] * 20)
    assert [head for _, head, _ in tree][7:] == [None] * 13
    assert all(head is not None for _, head, _ in tree[:7])


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["roberta", "albert", "xlnet"])
def test_families(family):
    model = make(family)
    words, trees = chains(8)
    history = model.fit(words, trees, batch_size=4, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert len(model.parse(words)) == 8
