import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from keras import ops

from keras_bertfam.models import NeoBertBackbone, RobertaBackbone, XLNetBackbone
from keras_bertfam.tasks import DualEncoder, TextEmbedder, TextEmbedderPreprocessor
from tests import tiny_dual_encoder as tiny
from tests.tiny_masked_lm import WORDS

QUERIES = ["the cat", "a dog sat on the mat", "red"]
PASSAGES = ["the cat sat on the mat", "a dog", "a red hat and a blue mat"]
WRONG = ["the tree", "a blue tree", "by the hat"]


@pytest.fixture(scope="module")
def model():
    return tiny.make_model()


@pytest.fixture(scope="module")
def towers():
    return tiny.make_model(towers=2)


def as_numpy(tree):
    return keras.tree.map_structure(ops.convert_to_numpy, tree)


def inputs(model, passages=PASSAGES):
    return as_numpy(model.preprocessor((QUERIES, passages), None)[0])


def loss_of(queries, passages, weights=1.0):
    """Of the first passage of each query's, among all, in NumPy."""
    count = passages.shape[1]
    scores = queries @ passages.reshape(-1, queries.shape[-1]).T
    right = np.arange(len(queries)) * count
    # The passages of queries that don't count aren't chosen from.
    left_out = np.repeat(np.broadcast_to(weights, len(queries)) == 0, count)
    scores[:, left_out] = np.where(
        np.arange(len(left_out)) == right[:, None], scores, -1e9
    )[:, left_out]
    losses = scipy.special.logsumexp(scores, axis=1) - scores[range(len(right)), right]
    accuracy = scores.argmax(1) == right
    return np.average(losses, weights=weights), np.average(accuracy, weights=weights)


