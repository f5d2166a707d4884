import logging

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads import token_scores
from keras_bertfam.layers.heads.vocabulary_logits import TiedLogits

VOCABULARY, WIDTH, POSITIONS = 37, 8, 13


def values():
    rng = np.random.default_rng(0)
    shapes = {
        "states": (POSITIONS, WIDTH),
        "table": (VOCABULARY, WIDTH),
        "bias": (VOCABULARY,),
    }
    arrays = {name: rng.normal(size=size) for name, size in shapes.items()}
    floats = {name: array.astype("float32") for name, array in arrays.items()}
    weights = rng.random(POSITIONS).astype("float32")
    return floats, rng.integers(0, VOCABULARY, POSITIONS).astype("int32"), weights


def in_numpy():
    """Scores, and the gradients of their weighted sum, in float64."""
    floats, ids, weights = values()
    states, table, bias = (array.astype("float64") for array in floats.values())
    logits = states @ table.T + bias
    exponents = np.exp(logits)
    probabilities = exponents / exponents.sum(-1, keepdims=True)
    rows = np.arange(POSITIONS)
    losses = -np.log(probabilities[rows, ids])
    probabilities[rows, ids] -= 1
    of_logits = probabilities * weights[:, None]
    gradients = [of_logits @ table, of_logits.T @ states, of_logits.sum(0)]
    return np.stack([losses, logits.argmax(-1) == ids], -1), gradients


def with_gradients(function, arrays, weights):
    """Scores, and the gradients of their weighted sum, by the backend."""
    backend = keras.backend.backend()
    if backend == "torch":
        leaves = [ops.convert_to_tensor(x).clone() for x in arrays]
        leaves = [x.requires_grad_() for x in leaves]
        scores = function(*leaves)
        (scores[:, 0] * ops.convert_to_tensor(weights)).sum().backward()
        return scores.detach(), [x.grad for x in leaves]
    if backend == "jax":
        import jax

        def loss(*arrays):
            scores = function(*arrays)
            return ops.sum(scores[:, 0] * weights), scores

        gradient = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)
        gradients, scores = jax.jit(gradient)(*arrays)
        return scores, gradients
    import tensorflow as tf

    states = tf.TensorSpec((None, WIDTH))  # chunks are counted in the graph

    @tf.function(input_signature=[states, *map(tf.TensorSpec, [(37, 8), (37,)])])
    def run(*arrays):
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            scores = function(*arrays)
            loss = tf.reduce_sum(scores[:, 0] * weights)
        return scores, tape.gradient(loss, arrays)

    return run(*map(tf.constant, arrays))


@pytest.fixture
def logged(caplog):
    """What TensorFlow logs as well, which doesn't reach the root logger."""
    logger = logging.getLogger("tensorflow")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


@pytest.mark.parametrize("most", [2**25, POSITIONS * VOCABULARY - 1, 100, 10])
def test_scores_and_gradients_against_numpy(most, monkeypatch, logged):
    monkeypatch.setattr(token_scores, "MOST_LOGITS", most)
    floats, ids, weights = values()
    scores, gradients = with_gradients(
        lambda *arrays: token_scores.token_scores(*arrays, ids),
        floats.values(),
        weights,
    )
    expected_scores, expected_gradients = in_numpy()
    np.testing.assert_allclose(
        ops.convert_to_numpy(scores), expected_scores, rtol=1e-5, atol=1e-6
    )
    for received, expected in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(
            ops.convert_to_numpy(received), expected, rtol=1e-5, atol=1e-6
        )
    assert not [record for record in logged.records if record.levelname != "DEBUG"]


@pytest.mark.parametrize("most", [2**25, 100])
def test_without_bias_and_of_no_position(most, monkeypatch):
    monkeypatch.setattr(token_scores, "MOST_LOGITS", most)
    floats, ids, _ = values()
    table, zeros = floats["table"], np.zeros(VOCABULARY, "float32")
    states = ops.convert_to_tensor(floats["states"])
    without = token_scores.token_scores(states, table, None, ids)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(without),
        ops.convert_to_numpy(token_scores.token_scores(states, table, zeros, ids)),
    )
    none = token_scores.token_scores(states[:0], table, None, ids[:0])
    assert tuple(none.shape) == (0, 2)


def test_statistics(monkeypatch):
    floats, ids, _ = values()
    logits = floats["states"] @ floats["table"].T + floats["bias"]
    expected = np.stack([np.log(np.exp(logits).sum(-1)), logits.mean(-1)], -1)
    states, *parameters = map(ops.convert_to_tensor, floats.values())
    for most in (2**25, 100):
        monkeypatch.setattr(token_scores, "MOST_LOGITS", most)
        scores = token_scores.token_scores(states, *parameters, ids, statistics=True)
        assert tuple(scores.shape) == (POSITIONS, 4)
        received = ops.convert_to_numpy(scores)[:, 2:]
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-6)


def head():
    keras.utils.set_random_seed(0)
    embedding = TokenEmbedding(VOCABULARY, WIDTH)
    embedding.build()
    layer = TiedLogits(embedding)
    layer.build((None, None, WIDTH))
    return layer


@pytest.mark.parametrize("quantized", [False, True])
def test_the_head_gives_the_scores_of_its_logits(quantized):
    layer = head()
    if quantized:
        layer.token_embedding.quantize("int8")
    floats, ids, _ = values()
    states = ops.convert_to_tensor(floats["states"][None, :12].reshape(2, 6, WIDTH))
    ids = ids[:12].reshape(2, 6)
    scores = layer(states, targets=ids)
    expected = token_scores.scores_of_logits(ids, layer(states))
    np.testing.assert_allclose(
        ops.convert_to_numpy(scores), ops.convert_to_numpy(expected), atol=1e-5
    )
    symbolic = layer(keras.Input((6, WIDTH)), keras.Input((6,), dtype="int32"))
    assert symbolic.shape == (None, 6, 2)


def test_targets_of_another_shape_are_refused():
    states = ops.zeros((2, 6, WIDTH))
    with pytest.raises(ValueError, match=r"`targets` must be a token for each state"):
        head()(states, targets=np.zeros((6, 2), "int32"))


def test_the_first_of_equal_logits_is_right():
    logits = np.random.default_rng(0).integers(0, 3, (40, 7)).astype("float32")
    logits[:4] = 0.0  # as of a model that has learned nothing
    for token in range(-1, 8):  # the first and the last are no tokens
        ids = ops.full((40,), token, "int32")
        right = token_scores._are_likeliest(ids, ops.convert_to_tensor(logits))
        expected = logits.argmax(-1) == token
        np.testing.assert_array_equal(ops.convert_to_numpy(right), expected)
