import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers.heads import token_scores
from keras_bertfam.layers.heads.adaptive import AdaptiveEmbedding, AdaptiveSoftmax


def make_layers(divisor):
    embedding = AdaptiveEmbedding(20, 8, [5, 12], divisor, "random_normal")
    embedding.build()
    softmax = AdaptiveSoftmax(embedding)
    softmax.build()
    rng = np.random.default_rng(0)
    for variable in (*embedding.weights, *softmax.weights):
        variable.assign(rng.normal(size=variable.shape))
    return embedding, softmax


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("divisor", [1, 2])
def test_against_numpy(divisor, monkeypatch):
    embedding, softmax = make_layers(divisor)
    parts = [
        [ops.convert_to_numpy(x) if x is not None else np.eye(8) for x in part]
        for part in embedding.parts()
    ]
    rows = np.concatenate([table @ projection for table, projection in parts])
    ids = np.array([[0, 4, 5, 11, 12, 19]])
    np.testing.assert_allclose(
        ops.convert_to_numpy(embedding(ids)), rows[ids], atol=1e-5
    )
    x = np.random.default_rng(1).normal(size=(1, 6, 8)).astype("float32")
    kernel, cluster_bias, bias = (
        ops.convert_to_numpy(w)
        for w in (softmax.cluster_kernel, softmax.cluster_bias, softmax.bias)
    )
    logits = x @ rows.T + bias
    more = x @ kernel.T + cluster_bias
    head = log_softmax(np.concatenate([logits[..., :5], more], -1))
    tails = [log_softmax(logits[..., a:b]) for a, b in ((5, 12), (12, 20))]
    expected = np.concatenate(
        [head[..., :5], *(tails[k] + head[..., 5 + k : 6 + k] for k in (0, 1))], -1
    )
    assert np.exp(expected).sum(-1) == pytest.approx(1)
    found = ops.convert_to_numpy(softmax(x))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for most in (10_000, 40):  # whole, and two positions at a time
        monkeypatch.setattr(token_scores, "MOST_LOGITS", most)
        scores = ops.convert_to_numpy(softmax(x, targets=ids))
        own = np.take_along_axis(expected, ids[..., None], -1)[..., 0]
        np.testing.assert_allclose(scores[..., 0], -own, atol=1e-5)
        np.testing.assert_array_equal(scores[..., 1], expected.argmax(-1) == ids)


def test_configs_and_errors():
    embedding, softmax = make_layers(2)
    copy = AdaptiveSoftmax.from_config(softmax.get_config())
    assert copy.embedding.get_config() == embedding.get_config()
    assert sum(v.shape[0] * v.shape[-1] for v in embedding.weights) == (
        5 * 8 + 7 * 4 + 8 * 2 + 4 * 8 + 2 * 8
    )
    for cutoffs in ([], [0], [5, 5], [7, 5], [20]):
        if cutoffs:
            with pytest.raises(ValueError, match="`cutoffs` must ascend"):
                AdaptiveEmbedding(20, 8, cutoffs)
    with pytest.raises(ValueError, match="`divisor` must be at least 1.*Received.*9"):
        AdaptiveEmbedding(20, 8, [5], divisor=9)
    with pytest.raises(ValueError, match="`statistics` must be `False`"):
        softmax(keras.ops.zeros((1, 1, 8)), statistics=True)