@pytest.mark.any_backend
def test_right_passages_of_other_rows_are_not_wrong(model):
    queries = ["the cat", "a dog", "the cat", "red"]
    passages = [["a cat", "a hat"], ["a cat", "a mat"], ["by the mat", "a dog"]]
    passages.append(["a red hat", "a hat"])
    x = as_numpy(model.preprocessor((queries, passages), None)[0])
    out = as_numpy(model(x))
    scores = out["query"] @ out["passage"].reshape(8, -1).T
    # Copies of the right passage, and what answers an equal query.
    for row, columns in enumerate([[2, 4], [0], [0], []]):
        scores[row, columns] = -1e9
    right = scores[range(4), [0, 2, 4, 6]]
    expected = np.mean(scipy.special.logsumexp(scores, axis=1) - right)
    found = model.test_on_batch(x, return_dict=True)
    assert float(found["loss"]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("hard", [False, True])
def test_loss_is_over_all_passages_of_the_batch(towers, hard):
    rows = [list(row) for row in zip(PASSAGES, WRONG, strict=True)]
    x = inputs(towers, rows if hard else PASSAGES)
    out = as_numpy(towers(x))
    assert out["query"].shape == (3, 6) and out["query"].dtype == "float32"
    given = out["passage"] if hard else out["passage"][:, None]
    weights = np.array([1.0, 0.5, 2.0], "float32")
    expected, accuracy = loss_of(out["query"], given, weights)
    y = np.zeros(3, "int32")
    loss = ops.convert_to_numpy(towers.compute_loss(x, y, out, weights))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    if hard:  # by what fit() and evaluate() are given
        return
    data = tf.data.Dataset.from_tensors((x, y, (weights > 0.7).astype("float32")))
    logs = towers.evaluate(data, verbose=0, return_dict=True)
    expected, accuracy = loss_of(out["query"], given, weights > 0.7)
    assert logs == pytest.approx({"loss": expected, "accuracy": accuracy}, rel=1e-4)


def test_one_tower_or_two(model, towers):
    assert model.passage_backbone is None and model.passage_projection is None
    x = {"token_ids": np.array([[2, 5, 6, 3]], "int32")}
    same = [as_numpy(f(x)) for f in (model.query_vectors, model.passage_vectors)]
    np.testing.assert_array_equal(*same)
    other = [as_numpy(f(x)) for f in (towers.query_vectors, towers.passage_vectors)]
    assert np.abs(other[0] - other[1]).max() > 1e-3
    assert len(towers.trainable_variables) == 2 * len(model.trainable_variables)
    # All are trained but poolers.
    trained = {id(v) for v in towers.trainable_variables}
    left = [v.path for v in towers.variables if id(v) not in trained]
    assert all("pooler" in path or "seed" in path for path in left), left


@pytest.mark.any_backend
def test_a_projected_vector_is_normed(model):
    vectors = model.encode(QUERIES)
    np.testing.assert_allclose(vectors.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(vectors.std(1), 1, atol=0.1)


@pytest.mark.parametrize(
    "pooling",
    [
        "mean",
        pytest.param(
            "cls", marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
        ),
    ],
)
def test_states_as_vectors(pooling):
    model = tiny.make_model(projection_dim=None, pooling=pooling)
    assert model.vector_dim == 16
    x = inputs(model)
    side = {
        name.removeprefix("query_"): value
        for name, value in x.items()
        if name.startswith("query_")
    }
    states = as_numpy(model.backbone(side, return_pooled=False)["sequence_output"])
    mask = side["padding_mask"][..., None]
    means = (states * mask).sum(1) / mask.sum(1)
    expected = states[:, 0] if pooling == "cls" else means
    np.testing.assert_allclose(as_numpy(model(x))["query"], expected, atol=1e-5)


@pytest.mark.slow
def test_encode(towers):
    x = as_numpy(towers(inputs(towers)))
    np.testing.assert_allclose(towers.encode(QUERIES), x["query"], atol=1e-5)
    vectors = towers.encode(PASSAGES, "passage", batch_size=2)
    np.testing.assert_allclose(vectors, x["passage"], atol=1e-5)
    titled = towers.encode([PASSAGES[0], ("cat", "a dog")], "passage")
    np.testing.assert_allclose(titled[0], vectors[0], atol=1e-5)
    assert np.abs(titled[1] - vectors[1]).max() > 1e-3
    long = " ".join(WORDS)
    with pytest.raises(ValueError, match="rows of 8 tokens.* 18 tokens, in row 1"):
        towers.encode(["the cat", long])
    assert towers.encode([long], too_long="cut").shape == (1, 6)
    assert towers.encode([long], "passage").shape == (1, 6)
    with pytest.raises(ValueError, match="rows of 16 tokens.* 20 tokens, in row 0"):
        towers.encode([("cat", long)], "passage", too_long="error")
    with pytest.raises(ValueError, match="`kind` must be.*'text'"):
        towers.encode(QUERIES, "text")
    with pytest.raises(ValueError, match='strings if `kind` is "query"'):
        towers.encode([("cat", "a dog")])
    with pytest.raises(ValueError, match="`too_long`.*'warn'"):
        towers.encode(QUERIES, too_long="warn")
    with pytest.raises(ValueError, match="at least one example"):
        towers.encode([])
    with pytest.raises(ValueError, match="needs a task with a preprocessor"):
        DualEncoder(towers.backbone).encode(QUERIES)


@pytest.mark.slow
def test_round_trips_and_digests(towers, tmp_path):
    expected, digest = as_numpy(towers(inputs(towers))), towers.passage_digest()
    towers.save(tmp_path / "model.keras")
    towers.save_to_preset(str(tmp_path / "preset"))
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for other in (loaded, DualEncoder.from_preset(str(tmp_path / "preset"))):
        assert other.get_config() == towers.get_config()
        out = as_numpy(other(inputs(other)))
        keras.tree.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), out, expected
        )
        assert other.passage_digest() == digest
    # Vectors of passages don't depend on the tower of queries.
    table = loaded.backbone.token_embedding.weights[0]
    table.assign(ops.multiply(table, 2.0))
    assert loaded.passage_digest() == digest
    sample = towers.passage_sample()
    assert loaded.passage_sample() == sample
    table = loaded.passage_backbone.token_embedding.weights[0]
    table.assign(ops.multiply(table, 2.0))
    assert loaded.passage_digest() != digest and loaded.passage_sample() != sample


