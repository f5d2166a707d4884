import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.tasks import (
    CoSENT,
    CosineSimilarityError,
    GuidedNegatives,
    MarginError,
    Matryoshka,
    ScoreDistillation,
    TextEmbedder,
    TextEmbedderPreprocessor,
    VectorDistillation,
)
from tests import tiny_fine_tuning as tiny
from tests.marks import in_ci

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_projection_in_training_only(tmp_path):
    with pytest.raises(ValueError, match="`projection_dim` must be a width with"):
        make(projection_in_training_only=True)
    arguments = {"pooling": "cls", "normalize": False}
    model = make(
        projection_dim=16,
        projection_activation="tanh",
        projection_in_training_only=True,
        **arguments,
    )
    before = make(**arguments)
    for mine, other in zip(
        model.backbone.weights, before.backbone.weights, strict=True
    ):
        other.assign(mine)
    vectors = outputs(before)
    np.testing.assert_allclose(outputs(model), vectors, atol=1e-6)
    model.backbone.trainable = False
    trained = model(inputs(model), training=True)
    assert np.abs(ops.convert_to_numpy(trained)).max() <= 1
    assert model.passage_digest() == before.passage_digest()
    start = ops.convert_to_numpy(model.projection.kernel) + 0
    model.fit((TEXTS[:2], TEXTS[:2]), epochs=1, verbose=0)
    assert np.abs(ops.convert_to_numpy(model.projection.kernel) - start).max() > 0
    np.testing.assert_allclose(outputs(model), vectors, atol=1e-6)
    model.save_to_preset(tmp_path / "preset")
    again = TextEmbedder.from_preset(str(tmp_path / "preset"))
    assert again.projection_in_training_only
    np.testing.assert_allclose(outputs(again), vectors, atol=1e-6)
    model.export_to_sentence_transformers(tmp_path / "theirs")
    assert not [*(tmp_path / "theirs").glob("*Dense")]


@pytest.mark.slow
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


@pytest.mark.slow
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


def pairs_of(count, negatives=0):
    """Queries of two words, and as passages the words in the other order."""
    texts, _ = tiny.texts(count)
    turned = [" ".join(text.split()[::-1]) for text in texts]
    others = [texts[(k + 1) % count] for k in range(count)]
    return (texts, turned, *[others] * negatives)


@pytest.mark.slow
@pytest.mark.parametrize("negatives", [0, 2])
def test_fit_on_texts_that_belong_together(negatives):
    model = make()
    x = pairs_of(24, negatives)
    before = model.evaluate(x, batch_size=8, verbose=0)
    model.fit(x, batch_size=8, epochs=4, verbose=0, validation_data=(x,))
    after = model.evaluate(x, batch_size=8, verbose=0)
    assert after < 0.8 * before
    # A list of tuples, and a dataset of them.
    listed = list(zip(*x, strict=True))
    assert model.evaluate(listed, batch_size=8, verbose=0) == pytest.approx(after)
    data = tf.data.Dataset.from_tensor_slices(x).batch(8)
    assert model.evaluate(data, verbose=0) == pytest.approx(after)
    model.fit(data, epochs=1, verbose=0, validation_data=data)
    rows = model.preprocessor.dataset(data.unbatch(), batch_size=8)
    assert model.fit(rows, verbose=0).history["loss"][0] > 0


def vectors_by_ids(model, data):
    """Compute the vectors of examples, by the ids of their texts; count the tokens."""
    found, tokens = {}, 0
    for x, ids, weights in data:
        tokens += np.prod(x["token_ids"].shape)
        vectors = model({k: np.asarray(v) for k, v in x.items()}, training=False)
        texts = ids.shape[-1]
        vectors = np.reshape(ops.convert_to_numpy(vectors), (-1, texts, 16))
        rows = np.reshape(ids.numpy(), (-1, texts))
        for number, row, weight in zip(rows, vectors, np.ravel(weights), strict=True):
            if weight:
                found[tuple(number)] = row
    return found, tokens


class Begun(Exception):
    """Training is about to begin."""


def training_rows(model, x, monkeypatch):
    """Make the dataset that `fit()` trains on, and train nothing."""
    made = []
    dataset = model.preprocessor.dataset

    def make_and_end(*args, **kwargs):
        made.append(dataset(*args, **kwargs))
        raise Begun

    with monkeypatch.context() as patched, pytest.raises(Begun):
        patched.setattr(model.preprocessor, "dataset", make_and_end)
        model.fit(x, batch_size=8, verbose=0)
    return made[0]


def long_passages():
    """Short queries, each with a passage."""
    return ["the"] * 24, pairs_of(24)[1]


@functools.cache
def rows_of_their_own(layout):
    preprocessor = TextEmbedderPreprocessor(tiny.make_tokenizer(), 12, layout=layout)
    return [*preprocessor.dataset((long_passages(), None), 8)]


