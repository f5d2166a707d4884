import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.retrieval import Index
from keras_bertfam.tasks import SparseEncoder, SparseEncoderPreprocessor
from keras_bertfam.tasks.finetuning.sparse_encoder import (
    ActiveTerms,
    products_of_search,
)
from tests import tiny_fine_tuning as tiny

QUERIES = ["the cat", "a dog", "red hat"]
PASSAGES = ["the cat sat on the mat", "a dog ran in", "the red hat"]
MORE = ["a tree", "the mat", "on the red tree"]
PAIRS = (QUERIES, PASSAGES)


def make(family="bert", length=16, compiled=True, **kwargs):
    backbone = tiny.make_backbone(family, num_layers=1, initializer_range=0.5)
    preprocessor = SparseEncoderPreprocessor(tiny.make_tokenizer(), length)
    model = SparseEncoder(backbone, preprocessor, **kwargs)
    return tiny.compiled(model) if compiled else model


def numbers(x):
    return np.asarray(ops.convert_to_numpy(x))


def counted(model):
    return [float(numbers(x)) for x in model.penalty_growth.variables]


class Logits(keras.layers.Layer):
    """In place of a head, what a test says."""

    def call(self, states):
        rows = [[[1, -2, 0.5], [3, 0.2, -1], [9, 9, 9]]]
        return ops.convert_to_tensor(rows, "float32")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1.386294, 0.182322, 0.405465]),
        ({"pooling": "sum"}, [2.079442, 0.182322, 0.405465]),
        ({"activation": "log1p_relu"}, [0.869742, 0.167480, 0.340368]),
    ],
    ids=["max", "sum", "two logarithms"],
)
def test_vectors_by_hand(settings, expected):
    model = make(compiled=False, **settings)
    model.head = Logits()
    rows = {"token_ids": [[4, 5, 0]], "segment_ids": [[0, 0, 0]]}
    rows["padding_mask"] = [[True, True, False]]
    rows = {name: ops.convert_to_tensor(x) for name, x in rows.items()}
    np.testing.assert_allclose(numbers(model(rows)), [expected], atol=1e-6)