@pytest.mark.any_backend
def test_recipe(model):
    model = DualEncoder(model.backbone, model.preprocessor)
    model.compile(total_steps=100_000)
    rate = model.optimizer._learning_rate
    rates = [float(rate(step)) for step in (0, 5000, 10_000)]
    np.testing.assert_allclose(rates, [0, 5e-5, 9e-5], rtol=1e-4)
    # A tenth of the steps, from 100 to 10,000 of them.
    for total, warmup in ((500, 100), (5000, 500), (10**6, 10_000), (60, 60)):
        model.compile(total_steps=total)
        assert model.optimizer._learning_rate._warmup(total) == warmup
    lines = []
    model.recipe(lines.append)
    assert "Lee et al., 2019" in lines[0] and "mask_rate" in lines[0]


@pytest.mark.any_backend
def test_errors(model):
    backbone = model.backbone
    with pytest.raises(ValueError, match='`pooling` must be "cls" or "mean".*max'):
        DualEncoder(backbone, pooling="max")
    wide = tiny.make_backbone(hidden_dim=8)
    with pytest.raises(ValueError, match="hidden_dim of `backbone`, 16.*=8"):
        DualEncoder(backbone, passage_backbone=wide, projection_dim=None)
    DualEncoder(backbone, passage_backbone=wide)
    with pytest.raises(ValueError, match="`passage_backbone` must be another model"):
        DualEncoder(backbone, passage_backbone=backbone)
    small = type(backbone)(9, 1, 2, 16, 24)
    with pytest.raises(ValueError, match="vocabulary_size of `backbone`"):
        DualEncoder(backbone, passage_backbone=small)
    with pytest.raises(ValueError, match="`projection_dim` must be given to the"):
        model.projection_dim = 3
    with pytest.raises(ValueError, match="must be those|the last token stands"):
        DualEncoder(XLNetBackbone(21, 1, 2, 16, 24), model.preprocessor)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_training_finds_the_passages():
    model = tiny.make_model()
    data = tiny.stream(model)
    history = model.fit(data, epochs=5, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    assert history["accuracy"][-1] > history["accuracy"][0] > 1 / 8
    losses = model.fit((QUERIES, PASSAGES), batch_size=3, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    out = model.predict((QUERIES, PASSAGES), batch_size=2, verbose=0)
    assert out["query"].shape == out["passage"].shape == (3, 6)


@pytest.mark.slow
@pytest.mark.any_backend
def test_other_backbones():
    tokenizer = tiny.make_model().preprocessor.tokenizer
    embedder = TextEmbedder(
        tiny.make_backbone(), TextEmbedderPreprocessor(tokenizer, 8)
    )
    vectors = embedder.encode(["the cat", ("cat", "a dog")], "passage")
    np.testing.assert_allclose(vectors[1], embedder.encode(["cat a dog"])[0], atol=1e-5)
    with pytest.raises(ValueError, match="rows of 8 tokens.* 18 tokens, in row 0"):
        embedder.encode([" ".join(WORDS)])
    assert embedder.passage_digest() != tiny.make_model().passage_digest()
    roberta = DualEncoder(tiny.make_backbone(RobertaBackbone), projection_dim=4)
    x = {"query_token_ids": np.array([[2, 5, 3]], "int32")}
    assert as_numpy(roberta(x))["query"].shape == (1, 4)
    xlnet = DualEncoder(XLNetBackbone(21, 1, 2, 16, 24, dropout=0.0), projection_dim=4)
    assert set(as_numpy(xlnet(x))) == {"query"}
    # Tables that only logits are computed by learn nothing here, of either tower.
    towers = (NeoBertBackbone(21, 1, 2, 16, 24) for _ in range(2))
    neobert = DualEncoder(next(towers), None, next(towers), projection_dim=None)
    paths = [variable.path for variable in neobert.trainable_variables]
    assert not any("reverse_embeddings" in path for path in paths)


@pytest.mark.any_backend
def test_mixed_precision():
    model = tiny.make_model()
    backbone = tiny.make_backbone(dtype="mixed_bfloat16")
    model = DualEncoder(backbone, model.preprocessor, projection_dim=4)
    assert as_numpy(model(inputs(model)))["query"].dtype == "float32"
