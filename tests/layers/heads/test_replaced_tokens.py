import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.replaced_tokens import (
    CopyingMaskedLMHead,
    ReplacedTokenHead,
)


def test_replaced_token_head():
    head = ReplacedTokenHead("relu", name="head")
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    received = ops.convert_to_numpy(head(x))
    kernels = [ops.convert_to_numpy(w) for w in head.weights]
    expected = np.maximum(x @ kernels[0] + kernels[1], 0) @ kernels[2] + kernels[3]
    np.testing.assert_allclose(received, expected[..., 0], atol=1e-5)
    config = head.get_config()
    assert ReplacedTokenHead.from_config(config).get_config() == config


def test_replaced_token_head_with_the_first_token():
    head = ReplacedTokenHead("relu", norm_epsilon=1e-7)
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 5, 4)).astype("float32")
    head.build(x.shape)
    for variable in head.weights:
        variable.assign(random.normal(size=variable.shape))
    gamma, beta, *kernels = (ops.convert_to_numpy(w) for w in head.weights)
    states = x + x[:, :1]
    states -= states.mean(-1, keepdims=True)
    states = states / np.sqrt((states**2).mean(-1, keepdims=True) + 1e-7) * gamma + beta
    expected = np.maximum(states @ kernels[0] + kernels[1], 0) @ kernels[2] + kernels[3]
    received = ops.convert_to_numpy(head(x, x[:, :1]))
    np.testing.assert_allclose(received, expected[..., 0], atol=1e-4)
    config = head.get_config()
    assert ReplacedTokenHead.from_config(config).get_config() == config
    with pytest.raises(ValueError, match="`first` must be given with `norm_epsilon`"):
        head(x)
    with pytest.raises(ValueError, match="`norm_epsilon` must be"):
        ReplacedTokenHead(norm_epsilon=-1.0)


def copying_head(gate, softmax):
    """A head with a given copy probability and softmax, whatever its input."""
    embedding = TokenEmbedding(len(softmax), 2)
    embedding.build()
    head = CopyingMaskedLMHead(embedding)
    head.build((None, None, 2))
    embedding.embeddings.assign(ops.zeros((len(softmax), 2)))
    head.bias.assign(np.log(softmax))
    head.copy_gate.kernel.assign(ops.zeros((2, 1)))
    head.copy_gate.bias.assign([np.log(gate / (1 - gate))])
    return head


def test_copying_golden():
    # Copy gate .7, softmax .2 for the input token and .5 for another.
    head = copying_head(0.7, [0.2, 0.5, 0.3])
    log_probabilities = head(np.ones((1, 2, 2), "float32"), np.array([[0, 1]]))
    received = np.exp(ops.convert_to_numpy(log_probabilities))[0]
    np.testing.assert_allclose(received[0], [0.76, 0.15, 0.09], atol=1e-6)
    np.testing.assert_allclose(received.sum(-1), 1, atol=1e-6)


def test_copying_is_finite_for_a_certain_gate():
    head = copying_head(0.5, [0.2, 0.5, 0.3])
    for bias in (-200.0, 200.0):
        head.copy_gate.bias.assign([bias])
        received = head(np.ones((1, 1, 2), "float32"), np.array([[0]]))
        assert np.isfinite(ops.convert_to_numpy(received)).all()