@pytest.mark.parametrize(
    "family",
    [x for x in tiny.fast_families("bert") if getattr(x, "values", [x])[0] != "xlnet"],
)
def test_vectors_of_any_family_are_of_masked_lm_logits(family):
    model = make(family, compiled=False)
    masked = tasks.MaskedLM(model.backbone, compile=False)
    for ours, theirs in zip(model.head.weights, masked.head.weights, strict=True):
        theirs.assign(ours)
    rows = {k: np.asarray(v) for k, v in model.preprocessor(PASSAGES).items()}
    logits = numbers(masked(rows)) * rows["padding_mask"][..., None]
    expected = np.log1p(np.maximum(logits, 0)).max(axis=1)
    found = model.predict(PASSAGES, verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    pairs = model.predict(PAIRS, verbose=0)
    assert pairs.shape == (3, 2, found.shape[-1])
    np.testing.assert_allclose(pairs[:, 1], found, atol=1e-5)


def test_penalty_by_hand():
    vectors = ops.convert_to_tensor([[[1.0, 0.0, 2.0]], [[0.0, 0.0, 1.0]]])
    weights = ops.ones((2,))
    assert float(products_of_search(vectors, weights)) == pytest.approx(2.5)
    weights = ops.convert_to_tensor([1.0, 0.0])
    assert float(products_of_search(vectors, weights)) == pytest.approx(5.0)
    assert float(products_of_search(vectors, 0 * weights)) == 0.0
    metric = ActiveTerms()
    metric.update_state(None, vectors)
    assert float(metric.result()) == 1.5
    metric.update_state(None, vectors[:, 0], [0.0, 0.5])
    assert float(metric.result()) == pytest.approx(4 / 3)


@pytest.mark.slow
def test_penalties_grow_with_the_square_of_the_steps():
    model = make(compiled=False)
    still = keras.optimizers.SGD(1e-9)
    model.compile(still, query_penalty=3.0, passage_penalty=2.0, penalty_steps=4)
    vectors = model.predict(PAIRS, verbose=0)
    flops = (vectors.mean(axis=0) ** 2).sum(axis=-1)
    scores = vectors[:, 0] @ vectors[:, 1].T
    own = np.log(np.exp(scores).sum(1)) - np.diag(scores)
    for step in (1, 2, 3, 4, 5):
        loss, _ = model.train_on_batch(PAIRS)
        grown = min(step / 4, 1) ** 2
        expected = own.mean() + grown * (3 * flops[0] + 2 * flops[1])
        # Keras reports the mean of all steps.
        model.reset_metrics()
        assert float(loss) == pytest.approx(expected, rel=1e-4), step
    assert float(model.evaluate(PAIRS, verbose=0)[0]) == pytest.approx(
        own.mean() + 3 * flops[0] + 2 * flops[1], rel=1e-4
    )


@pytest.mark.slow
def test_fit_sets_the_steps_and_makes_vectors_sparse():
    model = make(compiled=False)
    model.compile(learning_rate=3e-3, query_penalty=0.3, passage_penalty=0.3)
    history = model.fit(PAIRS, batch_size=2, epochs=30, verbose=0).history
    assert counted(model) == [60, 20]  # a third of 60
    assert history["active_terms"][-1] < history["active_terms"][0]
    found = model.encode(PASSAGES, "passage")
    assert (found >= 0).all() and np.isfinite(found).all()
    model.compile(penalty_steps=7)
    assert counted(model) == [0, 7]
    model.compile("sgd")
    batches = tf.data.Dataset.from_tensor_slices(PAIRS).batch(2)
    model.fit(batches.filter(lambda *x: True), epochs=3, verbose=0)
    assert counted(model) == [6, 2]
    model.compile("sgd")
    with pytest.raises(ValueError, match="`penalty_steps` must be given"):
        model.fit(batches.repeat(), verbose=0)


@pytest.mark.slow
def test_search_by_an_inverted_index(tmp_path):
    model = make(compiled=False)
    index = Index.build([*PASSAGES, *MORE], model)
    assert index.kind == "inverted"
    exact = Index.build([*PASSAGES, *MORE], model, kind="exact")
    for found, expected in zip(
        index.find(QUERIES, 6), exact.find(QUERIES, 6), strict=True
    ):
        assert [hit.passage for hit in found] == [
            hit.passage for hit in expected if hit.score > 0
        ]
        np.testing.assert_allclose(
            [hit.score for hit in found],
            [hit.score for hit in expected if hit.score > 0],
            rtol=1e-5,
        )
    index.save(tmp_path / "index")
    model.save_to_preset(str(tmp_path / "preset"))
    again = SparseEncoder.from_preset(str(tmp_path / "preset"))
    assert Index.load(tmp_path / "index", again).find(QUERIES, 2) == index.find(
        QUERIES, 2
    )
    other = make(compiled=False, pooling="sum")
    with pytest.raises(ValueError, match="must be of this encoder"):
        Index.load(tmp_path / "index", other)


@pytest.mark.slow
def test_terms():
    model = make(compiled=False)
    strings = model.preprocessor.tokenizer.get_vocabulary()
    (vector,) = model.encode(PASSAGES[:1], "passage")
    found = model.terms(PASSAGES[0])
    assert len(found) == (vector > 0).sum()
    assert [score for _, score in found] == sorted(vector[vector > 0])[::-1]
    assert all(vector[strings.index(token)] == score for token, score in found)
    listed = model.terms(PASSAGES, top_k=2)
    assert listed[0] == [(t, pytest.approx(s, abs=1e-5)) for t, s in found[:2]]
    assert len(listed) == 3
    with pytest.raises(ValueError, match="`top_k` must be an int of at least 1"):
        model.terms(PASSAGES, top_k=0)


def test_a_masked_language_model_begins_it(tmp_path):
    backbone = tiny.make_backbone(num_layers=1, initializer_range=0.5)
    masked = tasks.MaskedLM(backbone, compile=False)
    masked.head.bias.assign(np.linspace(0, 3, masked.head.bias.shape[0]))
    masked.save_to_preset(str(tmp_path))
    model = SparseEncoder.from_preset(str(tmp_path), preprocessor=None)
    np.testing.assert_array_equal(numbers(model.head.bias), numbers(masked.head.bias))


@pytest.mark.slow
def test_prompts_and_similarity():
    model = make(compiled=False, prompts={"query": "the ", "document": "a "})
    queries = model.encode(["cat", "dog"], "query")
    passages = model.encode(["cat", "dog"], "passage")
    expected = model.predict(["the cat", "the dog", "a cat", "a dog"], verbose=0)
    np.testing.assert_allclose([*queries, *passages], expected, atol=1e-5)
    found = model.similarity(["the cat"], ["a cat"])
    np.testing.assert_allclose(found, [queries[0] @ passages[0]], rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pooling": "mean"}, "`pooling` must be one of"),
        ({"activation": "gelu"}, "`activation` must be one of"),
    ],
    ids=["pooling", "activation"],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_packed_rows_are_refused():
    with pytest.raises(ValueError, match="`packed` must be `False`"):
        SparseEncoderPreprocessor(tiny.make_tokenizer(), 8, packed=True)


@pytest.mark.slow
def test_a_preset_begins_anew_and_is_known_to_its_index(tmp_path):
    model = make(compiled=False)
    model.compile(penalty_steps=1)
    model.fit(PAIRS, verbose=0)
    index = Index.build(PASSAGES, model)
    model.save_to_preset(str(tmp_path))
    again = SparseEncoder.from_preset(str(tmp_path))
    assert counted(again) == [0, 0]
    again.backbone.trainable = False
    index.check_encoder(again)
    again.fit(PAIRS, batch_size=1, epochs=3, verbose=0)
    assert counted(again) == [9, 3]


def test_no_loss_is_refused():
    with pytest.raises(ValueError, match="`loss` must be"):
        make(compiled=False).compile(loss=None)


@pytest.mark.slow
def test_labels_are_a_teachers():
    model = make(compiled=False)
    with pytest.raises(ValueError, match="`y` must be `None` for InBatchNegatives"):
        model.fit(PAIRS, [1.0, 0.0, 0.5], verbose=0)
    model.compile(loss=tasks.MarginError(), learning_rate=1e-2, penalty_steps=1)
    scores = [[3.0, 1.0], [2.0, 0.0], [5.0, 1.0]]
    history = model.fit((*PAIRS, MORE), scores, epochs=8, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
