"""Attention from left to right and across, relative positions, gates."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam import layers
from keras_bertfam.layers.attention.cross_attention import CrossAttention
from keras_bertfam.layers.attention.masks import seen_keys
from keras_bertfam.layers.attention.positions import RelativePositionBias
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.blocks.sublayers import ResidualSublayer, make_norm
from keras_bertfam.layers.heads.vocabulary_logits import LanguageModelHead


def array(x):
    return ops.convert_to_numpy(x)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def softmax(scores):
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def attend(query, key, value, scale, bias=0.0, mask=True):
    """Attention in NumPy, of `(batch, length, heads, head_dim)`."""
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) * scale + bias
    probabilities = softmax(np.where(mask, scores, -1e9))
    context = np.einsum("bhqk,bkhd->bqhd", probabilities, value)
    return context.reshape(*context.shape[:2], -1), probabilities


def test_golden_buckets():
    layer = RelativePositionBias(1)
    both = {-1000: 15, -128: 15, -64: 14, -32: 12, -16: 10, -12: 9, -11: 8, -8: 8}
    both |= {-7: 7, -1: 1, 0: 0, 1: 17, 7: 23, 8: 24, 11: 24, 12: 25, 16: 26, 32: 28}
    both |= {64: 30, 127: 31, 128: 31}
    # Golden keys are the key's position less the query's.
    found = array(layer.bucket(-np.array([*both])))
    assert dict(zip(both, found.tolist(), strict=True)) == both
    causal = {-127: 31, -64: 26, -32: 21, -16: 16, -8: 8, -1: 1, 0: 0, 5: 0, 99: 0}
    layer = RelativePositionBias(1, bidirectional=False)
    found = array(layer.bucket(-np.array([*causal])))
    assert dict(zip(causal, found.tolist(), strict=True)) == causal


def test_relative_bias_is_the_table_by_bucket():
    layer = RelativePositionBias(3, 8, 6)
    bias = array(layer(queries=4, keys=6))
    distances = np.arange(4)[:, None] - np.arange(6)
    table = array(layer.table)
    expected = table[array(layer.bucket(distances))].transpose(2, 0, 1)[None]
    np.testing.assert_allclose(bias, expected, atol=1e-6)
    # Queries that begin later, and at places of their own.
    later = array(layer(queries=2, keys=6, first_query=3))
    longer = array(layer(queries=6, keys=6))
    np.testing.assert_allclose(later, longer[:, :, 3:5], atol=1e-6)
    places = np.array([[5, 0], [2, 2]])
    found = array(layer(queries=6, keys=6, positions=places))
    expected = np.stack([longer[0][:, row] for row in places])
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"num_buckets": 6}, "`num_buckets` must be a positive multiple of 4"),
        ({"num_buckets": 0}, "`num_buckets` must be an int of at least 1"),
        ({"num_buckets": 8, "max_distance": 2}, "`max_distance` must be more than 2"),
    ],
)
def test_relative_bias_errors(arguments, match):
    with pytest.raises(ValueError, match=match):
        RelativePositionBias(2, **arguments)


def test_self_attention_against_numpy():
    layer = layers.SelfAttention(2, 3, use_bias=False, scale=1.0, causal=True)
    x, bias = normal(2, 5, 8), normal(1, 2, 5, 5, seed=1)
    mask = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]], bool)
    layer.build(x.shape)
    assert layer.qkv.bias is None
    qkv = (x @ array(layer.qkv.kernel)).reshape(2, 5, 3, 2, 3)
    seen = np.tril(np.ones((5, 5), bool)) & mask[:, None, None]
    expected, probabilities = attend(
        *qkv.transpose(2, 0, 1, 3, 4), 1.0, bias=bias, mask=seen
    )
    expected = expected @ array(layer.output_dense.kernel)
    found, scores = layer(x, attention_mask=mask, bias=bias, return_scores=True)
    real = mask[:, :, None] & np.ones((1, 1, 8), bool)
    np.testing.assert_allclose(array(found)[real], expected[real], atol=1e-5)
    assert np.abs(array(scores) - probabilities)[0].max() < 1e-5
    fused = array(layer(x, attention_mask=mask, bias=bias))
    np.testing.assert_allclose(fused[real], expected[real], atol=1e-5)
    places = np.array([[4, 1], [3, 3]])
    rows = np.arange(2)[:, None]
    at = array(layer(x, attention_mask=mask, positions=places))
    np.testing.assert_allclose(
        at, array(layer(x, attention_mask=mask))[rows, places], atol=1e-5
    )
    alone = array(layer(x))
    np.testing.assert_allclose(
        array(layer(x, positions=places)), alone[rows, places], atol=1e-5
    )
    np.testing.assert_allclose(array(layer(x, return_scores=True)[0]), alone, atol=1e-5)


def test_a_cache_goes_on_from_what_it_holds():
    layer = layers.SelfAttention(2, 3, causal=True)
    x = normal(2, 6, 8)
    whole = array(layer(x))
    cache = tuple(ops.zeros((2, 8, 2, 3)) for _ in range(2))
    first, cache = layer(x[:, :4], cache=cache)
    np.testing.assert_allclose(array(first), whole[:, :4], atol=1e-5)
    for place, index in ((4, 4), (5, ops.convert_to_tensor(5))):
        step, cache = layer(x[:, place : place + 1], cache=cache, cache_index=index)
        np.testing.assert_allclose(array(step)[:, 0], whole[:, place], atol=1e-5)


def test_initial_scores_are_of_the_usual_size():
    usual, other = (
        layers.SelfAttention(2, 16, initializer="ones", scale=s) for s in (None, 1.0)
    )
    for layer in (usual, other):
        layer.build((None, None, 8))
    assert np.unique(array(usual.qkv.kernel)) == 1
    kernel = array(other.qkv.kernel)
    assert np.allclose(kernel[:, :32], 0.25) and np.all(kernel[:, 32:] == 1)


def test_cross_attention_against_numpy():
    layer = CrossAttention(2, 3)
    x, context = normal(2, 4, 8), normal(2, 5, 8, seed=1)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool)
    found, scores = layer(x, context, cross_mask=mask, return_scores=True)
    query = (x @ array(layer.query.kernel)).reshape(2, 4, 2, 3)
    pair = (context @ array(layer.key_value.kernel)).reshape(2, 5, 2, 2, 3)
    expected, probabilities = attend(
        query, pair[:, :, 0], pair[:, :, 1], 3**-0.5, mask=mask[:, None, None]
    )
    expected = expected @ array(layer.output_dense.kernel)
    np.testing.assert_allclose(array(found), expected, atol=1e-5)
    np.testing.assert_allclose(array(scores), probabilities, atol=1e-5)
    projected = layer.project(context)
    each = np.broadcast_to(mask[:, None], (2, 4, 5))
    again = layer(x, projected, cross_mask=each)
    np.testing.assert_allclose(array(again), expected, atol=1e-5)


def test_what_a_prefix_shows():
    prefix = np.array([[1, 1, 0, 0]], bool)
    expected = [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    np.testing.assert_array_equal(array(seen_keys(4, 4, 0, prefix))[0], expected)
    mask = np.array([[0, 1, 1, 1]], bool)
    expected = [[0, 1, 1, 0], [0, 1, 1, 1]]
    found = array(seen_keys(2, 4, 2, None, mask))
    np.testing.assert_array_equal(found[0], expected)


def test_gated_feed_forward_against_numpy():
    layer = layers.FeedForward(6, activation="relu", use_bias=False, gated=True)
    x = normal(2, 3, 4)
    found = array(layer(x))
    both = x @ array(layer.gated_intermediate.kernel)
    inner = np.maximum(both[..., :6], 0) * both[..., 6:]
    np.testing.assert_allclose(
        found, inner @ array(layer.output_dense.kernel), atol=1e-5
    )
    assert layer.count_params() == 4 * 12 + 6 * 4
    again = layers.FeedForward.from_config(layer.get_config())
    assert again.gated and not again.use_bias


def test_norms():
    x = normal(2, 3, 4)
    norm = make_norm("rms", 1e-6)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(array(norm(x)), expected, atol=1e-5)
    assert make_norm("layer", 1e-6).epsilon == 1e-6
    with pytest.raises(ValueError, match="`norm` must be one of .*norm='batch'"):
        ResidualSublayer(layers.FeedForward(4), norm="batch")


def test_language_model_head():
    embedding = TokenEmbedding(11, 4, tie_weights=False, reverse_initializer="ones")
    embedding.build()
    head, x = LanguageModelHead(embedding, scale=0.5), normal(2, 3, 4)
    expected = 0.5 * x @ np.ones((4, 11))
    np.testing.assert_allclose(array(head(x)), expected, atol=1e-5)
    again = LanguageModelHead.from_config(head.get_config())
    assert again.scale == 0.5 and not again.token_embedding.tie_weights
    embedding.quantize("int8")
    assert np.abs(array(head(x)) - expected).max() < 0.1
