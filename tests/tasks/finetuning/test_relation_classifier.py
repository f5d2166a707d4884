import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.models import FeatureBackbone
from keras_bertfam.tasks import RelationClassifier, RelationClassifierPreprocessor
from tests import every_task as every
from tests import tiny_fine_tuning as tiny
from tests.tiny_masked_lm import WORDS

NAMES = ["none", "treats"]
X = {
    "text": ["the cats sat", "a red mat a dog"],
    "first": [[4, 8], [12, 15]],
    "second": [[9, 12], [2, 9]],
}


def make_preprocessor(length=16, **kwargs):
    return RelationClassifierPreprocessor(tiny.make_tokenizer(), length, **kwargs)


def make(family="bert", backbone=None, length=16, **kwargs):
    layout = "xlnet" if family == "xlnet" else None
    model = RelationClassifier(
        backbone or tiny.make_backbone(family, num_layers=1),
        preprocessor=make_preprocessor(length, layout=layout),
        label_names=NAMES,
        **kwargs,
    )
    return tiny.compiled(model)


def tokens(preprocessor, row):
    """A row in tokens and markers, without padding."""
    known = preprocessor.tokenizer.get_vocabulary()
    names = [*known, *preprocessor.new_tokens]
    return [names[k] for k in row if k != preprocessor.tokenizer.pad_token_id]


def pairs(count=60):
    """Texts of words, of which one class has the second span before the first."""
    rng = np.random.default_rng(0)
    words, spans, labels = [], [], []
    for _ in range(count):
        row = list(rng.choice(WORDS, rng.integers(4, 8)))
        one, other = rng.choice(len(row), 2, replace=False).tolist()
        words.append(row)
        spans.append((one, other))
        labels.append(NAMES[int(one < other)])
    first, second = ([[pair[k], pair[k] + 1] for pair in spans] for k in (0, 1))
    return {"words": words, "first": first, "second": second}, labels


@pytest.mark.slow
@pytest.mark.any_backend
def test_markers_stand_around_the_spans():
    made = make_preprocessor()
    x = made(X, None)
    found = [tokens(made, row) for row in x["token_ids"].numpy()]
    assert found[0] == "[CLS] the [E1] cat ##s [/E1] [E2] sat [/E2] [SEP]".split()
    assert found[1] == "[CLS] a [E2] red mat [/E2] a [E1] dog [/E1] [SEP]".split()
    assert x["word_positions"].numpy().tolist() == [[2, 6], [7, 2]]
    words = {"words": [text.split() for text in X["text"]]}
    spans = {"first": [[1, 2], [4, 5]], "second": [[2, 3], [1, 3]]}
    again = made({**words, **spans}, None)
    tf.nest.map_structure(np.testing.assert_array_equal, again, x)
    rows = [{name: X[name][k] for name in X} for k in range(2)]
    tf.nest.map_structure(np.testing.assert_array_equal, made(rows, None), x)
    single = made(rows[0], None)
    assert single["word_positions"].numpy().tolist() == [2, 6]
    nested = {"text": ["the cat sat"], "first": [[4, 7]], "second": [[4, 11]]}
    (row,) = made(nested, None)["token_ids"].numpy()
    assert tokens(made, row)[2:-1] == "[E2] [E1] cat [/E1] sat [/E2]".split()
    both = {**nested, "second": [[4, 7]]}
    (row,) = made(both, None)["token_ids"].numpy()
    assert tokens(made, row)[2:-2] == "[E1] [E2] cat [/E2] [/E1]".split()
    marked = made.marked(made.as_tensors(X)).numpy()
    assert marked[0] == b"the [E1]cats[/E1] [E2]sat[/E2]"
    # Places are characters, not bytes.
    accents = {"text": ["é à cat"], "first": [[4, 7]], "second": [[0, 1]]}
    assert made.marked(made.as_tensors(accents)).numpy()[0] == (
        "[E2]é[/E2] à [E1]cat[/E1]".encode()
    )


