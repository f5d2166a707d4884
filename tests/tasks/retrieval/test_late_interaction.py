import keras
import numpy as np
import pytest
import scipy.special
from keras import ops

from keras_bertfam.export import export_saved_model
from keras_bertfam.models import XLNetBackbone
from keras_bertfam.retrieval.token_vectors import best_matches
from keras_bertfam.tasks import LateInteraction, LateInteractionPreprocessor
from tests import every_task as every
from tests import tiny_late_interaction as tiny

QUERIES = ["the cat", "a dog sat on the mat", "red"]
PASSAGES = ["the cat sat on the mat", "a dog", "a red hat and a blue mat"]
WRONG = ["the tree", "a blue tree", "by the hat"]
BOTH = [list(row) for row in zip(PASSAGES, WRONG, strict=True)]
SCORES = np.array([[3.0, 1.0], [2.0, 0.5], [1.0, 2.0]], "float32")


@pytest.fixture(scope="module")
def model():
    return tiny.make_model(compiled=False)


def as_numpy(tree):
    return keras.tree.map_structure(ops.convert_to_numpy, tree)


def rows(model, passages=PASSAGES, y=None):
    return keras.tree.map_structure(
        np.asarray, model.preprocessor((QUERIES, passages), y)
    )


def test_score(model):
    """As by hand, with a query's token and a passage's that aren't compared."""
    model = LateInteraction(model.backbone, projection_dim=2, compile=False)
    query = [[1, 0], [0.6, 0.8], [0, 0]]
    passage = [[0.8, 0.6], [0, 1], [-1, 0], [0, 0]]
    scores = model.score(
        ops.convert_to_tensor([query], "float32"),
        ops.convert_to_tensor([passage, [[-1, 0], [0, -1], [0, 0], [0, 0]]], "float32"),
    )
    np.testing.assert_allclose(as_numpy(scores), [[1.76, -0.6]], rtol=1e-6)


@pytest.mark.slow
def test_vectors(model):
    x = rows(model)[0]
    found = as_numpy(model(x))
    for side in ("query", "passage"):
        inputs = {
            name: x[f"{side}_{name}"]
            for name in ("token_ids", "segment_ids", "padding_mask")
        }
        states = model.backbone(inputs, return_pooled=False)["sequence_output"]
        vectors = as_numpy(states) @ as_numpy(model.projection.kernel)
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        vectors *= x[f"{side}_scored"][..., None]
        np.testing.assert_allclose(found[side], vectors, atol=1e-5)
        texts = QUERIES if side == "query" else PASSAGES
        for each, row in zip(model.encode(texts, side, 2), vectors, strict=True):
            np.testing.assert_allclose(each, row[row.any(-1)], atol=1e-5)
    # What fills queries up is compared, and isn't seen.
    assert found["query"].any(-1).all()
    masked = {
        **x,
        "query_token_ids": np.where(x["query_padding_mask"], x["query_token_ids"], 7),
    }
    seen = x["query_padding_mask"]
    np.testing.assert_allclose(
        as_numpy(model(masked))["query"][seen], found["query"][seen], atol=1e-5
    )
    plain = {"query_token_ids": x["query_token_ids"]}
    assert as_numpy(model(plain))["query"].any(-1).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "hard", "teacher"])
def test_losses(model, kind):
    y = SCORES if kind == "teacher" else None
    x, y, _ = rows(model, PASSAGES if kind == "pairs" else BOTH, y)
    out = as_numpy(model(x))
    queries, passages = out["query"], out["passage"]
    count = 1 if kind == "pairs" else 2
    passages = passages.reshape(-1, *passages.shape[-2:])
    cosines = np.einsum("qld,pmd->qplm", queries, passages)
    cosines = np.where(passages.any(-1)[:, None], cosines, -np.inf)
    scores = cosines.max(-1).sum(-1)
    right = np.arange(3) * count
    expected = 0
    if kind == "teacher":
        own = [[scores[k, 2 * k], scores[k, 2 * k + 1]] for k in range(3)]
        student, teacher = (scipy.special.log_softmax(s, axis=1) for s in (own, SCORES))
        expected = (np.exp(teacher) * (teacher - student)).sum(1)
        for k in range(3):
            scores[k, 2 * k + 1] = -np.inf
    expected = expected + scipy.special.logsumexp(scores, axis=1)
    expected -= scores[range(3), right]
    weights = np.array([1.0, 0.5, 2.0], "float32")
    loss = model.compute_loss(x, ops.convert_to_tensor(y), model(x), weights)
    assert as_numpy(loss) == pytest.approx(
        np.average(expected, weights=weights), rel=1e-5
    )


def test_scores_of_a_teacher_that_are_none():
    model = tiny.make_model(compiled=False)
    scores, right = ops.convert_to_tensor([[3.0, 1.0, 8.0]]), ops.zeros(1, "int32")
    y = ops.convert_to_tensor([[2.0, 0.0, -float("inf")]])
    expected = scipy.special.softmax([2, 0]) * (
        scipy.special.log_softmax([2, 0]) - scipy.special.log_softmax([3, 1, 8])[:2]
    )
    found = model._query_losses(y, scores, right, 3)[0]
    assert float(found) == pytest.approx(expected.sum(), rel=1e-5)
    with pytest.raises(ValueError, match="for each passage.*for 3 passages"):
        model._query_losses(y[:, :1], scores, right, 3)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["roberta", "longformer", "bart", "xlnet"])
