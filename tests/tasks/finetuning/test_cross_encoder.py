import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.tasks import CrossEncoder, CrossEncoderPreprocessor
from keras_bertfam.tasks.finetuning.cross_encoder_preprocessor import GAP
from tests import tiny_fine_tuning as tiny

QUERIES = ["the cat", "a dog", "red hat"]
LISTS = [
    ["the cat sat on the mat", "a tree"],
    ["red", "a dog ran in"],
    ["the red hat", ""],
]
FLAT = [text for texts in LISTS for text in texts]
EACH = [query for query in QUERIES for _ in range(2)]


def make(family="bert", length=24, compiled=True, **kwargs):
    backbone = tiny.make_backbone(family, num_layers=1, initializer_range=0.3)
    layout = "xlnet" if family == "xlnet" else None
    tokenizer = tiny.make_tokenizer()
    preprocessor = CrossEncoderPreprocessor(tokenizer, length, layout=layout)
    model = CrossEncoder(backbone, preprocessor, **kwargs)
    return tiny.compiled(model) if compiled else model


@pytest.mark.slow
def test_lists_are_scored_as_single_passages():
    model = make(compiled=False)
    listed = model.predict((QUERIES, LISTS), verbose=0)
    assert listed.shape == (3, 2)
    single = model.predict((EACH, FLAT), verbose=0)
    np.testing.assert_allclose(listed.ravel(), single, atol=1e-5)
    pairs = model.predict(list(zip(QUERIES, LISTS, strict=True)), verbose=0)
    np.testing.assert_allclose(pairs, listed, atol=1e-6)
    # Logits of the model, probabilities of `predict`.
    rows = {k: np.asarray(v) for k, v in model.preprocessor((EACH, FLAT), None).items()}
    logits = ops.convert_to_numpy(model(rows))[:, 0]
    np.testing.assert_allclose(single, 1 / (1 + np.exp(-logits)), atol=1e-5)