@pytest.mark.slow
@pytest.mark.any_backend
def test_what_is_nearest_to_the_markers_is_kept():
    made = make_preprocessor(12)
    text = "a a a a a cat mat dog red red"  # 10 words; with four markers 14
    x = {"text": [text], "first": [[10, 13]], "second": [[18, 21]]}
    with pytest.warns(UserWarning, match="cut 1 of 1 texts"):
        (row,) = made(x, None)["token_ids"].numpy()
    kept = tokens(made, row)
    assert kept == "[CLS] a a [E1] cat [/E1] mat [E2] dog [/E2] red [SEP]".split()
    # Where there is no room for what is between, what is beside the markers is kept.
    far = {
        "text": ["cat " + "a " * 20 + "dog"],
        "first": [[0, 3]],
        "second": [[44, 47]],
    }
    (row,) = make_preprocessor(12)(far, None)["token_ids"].numpy()
    assert (
        tokens(made, row) == ("[CLS] [E1] cat [/E1] a a a [E2] dog [/E2] [SEP]".split())
        or tokens(made, row).count("a") == 4
    )
    assert {"cat", "dog"} < {*tokens(made, row)}


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in every.KINDS]


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["bert", *SLOW[1:]])
def test_any_tokenizer_has_markers_and_what_is_between(kind):
    made = every.preprocessor_of("RelationClassifier", kind)
    given = every.FINE_TUNING["RelationClassifier"][2]
    x = made(given, None)
    tokenizer = every.tokenizer_of(kind)
    known = tokenizer.vocabulary_size() + len(made.new_tokens) - 4
    for row, text, first, second, at in zip(
        x["token_ids"].numpy(),
        *(given[name] for name in ("text", "first", "second")),
        x["word_positions"].numpy(),
        strict=True,
    ):
        assert row[at].tolist() == [known, known + 2]
        for begin, (one, other), end in zip(at, (first, second), (1, 3), strict=True):
            inside = row[begin + 1 : row.tolist().index(known + end)]
            prefix = " " if kind in ("roberta", "gpt2") else ""
            expected = tokenizer([prefix + text[one:other]]).to_list()[0]
            assert inside.tolist() == expected


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": [[4, 4], [0, 1]]}, "`first` must be spans.*4.*row 0"),
        ({"second": [[9, 13], [0, 1]]}, "`second` must be spans.*13.*row 0"),
        ({"first": [[2**32, 2**32 + 1], [0, 1]]}, "`first` must be spans.*row 0"),
        ({"text": ["a  cat", "dogs bark"], "first": [[1, 3], [0, 1]]}, "spaces alone"),
        ({"first": [[0.5, 1], [0, 1]]}, "`first` must be pairs of ints"),
        ({"first": [[0, 1, 2], [0, 1, 2]]}, "`first` must be pairs of ints"),
        ({"first": [[0, 1], [2]]}, "`first` must be pairs of ints"),
        ({"third": [1, 2]}, "must be a dict of `text` or `words`"),
        ({"first": [0, 1]}, "`first` must be a beginning and an end for each text"),
    ],
)
def test_spans_that_can_not_be(changes, message):
    with pytest.raises(ValueError, match=message):
        make_preprocessor()({**X, **changes}, None)


@pytest.mark.any_backend
def test_what_else_is_refused():
    words = {"words": [["a", "cat"]], "first": [[0, 1]], "second": [[1, 3]]}
    with pytest.raises(ValueError, match=r"`second` .*\[1, 3\], for 2 words in row 0"):
        make_preprocessor()(words, None)
    with pytest.raises(ValueError, match="a span for each list of words"):
        make_preprocessor()({**words, "first": [[0, 1]] * 2}, None)
    with pytest.raises(ValueError, match="`packed` must be `False` for relations"):
        make_preprocessor(packed=True)
    with pytest.raises(ValueError, match="at least 12.*Received: 8"):
        make_preprocessor(8)
    plain = RelationClassifier(tiny.make_backbone(num_layers=1), 2)
    with pytest.raises(ValueError, match="`classify` needs a task with a prep"):
        plain.classify(X)