def test_what_fills_queries_up_has_positions(family):
    tokenizer = every.tokenizer_of("xlnet" if family == "xlnet" else "roberta")
    backbone = every.backbone_of(family, tokenizer.vocabulary_size())
    preprocessor = LateInteractionPreprocessor(tokenizer, 24, 12)
    model = LateInteraction(backbone, preprocessor, 8, compile=False)
    (vectors,) = model.encode(["the cat"])
    rows = preprocessor.encode_texts("query", ["the cat"])
    filled = vectors[~np.asarray(rows["padding_mask"])[0]]
    assert len(filled) > 3 and len(np.unique(filled.round(4), axis=0)) == len(filled)


def test_divergence_of_the_teacher():
    """The case by hand: a teacher's (2, 0, -1), and scores (10, 9, 8)."""
    model = tiny.make_model(compiled=False)
    scores = ops.convert_to_tensor([[10.0, 9.0, 8.0]])
    y = ops.convert_to_tensor([[2.0, 0.0, -1.0]])
    right = ops.zeros(1, "int32")
    assert float(model._query_losses(y, scores, right, 3)[0]) == pytest.approx(
        0.081555, rel=1e-4
    )


@pytest.mark.slow
@pytest.mark.any_backend
def test_training():
    model = tiny.make_model()
    history = model.fit(tiny.stream(model), epochs=5, verbose=0).history
    assert history["loss"][-1] < 0.9 * history["loss"][0]
    # Inputs of another rank and number of passages, one after the other.
    three = (QUERIES, [[*row, "a hat"] for row in BOTH])
    for x, y in (
        ((QUERIES, PASSAGES), None),
        (three, None),
        ((QUERIES, BOTH), SCORES),
    ):
        before = as_numpy(model.projection.kernel)
        losses = model.fit(x, y, batch_size=3, verbose=0).history["loss"]
        assert np.isfinite(losses).all()
        assert np.abs(as_numpy(model.projection.kernel) - before).max() > 0
        assert np.isfinite(model.evaluate(x, y, batch_size=3, verbose=0)).all()
        out = model.predict(x, batch_size=2, verbose=0)
        assert out["query"].shape == (3, 8, 6)
        batch = rows(model, x[1], y)
        assert np.isfinite(model.train_on_batch(*batch[:2])).all()
        assert np.isfinite(model.test_on_batch(*batch[:2])).all()


@pytest.mark.slow
def test_rank(model):
    found = model.rank(QUERIES, [PASSAGES, [], PASSAGES[:1] * 2])
    queries, passages = model.encode(QUERIES), model.encode(PASSAGES, "passage")
    scores = best_matches(queries, passages)
    order = np.argsort(-scores[0])
    assert [place for place, _ in found[0]] == order.tolist()
    np.testing.assert_allclose([s for _, s in found[0]], scores[0][order], rtol=1e-5)
    assert found[1] == [] and [place for place, _ in found[2]] == [0, 1]
    assert model.rank(QUERIES[0], PASSAGES, top_k=1) == found[0][:1]
    titled = model.rank("red", [("cat", "a dog"), "a hat"])
    assert len(titled) == 2 and model.rank("red", [["cat", "a dog"], "a hat"]) == titled
    with pytest.warns(UserWarning, match="cut 1 of .* queries"):
        model.rank(PASSAGES[2] * 2, PASSAGES)
    with pytest.raises(ValueError, match="`top_k` must be"):
        model.rank("red", PASSAGES, top_k=0)
    with pytest.raises(ValueError, match="must be a list for each query"):
        model.rank(QUERIES, [PASSAGES])


@pytest.mark.slow
@pytest.mark.any_backend
def test_round_trips_and_digests(model, tmp_path):
    expected, digest = model.rank("the cat", PASSAGES), model.passage_digest()
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for other in (loaded, LateInteraction.from_preset(str(tmp_path / "preset"))):
        assert other.get_config() == model.get_config()
        assert other.passage_digest() == digest
        assert [p for p, _ in other.rank("the cat", PASSAGES)] == [
            p for p, _ in expected
        ]
    kernel = loaded.projection.kernel
    kernel.assign(ops.multiply(kernel, 2.0))
    assert loaded.passage_digest() != digest
    assert (
        tiny.make_model(passage_marker="the", compiled=False).passage_digest() != digest
    )


@pytest.mark.any_backend
def test_others():
    model = tiny.make_model(compiled=False)
    xlnet = LateInteraction(XLNetBackbone(21, 1, 2, 16, 24), projection_dim=4)
    x = {"query_token_ids": np.array([[2, 5, 3]], "int32")}
    assert as_numpy(xlnet(x))["query"].shape == (1, 3, 4)
    half = LateInteraction(
        tiny.make_backbone(dtype="mixed_bfloat16"), model.preprocessor, 6
    )
    out = as_numpy(half(rows(model)[0]))
    assert out["query"].dtype == "float32"
    np.testing.assert_allclose(np.linalg.norm(out["query"], axis=-1), 1, atol=1e-5)
    with pytest.raises(ValueError, match="`projection_dim` must be given to the"):
        model.projection_dim = 3
    lines = []
    model.compile()
    model.recipe(lines.append)
    assert "Santhanam et al., 2022" in lines[0]


@pytest.mark.slow
def test_saved_model(model, tmp_path):
    """Tokens that aren't compared are zeros in it."""
    tf = pytest.importorskip("tensorflow")
    export_saved_model(model, tmp_path / "served")
    signatures = tf.saved_model.load(str(tmp_path / "served")).signatures
    asked = {"text": tf.constant(QUERIES)}
    titled = {"title": tf.constant(["", "red", ""]), "text": tf.constant(PASSAGES)}
    texts = [("", PASSAGES[0]), ("red", PASSAGES[1]), ("", PASSAGES[2])]
    for name, inputs, expected in (
        ("serving_default", asked, model.encode(QUERIES)),
        ("passages", titled, model.encode(texts, "passage")),
    ):
        found = signatures[name](**inputs)["embeddings"].numpy()
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one[one.any(-1)], other, atol=1e-5)
