import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.tasks import TextEmbedder, TextEmbedderPreprocessor
from keras_bertfam.tasks.finetuning.text_embedder import CosineSimilarityError
from tests import tiny_fine_tuning as tiny

TEXTS = ["the cat sat on the mat", "a dog", ""]


def make(family="bert", dtype=None, **kwargs):
    layout = "xlnet" if family == "xlnet" else None
    preprocessor = TextEmbedderPreprocessor(tiny.make_tokenizer(), 16, layout=layout)
    backbone = tiny.make_backbone(family, num_layers=1, dtype=dtype)
    return tiny.compiled(TextEmbedder(backbone, preprocessor, **kwargs))


def inputs(model, texts=TEXTS):
    return {k: np.asarray(v) for k, v in model.preprocessor(texts, None).items()}


def outputs(model, texts=TEXTS):
    return ops.convert_to_numpy(model(inputs(model, texts), training=False))


def test_mean_pooling_leaves_padding_out():
    model = make(normalize=False)
    x = inputs(model)
    states = model.backbone(x, return_pooled=False)["sequence_output"]
    states = ops.convert_to_numpy(states)
    expected = [
        row[:length].mean(0)
        for row, length in zip(states, x["padding_mask"].sum(1), strict=True)
    ]
    np.testing.assert_allclose(outputs(model), expected, atol=1e-5)
    np.testing.assert_allclose(
        outputs(model, TEXTS[1:2]), outputs(model)[1:2], atol=1e-5
    )


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_cls_pooling(family):
    model = make(family, pooling="cls", normalize=False)
    x = inputs(model)
    states = model.backbone(x, return_pooled=False)["sequence_output"]
    last = x["padding_mask"].sum(1) - 1 if family == "xlnet" else np.zeros(3, int)
    expected = ops.convert_to_numpy(states)[np.arange(3), last]
    np.testing.assert_allclose(outputs(model), expected, atol=1e-5)


def test_normalised_vectors_have_length_one():
    np.testing.assert_allclose(np.linalg.norm(outputs(make()), axis=1), 1, atol=1e-5)


def test_pairs_are_two_rows():
    model = make()
    pairs = outputs(model, (TEXTS, TEXTS[::-1]))
    assert pairs.shape == (3, 2, 16)
    single = outputs(model)
    np.testing.assert_allclose(pairs[:, 0], single, atol=1e-5)
    np.testing.assert_allclose(pairs[:, 1], single[::-1], atol=1e-5)


@pytest.mark.slow
def test_loss_and_similarity_are_cosines():
    model = make(normalize=False)
    a, b = outputs(model), outputs(model, TEXTS[::-1])
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    received = model.similarity(TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(received, cosines, atol=1e-5)
    assert model.similarity(TEXTS[0], TEXTS[2]) == pytest.approx(cosines[0], abs=1e-5)
    y, w = np.array([1.0, 0.0, -1.0], "float32"), np.array([1.0, 2.0, 0.0], "float32")
    loss = CosineSimilarityError()(y, np.stack([a, b], 1), w)
    expected = (w * (y - cosines) ** 2).sum() / 3
    np.testing.assert_allclose(ops.convert_to_numpy(loss), expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_fit_on_pairs_and_predict():
    model = make()
    texts, labels = tiny.texts(24)
    pairs = (texts, ["cat"] * 24)
    y = [float(label) for label in labels]
    history = model.fit(pairs, y, batch_size=8, epochs=5, verbose=0).history
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    loss = model.evaluate(pairs, y, batch_size=8, verbose=0)
    assert np.isfinite(loss)
    listed = list(zip(*pairs, strict=True))
    assert model.evaluate(listed, y, batch_size=8, verbose=0) == loss
    assert model.predict(texts, batch_size=8, verbose=0).shape == (24, 16)


def test_errors():
    with pytest.raises(ValueError, match="`pooling`.*'sum'"):
        make(pooling="sum")
    with pytest.raises(ValueError, match="both strings. Received: first='cat'"):
        make().similarity("cat", ["cat", "dog", "mat"])
    with pytest.raises(ValueError, match="2 and 1 texts"):
        make().similarity(["a", "a"], ["a"])
    with pytest.raises(ValueError, match="numbers"):
        make().preprocessor((["a"], ["a"]), ["x"])
    with pytest.raises(ValueError, match=r"from -1 to 1. Received: \[4.5\]"):
        make().preprocessor((["a", "a"], ["a", "a"]), [-0.5, 4.5])
    with pytest.raises(ValueError, match="preprocessor"):
        TextEmbedder(tiny.make_backbone()).similarity(["a"], ["a"])


@pytest.mark.slow
def test_round_trips(tmp_path):
    model = make(pooling="cls")
    expected = outputs(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    model.save_to_preset(str(tmp_path / "preset"))
    other = TextEmbedder.from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    assert other.get_config() == model.get_config()


def test_mixed_precision():
    assert outputs(make(dtype="mixed_bfloat16")).dtype == "float32"