def test_logits_and_loss_are_those_of_a_few_lines_of_numpy():
    model = make()
    x, y = model.preprocessor(X, ["treats", "none"])
    x = {name: np.asarray(value) for name, value in x.items()}
    rows = {k: v for k, v in x.items() if k != "word_positions"}
    states = ops.convert_to_numpy(model.backbone(rows)["sequence_output"])
    read = np.take_along_axis(states, x["word_positions"][..., None], 1)
    heads = [
        [ops.convert_to_numpy(w) for w in head.logits.weights]
        for head in (model.head, model.second_head)
    ]
    kernel = np.concatenate([heads[0][0], heads[1][0]])
    logits = read.reshape(2, -1) @ kernel + heads[0][1] + heads[1][1]
    found = model(x, training=False)
    np.testing.assert_allclose(ops.convert_to_numpy(found), logits, atol=1e-5)
    odds = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    loss = model.compute_loss(x, np.asarray(y), found, None)
    loss = float(ops.convert_to_numpy(loss))
    assert loss == pytest.approx(-np.log(odds[[0, 1], [1, 0]]).mean(), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("features", [False, True])
def test_it_learns_and_is_saved(features, tmp_path):
    x, y = pairs()
    backbone = tiny.make_backbone(num_layers=1)
    size = backbone.vocabulary_size
    if features:
        backbone = FeatureBackbone(backbone, lstm_dim=16, dropout=0.0)
    model = make(backbone=backbone, dropout=0.0)
    table = model.backbone.backbone if features else model.backbone
    assert table.vocabulary_size == size + 4
    history = model.fit(x, y, batch_size=8, epochs=12, verbose=0).history
    assert history["accuracy"][-1] > 0.8
    report = model.report(x, y, worst=2)
    assert report.scores["accuracy"] > 0.8
    found = model.classify(x)
    rows = [{name: x[name][k] for name in x} for k in range(3)]
    for one, other in zip(model.classify(rows), found, strict=False):
        assert one[0][0] == other[0][0]
    assert model.classify(rows[0])[0][0] == found[0][0][0] and model.classify([]) == []
    columns = [x["words"], x["first"], x["second"]]
    assert next(model.answers(columns))["label"] == found[0][0][0]
    model.save_to_preset(str(tmp_path))
    again = RelationClassifier.from_preset(str(tmp_path))
    assert again.classify(rows)[0][0] == pytest.approx(found[0][0], abs=1e-4) or (
        again.classify(rows)[0][0][0] == found[0][0][0]
    )
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.classify(rows)[0][0][0] == found[0][0][0]


@pytest.mark.slow
@pytest.mark.any_backend
def test_datasets_give_the_same():
    made = make_preprocessor(label_names=NAMES)
    labels = ["none", "treats"]
    data = tf.data.Dataset.from_tensor_slices((X, labels))
    one = next(iter(made.dataset(data, 2, training=False)))
    other = next(iter(made.dataset((X, labels), 2, training=False)))
    tf.nest.map_structure(np.testing.assert_array_equal, one, other)
    model = make()
    model.fit(made.dataset(data, 2), verbose=0)
    wrong = {**X, "first": [[0, 99], [0, 1]]}
    data = tf.data.Dataset.from_tensor_slices((wrong, labels))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`first` must be"):
        list(made.dataset(data, 2, training=False))
    with pytest.raises(ValueError, match="must have dicts of `text`"):
        made.dataset(tf.data.Dataset.from_tensor_slices((labels, labels)), 2)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["roberta", "albert", "xlnet"])
def test_families(family):
    x, y = pairs(8)
    model = make(family)
    history = model.fit(x, y, batch_size=4, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert len(model.classify(x)) == 8


def test_weights_of_classes():
    preprocessor = make_preprocessor(label_names=["none", "of"])
    assert preprocessor.weights_of_classes([0, 1, 1], {"of": 2.0}) == [1.0, 2.0, 2.0]
