"""ELMo's objective: both directions, memory, sampled softmax, saving."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.vocabulary_logits import SampledLogits
from keras_bertfam.tasks import BidirectionalLM, BidirectionalLMPreprocessor
from tests import tiny_bidirectional_lm as tiny
from tests.tiny_masked_lm import documents


@pytest.mark.slow
@pytest.mark.any_backend
def test_rows_go_on_in_both_directions():
    model = tiny.make_model()
    data = tiny.stream(model, training=False)
    batches = [*data.as_numpy_iterator()]
    vocabulary = np.array(model.preprocessor.tokenizer.get_vocabulary())
    stream = [[] for _ in range(4)]
    for number, (x, y, weights) in enumerate(batches):
        assert x["continues"].tolist() == [number > 0] * 4
        for row in range(4):
            stream[row] += x["token_ids"][row].tolist()
            assert x["token_ids"][row, 1:].tolist() == y[row, :-1].tolist()
        ends = (x["token_ids"] == 1) & (y == 0) | (x["token_ids"] == 0) & (y == 1)
        np.testing.assert_array_equal(weights, ~ends)
    for row in (0, 2):
        forward, backward = stream[row], stream[row + 1]
        assert forward[0] == 0 and backward[0] == 1
        first = vocabulary[forward[: forward.index(1) + 1]].tolist()
        sentences = [text.decode().split() for text in documents().as_numpy_iterator()]
        known = [["<UNK>" if w == "red" else w for w in text] for text in sentences]
        assert first[1:-1] in known
        size = backward.index(0) + 1
        last = vocabulary[backward[:size]].tolist()
        assert last == first[::-1]


@pytest.mark.slow
@pytest.mark.any_backend
def test_training_and_evaluation():
    model = tiny.make_model()
    history = model.fit(tiny.stream(model), epochs=4, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] - 0.02
    before = [ops.convert_to_numpy(s) for s in model.memory.states]
    assert all(np.abs(state).max() > 0 for state in before)
    held_out = tiny.stream(model, training=False)
    scores = model.evaluate(held_out, verbose=0, return_dict=True)
    assert scores["loss"] < np.log(18)
    model.predict(held_out, verbose=0)
    for state, after in zip(before, model.memory.states, strict=True):
        np.testing.assert_array_equal(state, ops.convert_to_numpy(after))


@pytest.mark.slow
@pytest.mark.any_backend
def test_rows_of_arrays_stay_in_pairs():
    losses = []
    for shuffle in (True, False):
        model = tiny.make_model(batch_size=None)
        x, y, weights = model.preprocessor(["the cat sat", "a red mat"] * 8)
        x = {name: value.numpy() for name, value in x.items()}
        given = {"sample_weight": weights.numpy(), "batch_size": 8, "verbose": 0}
        losses.append(model.fit(x, y.numpy(), shuffle=shuffle, **given).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.slow
def test_memory():
    model = tiny.make_model()
    x, _, _ = next(iter(tiny.stream(model, training=False)))
    x = {name: ops.convert_to_numpy(value) for name, value in x.items()}
    fresh = {**x, "continues": np.zeros(4, bool)}
    alone = {name: x[name] for name in x if name != "continues"}
    first, same, other = (ops.convert_to_numpy(model(i)) for i in (fresh, alone, x))
    np.testing.assert_allclose(first, same, atol=1e-6)
    goes_on = {**x, "continues": np.ones(4, bool)}
    model(fresh)
    assert np.abs(ops.convert_to_numpy(model(goes_on)) - first).max() > 1e-4
    # Its second row is backward: the first words of a row know nothing of the rest.
    changed = x["character_ids"].copy()
    changed[1, 3:] = 5
    found = ops.convert_to_numpy(model({**alone, "character_ids": changed}))
    np.testing.assert_allclose(found[1, :3], same[1, :3], atol=1e-6)
    np.testing.assert_allclose(found[[0, 2, 3]], same[[0, 2, 3]], atol=1e-6)
    with pytest.raises(ValueError, match="must have 4 rows on each replica"):
        model({name: np.repeat(value, 2, 0) for name, value in fresh.items()})
    with pytest.raises(ValueError, match="as many rows forward as backward"):
        model({name: value[:3] for name, value in alone.items()})


@pytest.mark.slow
def test_saving(tmp_path):
    model = tiny.make_model(num_sampled=4)
    model.save_to_preset(tmp_path / "elmo")
    again = BidirectionalLM.from_preset(str(tmp_path / "elmo"))
    assert again.num_sampled == 4 and again.batch_size == 4
    x, _, _ = model.preprocessor(["the red cat sat"])
    x = {name: value.numpy() for name, value in x.items()}
    one, other = (ops.convert_to_numpy(m(x)) for m in (model, again))
    np.testing.assert_allclose(one, other, atol=1e-6)
    assert x["token_ids"].tolist() == [[0, 3, 2, 5, 7, 1], [1, 7, 5, 2, 3, 0]]


def test_a_sample_has_the_gradient_of_all_words_on_average():
    keras.utils.set_random_seed(0)
    embedding = TokenEmbedding(30, 4)
    embedding.build()
    full, sampled = SampledLogits(embedding), SampledLogits(embedding, 4000, seed=1)
    for layer in (full, sampled):
        layer.build((None, None, 4))
        layer.bias.assign(np.linspace(1, -1, 30))
    x = keras.random.normal((1, 6, 4))
    targets = np.array([[0, 1, 5, 10, 20, 29]])
    exact = ops.convert_to_numpy(full(x, targets=targets, training=True))
    some = ops.convert_to_numpy(sampled(x, targets=targets, training=True))
    np.testing.assert_allclose(some[..., 0], exact[..., 0], atol=0.1)
    kept = ops.convert_to_numpy(sampled(x, targets=targets, training=False))
    np.testing.assert_allclose(kept, exact, atol=1e-6)
    with pytest.raises(ValueError, match="`num_sampled` must be .* at least 1"):
        SampledLogits(embedding, 0)


def test_a_sample_goes_with_losses_that_read_no_logits():
    model = tiny.make_model(num_sampled=4)
    model.compile()
    for other in (["accuracy"], [keras.metrics.SparseTopKCategoricalAccuracy(3)]):
        with pytest.raises(ValueError, match="`num_sampled` must be `None`.*accuracy"):
            model.compile(weighted_metrics=other)
    with pytest.raises(ValueError, match="`num_sampled` must be `None`.*crossentropy"):
        model.compile(loss="sparse_categorical_crossentropy")
    tiny.make_model().compile(weighted_metrics=["accuracy"])


@pytest.mark.slow
def test_errors():
    with pytest.raises(ValueError, match="`batch_size` must be a multiple of 2.*3"):
        tiny.make_model(batch_size=3)
    with pytest.raises(ValueError, match="`tokenizer` must be an `ElmoTokenizer`"):
        BidirectionalLMPreprocessor(object())
    model = tiny.make_model(batch_size=None)
    with pytest.raises(ValueError, match="`packing` must be `None`"):
        tiny.stream(model, packing="full")
    with pytest.raises(ValueError, match="`batch_size` must be even"):
        model.preprocessor.dataset(documents(), 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="fill at least one batch"):
        next(iter(model.preprocessor.dataset(documents().take(1), 4)))


@pytest.mark.any_backend
def test_what_a_call_is_given():
    preprocessor = tiny.make_model().preprocessor
    for name in ("y", "sample_weight"):
        with pytest.raises(ValueError, match=f"`{name}` must be None"):
            preprocessor(["the cat"], **{name: [0.0]})
    for texts in ([1, 2], [["the", "cat"]]):
        with pytest.raises(ValueError, match="`x` must be strings of rank 0 or 1"):
            preprocessor(texts)