@pytest.mark.slow
def test_rank():
    model = make(compiled=False)
    scores = model.predict((EACH, FLAT), verbose=0).reshape(3, 2)
    ranked = model.rank(QUERIES, LISTS)
    for found, expected in zip(ranked, scores, strict=True):
        assert [place for place, _ in found] == np.argsort(-expected).tolist()
        assert [score for _, score in found] == pytest.approx(
            np.sort(expected)[::-1], abs=1e-5
        )
    uneven = model.rank(QUERIES, [LISTS[0], [], LISTS[2][:1] * 3], top_k=2)
    assert [len(found) for found in uneven] == [2, 0, 2]
    np.testing.assert_allclose(uneven[0], ranked[0], atol=1e-5)
    assert [place for place, _ in uneven[2]] == [0, 1]  # of equal scores
    np.testing.assert_allclose(model.rank("the cat", LISTS[0]), ranked[0], atol=1e-5)
    assert model.rank(QUERIES[0], []) == []
    for passages, message in [
        ("a cat", "`passages` must be several passages of a query"),
        (["a cat", 3], "`passages` must be strings"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.rank("a cat", passages)
    assert model.rank(QUERIES, [[]] * 3) == [[]] * 3
    with pytest.raises(ValueError, match="`top_k` must be"):
        model.rank("the cat", LISTS[0], top_k=0)
    with pytest.raises(ValueError, match="a list for each query. Received: 2 quer"):
        model.rank(QUERIES[:2], LISTS)


def test_rank_of_titled_passages():
    model = make()
    ranked = model.rank("the cat", [("a", "dog"), "a dog", ["the", "mat"]])
    assert ranked == model.rank("the cat", ["a dog", "a dog", "the mat"])


def test_rank_tells_apart_what_a_sigmoid_makes_equal():
    model = make(compiled=False)
    for weight in model.head.logits.weights:
        weight.assign(weight * 1e6)
    logits = make(compiled=False, activation=None)
    logits.set_weights(model.get_weights())
    passages = [LISTS[0][0], *FLAT[:4], "a tree sat", "red dog"]
    found, expected = (m.rank("the cat", passages) for m in (model, logits))
    assert [place for place, _ in found] == [place for place, _ in expected]
    assert len({score for _, score in found}) < len({score for _, score in expected})


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_it_learns_and_is_saved(family, tmp_path):
    keras.utils.set_random_seed(1)
    model = make(family)
    model.compile(learning_rate=3e-3)
    relevant, others = zip(*LISTS, strict=True)
    x = (QUERIES * 4, list(relevant) * 4, ["a tree", "red", "a mat"] * 4)
    history = model.fit(x, batch_size=6, epochs=12, verbose=0).history["loss"]
    assert history[-1] < history[0] / 2
    labels = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    by_lists = model.evaluate((QUERIES, LISTS), labels, verbose=0)
    assert by_lists == pytest.approx(
        model.evaluate((QUERIES, list(relevant), list(others)), labels, verbose=0)
    )
    model.fit((EACH[:5], FLAT[:5]), np.ravel(labels)[:5], batch_size=3, verbose=0)
    expected = model.predict((QUERIES, LISTS), verbose=0)
    model.save_to_preset(str(tmp_path))
    again = CrossEncoder.from_preset(str(tmp_path))
    np.testing.assert_allclose(
        again.predict((QUERIES, LISTS), verbose=0), expected, atol=1e-5
    )
    assert "5 examples" in str(model.report((QUERIES, LISTS), labels))


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("loss", ["LambdaLoss", "PairwiseLogistic", "ScoreMargins"])
def test_lists_of_unequal_lengths(loss):
    model = make(compiled=False, activation=None)
    model.compile(learning_rate=1e-3, loss=getattr(tasks, loss)())
    x = (QUERIES, [[*texts, ""] for texts in LISTS])
    labels = [[2.0, 0.0, 0.0], [0.0, 1.0, 9.0], [1.0, 0.0, 0.5]]
    found = model.evaluate(x, labels, verbose=0)
    logits = model.predict(x, verbose=0)
    shorter = np.array(labels, "float32")[:, :2]
    shorter[2, 1] = GAP
    expected = ops.convert_to_numpy(model.loss(shorter, logits[:, :2]))
    assert found == pytest.approx(float(expected), rel=1e-4)


def test_what_is_refused():
    preprocessor = make().preprocessor
    for x, y, message in [
        ("a cat", None, "`x` must be a tuple of queries and passages"),
        ((QUERIES, [["a"], ["a", "b"], []]), None, "`passages` must be strings"),
        ((QUERIES, LISTS), [1.0, 0.0, 1.0], r"of the shape \(3, 2\)"),
        ((QUERIES, LISTS), [[1.0, 1, 1]] * 3, r"of the shape \(3, 2\)"),
        (
            (QUERIES, LISTS),
            [[-1.0, 0.0]] * 3,
            "from 0 to inf, the range of pointwise_or",
        ),
        ((QUERIES, QUERIES), [4.0, 0.0, 1.0], "from 0 to 1, the range of pointwise_or"),
        ((QUERIES, ["a", "", "b"]), [1.0, 0.0, 1.0], "first passage has text"),
        ((QUERIES, [["", "a"]] * 3), [[1.0, 0.0]] * 3, "first passage has text"),
        ((QUERIES, LISTS), [[np.nan, 0.0]] * 3, "finite"),
        ((QUERIES, QUERIES), ["a", "b", "c"], "must be"),
        ([("a", "b"), ("a",)], None, "all of the same length"),
    ]:
        with pytest.raises(ValueError, match=message):
            preprocessor(x, y)
    with pytest.raises(ValueError, match="`y` must be the labels"):
        preprocessor.dataset(((QUERIES, QUERIES), None))
    with pytest.raises(ValueError, match="`activation` must be"):
        make(compiled=False, activation="softmax")


@pytest.mark.slow
@pytest.mark.any_backend
def test_single_passages_and_lists_one_after_the_other():
    """TensorFlow would trace one step for inputs of any rank."""
    model = make()
    pairs = (EACH[:4], FLAT[:4]), [1.0, 0.0] * 2
    lists = (QUERIES, LISTS), [[1.0, 0.0]] * 3
    for x, y in (pairs, lists, pairs, lists):
        assert np.isfinite(model.fit(x, y, verbose=0).history["loss"]).all()
        assert np.isfinite(model.evaluate(x, y, verbose=0)).all()