@pytest.mark.parametrize("family", tiny.fast_families("bert"))
@pytest.mark.parametrize("pooling", in_ci(["mean", "cls"], "mean"))
def test_tuples_share_rows_in_training(family, pooling, monkeypatch):
    model = make(family, pooling=pooling)
    model.preprocessor.sequence_length = 12
    rows = training_rows(model, long_passages(), monkeypatch)
    together, fewer = vectors_by_ids(model, rows)
    layout = "xlnet" if family == "xlnet" else None
    apart, tokens = vectors_by_ids(model, rows_of_their_own(layout))
    assert together.keys() == apart.keys()
    for name, expected in apart.items():
        np.testing.assert_allclose(together[name], expected, atol=2e-5)
    assert fewer < tokens or family == "xlnet"


@pytest.mark.slow
def test_a_loss_of_ones_own_sees_the_vectors_of_tuples_that_share_rows():
    model, shapes = make(), []

    def loss(y, vectors):
        shapes.append((len(y.shape), vectors.shape[1:]))
        return ops.mean(vectors, axis=(1, 2))

    model.compile("sgd", loss, jit_compile=model.jit_compile)
    model.fit(long_passages(), np.zeros(24), batch_size=8, verbose=0)
    assert {*shapes} == {(1, (2, 16))}


@pytest.mark.slow("release")
def test_packed_tuples():
    model = make()
    x = pairs_of(8, 1)
    padded = model.evaluate(x, batch_size=8, verbose=0)
    preprocessor = TextEmbedderPreprocessor(tiny.make_tokenizer(), 8, packed=True)
    packed = TextEmbedder(model.backbone, preprocessor)
    rows = packed.preprocessor.dataset((x, None), batch_size=8)
    inputs, ids, weights = next(iter(rows))
    assert inputs["sequence_starts"].shape[2:] == (3,) and ids.shape[2:] == (3,)
    packed.compile(jit_compile=model.jit_compile)
    if weights.numpy().sum() == 8:  # all in one batch
        short = TextEmbedderPreprocessor(tiny.make_tokenizer(), 8)
        model = tiny.compiled(TextEmbedder(model.backbone, short))
        padded = model.evaluate(x, batch_size=8, verbose=0)
        received = packed.evaluate(rows, verbose=0)
        assert received == pytest.approx(padded, rel=1e-4)


@pytest.mark.slow("release")
def test_fit_by_a_teacher():
    texts, _ = tiny.texts(16)
    teacher, x = make(), pairs_of(16, 1)
    teacher.backbone.set_weights([w + 0.1 for w in teacher.backbone.get_weights()])
    model = make(normalize=False)
    scores = np.random.default_rng(0).normal(size=(16, 2))
    for loss, inputs, y in (
        (GuidedNegatives(), x, teacher.predict(x, verbose=0)),
        (MarginError(), x, scores),
        (ScoreDistillation(), x, scores.tolist()),
        (VectorDistillation(), texts, teacher.predict(texts, verbose=0)),
        (Matryoshka(CoSENT(), [16, 4]), x[:2], [k % 6 for k in range(16)]),
    ):
        tiny.compiled(model, loss=loss, learning_rate=1e-3)
        before = model.evaluate(inputs, y, verbose=0)
        model.fit(inputs, y, batch_size=8, epochs=5, verbose=0)
        assert model.evaluate(inputs, y, verbose=0) < before


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_that_are_cut(normalize, tmp_path):
    model = make(truncate_dim=3, normalize=normalize)
    whole = make(normalize=normalize)
    whole.set_weights(model.get_weights())
    expected = whole.encode(TEXTS)[:, :3]
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-6)
    assert model.predict(TEXTS, verbose=0).shape == whole.encode(TEXTS).shape
    model.save_to_preset(tmp_path / "saved")
    again = TextEmbedder.from_preset(tmp_path / "saved")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-6)
    assert model.passage_digest() == again.passage_digest() != whole.passage_digest()
    with pytest.raises(ValueError, match="at most the width of vectors, 16.*99"):
        make(truncate_dim=99)


def test_any_training_is_noticed():
    model = make()
    before = model.passage_sample()
    assert before == model.passage_sample()
    for weight in model.backbone.weights:
        values = keras.ops.convert_to_numpy(weight)
        weight.assign(values + np.arange(values.size).reshape(values.shape) * 1e-3)
        assert model.passage_sample() != before, weight.path
        weight.assign(values)
    model.prompts = {"passage": "a "}
    assert model.passage_sample() != before


def test_prompts_that_nothing_reads():
    with pytest.warns(UserWarning, match="Others: querry"):
        make(prompts={"querry": "a ", "query": "b "})


