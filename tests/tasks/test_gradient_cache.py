"""Chunks that are computed twice have the gradient of all of them held at once."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis.heads.pruning import add_head_gates
from keras_bertfam.tasks import (
    CrossEncoder,
    CrossEncoderPreprocessor,
    InBatchNegatives,
    TextEmbedder,
    TextEmbedderPreprocessor,
    gradient_cache,
)
from tests import tiny_fine_tuning as tiny
from tests.gradients import loss_and_gradients

BACKEND = keras.backend.backend()


def make(dropout=0.3, rows=None, family="bert", rematerialize="none", **kwargs):
    keras.utils.set_random_seed(3)
    layout = "xlnet" if family == "xlnet" else None
    preprocessor = TextEmbedderPreprocessor(tiny.make_tokenizer(), 16, layout=layout)
    backbone = tiny.make_backbone(family, dropout=dropout)
    model = TextEmbedder(backbone, preprocessor, **kwargs)
    compile_ = {"jit_compile": BACKEND == "jax", "gradient_cache_rows": rows}
    model.compile("sgd", InBatchNegatives(), rematerialize=rematerialize, **compile_)
    return model


def batch_of(model, count=7):
    texts, _ = tiny.texts(count)
    x = (texts, [" ".join(text.split()[::-1]) for text in texts], texts[::-1])
    rows, ids = model.preprocess_samples(x)
    rows = {name: np.asarray(value) for name, value in rows.items()}
    return rows, np.asarray(ids), np.ones(count, "float32")


def all_at_once(chunks):
    """Compute each chunk once, and keep all that their gradients need."""
    return ops.stack(
        [
            chunks.compute(k, {name: x[k] for name, x in chunks.inputs.items()})
            for k in range(chunks.count)
        ]
    )


def same(one, other, atol=1e-6):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, atol=atol, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["bert", pytest.param("xlnet", marks=pytest.mark.slow)]
)
def test_gradient_with_dropout(family, monkeypatch):
    pooling = {"pooling": "mean", "projection_dim": 8}
    model = make(rows=3, family=family, **pooling)
    received = loss_and_gradients(model, *batch_of(model))
    monkeypatch.setitem(gradient_cache._BACKENDS, BACKEND, all_at_once)
    model = make(rows=3, family=family, **pooling)
    same(received, loss_and_gradients(model, *batch_of(model)))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3, 7, 64])
def test_gradient_without_dropout_is_that_of_the_batch(rows):
    model = make(0.0)
    expected = loss_and_gradients(model, *batch_of(model))
    model = make(0.0, rows)
    same(loss_and_gradients(model, *batch_of(model)), expected)


@pytest.mark.slow
def test_gradient_in_mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        expected = loss_and_gradients(model := make(0.0), *batch_of(model))
        model = make(0.0, rows=3)
        received = loss_and_gradients(model, *batch_of(model))
    finally:
        keras.config.set_dtype_policy(before)
    np.testing.assert_allclose(received[0], expected[0], rtol=1e-2)
    moved = 0
    for a, b in zip(received[1], expected[1], strict=True):
        a, b = np.asarray(a, "float32"), np.asarray(b, "float32")
        assert np.linalg.norm(a - b) <= 0.1 * np.linalg.norm(b) + 1e-3
        moved += np.linalg.norm(a) > 1e-3
    assert moved > len(expected[1]) // 2


@pytest.mark.slow
def test_what_does_not_go_with_chunks():
    texts, _ = tiny.texts(3)
    for make_task in (make, cross_encoder):
        gated = add_head_gates(make_task(rows=1), penalty=0.1)
        gated.compile("sgd", gradient_cache_rows=1)
        with pytest.raises(ValueError, match="must be `None` for a model.*head_gates"):
            gated.fit((texts, texts, texts), batch_size=3, verbose=0)
        if BACKEND == "tensorflow":
            with pytest.raises(ValueError, match="`rematerialize` must be .none."):
                gated.compile("sgd", gradient_cache_rows=1, rematerialize="attention")
        gated.compile("sgd", rematerialize="block")


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "tensorflow", reason="refused")
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_chunks_whose_blocks_are_computed_again(family, monkeypatch):
    settings = {"rows": 3, "family": family, "rematerialize": "block"}
    model = make(**settings)
    received = loss_and_gradients(model, *batch_of(model))
    monkeypatch.setitem(gradient_cache._BACKENDS, BACKEND, all_at_once)
    model = make(**settings)
    same(received, loss_and_gradients(model, *batch_of(model)))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
def test_lists_of_a_cross_encoder(rows, tmp_path):
    texts, _ = tiny.texts(7)
    x = (texts, texts[::-1], texts[3:] + texts[:3])
    received = []
    for cached in (None, rows):
        model = cross_encoder(cached)
        data = model.preprocessor.dataset((x, None), 7, training=False)
        inputs, labels, weights = next(iter(data))
        inputs = {name: np.asarray(value) for name, value in inputs.items()}
        assert inputs["token_ids"].ndim == 3
        given = np.asarray(labels), np.asarray(weights)
        received.append(loss_and_gradients(model, inputs, *given))
    same(*received)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert other.get_compile_config()["gradient_cache_rows"] == rows


@pytest.mark.slow
def test_fit_of_a_cross_encoder_is_the_same():
    texts, _ = tiny.texts(12)
    x = (texts, texts[::-1], texts[3:] + texts[:3])
    weights = []
    for rows in (None, 2):
        model = cross_encoder(rows)
        model.fit(x, batch_size=6, epochs=2, verbose=0)
        weights.append([ops.convert_to_numpy(v) for v in model.trainable_variables])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


def cross_encoder(rows):
    keras.utils.set_random_seed(3)
    preprocessor = CrossEncoderPreprocessor(tiny.make_tokenizer(), 16)
    model = CrossEncoder(tiny.make_backbone(), preprocessor, dropout=0.0)
    model.compile("sgd", jit_compile=BACKEND == "jax", gradient_cache_rows=rows)
    return model


@pytest.mark.slow
def test_seeds_are_drawn_once():
    def states(rows):
        model = make(rows=rows)
        model(batch_of(model)[0], training=True)
        return [
            ops.convert_to_numpy(v)
            for v in model.non_trainable_variables
            if "seed" in v.path
        ]

    for one, other in zip(states(None), states(2), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_fit_and_round_trip(tmp_path):
    model = make(0.1, rows=4)
    texts, _ = tiny.texts(20)
    x = (texts, [" ".join(text.split()[::-1]) for text in texts])
    history = model.fit(x, batch_size=10, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert other.get_compile_config()["gradient_cache_rows"] == 4
    assert other.loss.get_config() == model.loss.get_config()


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's graph")
def test_the_graph_is_as_small_for_many_chunks():
    def count(rows):
        model = make(rows=rows)
        ahead = [model(batch_of(model, 12)[0], training=True).grad_fn]
        seen = set()
        while ahead:
            node = ahead.pop()
            if node is not None and node not in seen:
                seen.add(node)
                ahead += [other for other, _ in node.next_functions]
        return len(seen)

    assert count(1) == count(6) < count(None)


def test_refused():
    with pytest.raises(ValueError, match="`gradient_cache_rows`.*0"):
        make(rows=0)