@pytest.mark.parametrize("text", [None, 3, ("a", "b", "c"), "\udc80", b"\xff"])
def test_texts_that_are_none(text):
    model = make()
    with pytest.raises(ValueError, match="`texts` must be strings of .*in row 1"):
        model.encode(["a", text], "passage")
    expected = model.encode(["a cat", "a dog"])
    np.testing.assert_allclose(model.encode([b"a cat", ["", "a dog"]]), expected)


def test_prompts_by_role():
    model = make(prompts={"query": "cat ", "passage": "dog "})
    x = (["a mat"], ["the cat"], ["the mat"])
    rows = next(iter(model._batched(model._rows(x), 1)))[0]["token_ids"]
    expected = make().preprocessor(
        (["cat a mat"], ["dog the cat"], ["dog the mat"]), None
    )
    np.testing.assert_array_equal(rows, expected["token_ids"])
    # Neither similarities nor single texts have roles.
    plain = model.preprocessor(x[:2], [0.5])[0]["token_ids"]
    for row, text in zip(plain[0], ("a mat", "the cat"), strict=True):
        np.testing.assert_array_equal(row, model.preprocessor([text])["token_ids"][0])


@pytest.mark.slow
@pytest.mark.parametrize("loss", [None, MarginError(), ScoreDistillation()])
def test_prompts_come_before_texts_wherever_they_are_given(loss):
    """Lists, batches of a dataset, and what the preprocessor is called on."""
    given = {} if loss is None else {"loss": loss}
    model = make(prompts={"query": "cat ", "document": "dog "})
    tiny.compiled(model, **given)
    x = (["a mat", "sat"], ["the cat", "mat"], ["the mat", "a mat"])
    y = None if loss is None else np.ones((2, 2), "float32")
    rows = [
        next(iter(model._batched(model._rows(x, y), 2))),
        model.preprocess_samples(tuple(map(tf.constant, x)), y),
        model.preprocessor(x, y),
    ]
    before = [f"cat {q}" for q in x[0]], *([f"dog {p}" for p in c] for c in x[1:])
    expected = np.asarray(make().preprocessor(before, None)["token_ids"])
    for row in rows:
        found = row if isinstance(row, dict) else row[0]
        # Texts of a tuple may share a row.
        for one, other in zip(np.asarray(found["token_ids"]), expected, strict=True):
            np.testing.assert_array_equal(one[one > 0], other[other > 0])


@pytest.mark.any_backend
def test_tasks_may_share_a_preprocessor():
    first = make(prompts={"query": "cat "})
    x = (["a mat"], ["the cat"])
    expected = first.preprocess_samples(x)[0]["token_ids"]
    second = tiny.compiled(TextEmbedder(first.backbone, first.preprocessor))
    other = second.preprocess_samples(x)[0]["token_ids"]
    assert np.any(np.asarray(expected) != np.asarray(other))
    again = first.preprocess_samples(x)[0]["token_ids"]
    np.testing.assert_array_equal(expected, again)


@pytest.mark.any_backend
def test_equal_texts_are_known_behind_their_prompts():
    model = make(prompts={"query": "cat ", "passage": "dog "})
    rows = model._rows((["a mat", "sat"], ["the cat", "a mat"]))
    _, ids, *_ = next(iter(model._batched(rows, 2)))
    (first, _), (_, last) = np.asarray(ids)
    assert first == last


@pytest.mark.slow
def test_maxima_of_packed_rows_are_finite():
    preprocessor = TextEmbedderPreprocessor(tiny.make_tokenizer(), 8, packed=True)
    backbone = tiny.make_backbone(num_layers=1)
    model = TextEmbedder(backbone, preprocessor, pooling="max", normalize=False)
    tiny.compiled(model, loss=MarginError())
    x = (["a mat", "sat", "a"], ["the cat", "mat", "a"], ["the mat", "a mat", "cat"])
    history = model.fit(x, np.ones((3, 2)), batch_size=8, verbose=0).history
    assert np.isfinite(history["loss"][0])


@pytest.mark.slow
def test_refused_examples():
    model = make()
    with pytest.raises(ValueError, match=r"tuples of texts.*`\(texts, texts\)`"):
        model.fit(TEXTS)
    with pytest.raises(ValueError, match=r"`y` must be numbers.*fit\(\(queries"):
        model.fit(TEXTS, TEXTS)
    with pytest.raises(ValueError, match="dataset of batches"):
        model.fit(tf.data.Dataset.from_tensor_slices((TEXTS, TEXTS)))
    with pytest.raises(ValueError, match="equally many"):
        model.fit((TEXTS, TEXTS[:2]))
    with pytest.raises(ValueError, match="similarities. Received: None"):
        model.report((TEXTS, TEXTS), None)
    tiny.compiled(model, loss=CoSENT())
    assert model.evaluate((TEXTS, TEXTS), [5, 1, 3], verbose=0) > 0
    with pytest.raises(ValueError, match="CoSENT"):
        model.fit((TEXTS, TEXTS), verbose=0)
