import contextlib
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import layers
from keras_bertfam.analysis.gradients import gradient_of
from keras_bertfam.layers.attention.cross_attention import CrossAttention
from keras_bertfam.layers.blocks.dense import (
    _casts,
    flat_dense,
    get_activation,
    weights_cast_once,
)
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.blocks.sublayers import ResidualSublayer
from keras_bertfam.layers.heads.heads import Pooler
from keras_bertfam.models import TransformerConfig


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def config_of(**settings):
    return TransformerConfig(20, 2, 2, 8, 16, **settings)


IS_TORCH = keras.backend.backend() == "torch"


def without_gradients():
    if not IS_TORCH:
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


def array(x):
    return ops.convert_to_numpy(x)


LAYERS = {
    "attention": (lambda: layers.SelfAttention(2, 3), (2, 5, 8), (2, 5, 8)),
    "feed-forward": (lambda: layers.FeedForward(12), (2, 5, 8), (2, 5, 8)),
    "sub-layer": (
        lambda: ResidualSublayer(layers.FeedForward(12), norm_first=True),
        (2, 5, 8),
        (2, 5, 8),
    ),
    "stack": (
        lambda: layers.TransformerStack(config_of(share="ffn")),
        (2, 5, 8),
        (2, 5, 8),
    ),
    "pooler": (lambda: Pooler(8), (2, 5, 8), (2, 8)),
    "dropout": (lambda: Dropout(0.1), (2, 5, 8), (2, 5, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_config_and_weights_round_trip(name):
    make, input_shape, output_shape = LAYERS[name]
    layer, x = make(), normal(*input_shape)
    expected = array(layer(x))
    assert expected.shape == output_shape
    assert tuple(layer.compute_output_shape(input_shape)) == output_shape
    config = keras.layers.serialize(layer)
    other = keras.layers.deserialize(config)
    assert keras.layers.serialize(other)["config"] == config["config"]
    if not other.built:
        other.build(input_shape)
    other.set_weights(layer.get_weights())
    np.testing.assert_allclose(array(other(x)), expected, atol=1e-6)


def test_attention_against_numpy():
    layer, x = layers.SelfAttention(2, 3), normal(2, 5, 8)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
    outputs, scores = layer(x, attention_mask=mask, return_scores=True)
    kernel, bias = (array(w) for w in (layer.qkv.kernel, layer.qkv.bias))
    qkv = (x @ kernel + bias).reshape(2, 5, 3, 2, 3)
    query, key, value = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    logits = query @ key.transpose(0, 1, 3, 2) / np.sqrt(3)
    logits = np.where(mask[:, None, None], logits, -np.inf)
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    expected = exp / exp.sum(-1, keepdims=True)
    np.testing.assert_allclose(array(scores), expected, atol=1e-5)
    context = (expected @ value).transpose(0, 2, 1, 3).reshape(2, 5, 6)
    out = layer.output_dense
    expected = context @ array(out.kernel) + array(out.bias)
    np.testing.assert_allclose(array(outputs), expected, atol=1e-5)
    fused = layer(x, attention_mask=mask)
    np.testing.assert_allclose(array(fused), expected, atol=1e-5)


def test_a_square_mask_can_say_what_a_row_mask_says():
    layer, x = layers.SelfAttention(2, 3), normal(2, 5, 8)
    row = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
    square = np.repeat(row[:, None], 5, axis=1)
    for scores in (True, False):
        a, b = (
            layer(x, attention_mask=mask, return_scores=scores)
            for mask in (row, square)
        )
        a, b = (a[0], b[0]) if scores else (a, b)
        np.testing.assert_allclose(array(a), array(b), atol=1e-6)


def test_quantized_attention_at_positions():
    layer, x = layers.SelfAttention(2, 4), normal(2, 5, 8)
    layer.build((2, 5, 8))
    layer.qkv.quantize("int8")
    whole = array(layer(x))
    there = layer(x, positions=np.array([[4], [2]], "int32"))
    np.testing.assert_allclose(array(there)[:, 0], whole[[0, 1], [4, 2]], atol=1e-5)


def test_attention_dropout_is_on_the_probabilities():
    layer, x = layers.SelfAttention(2, 4, dropout=0.5), normal(1, 6, 8)
    np.testing.assert_array_equal(array(layer(x)), array(layer(x)))
    first, second = (array(layer(x, training=True)) for _ in range(2))
    assert not np.allclose(first, second)
    # The probabilities handed out are those before dropout.
    _, scores = layer(x, return_scores=True, training=True)
    np.testing.assert_allclose(array(scores).sum(-1), 1, atol=1e-5)


def test_gelu_forms():
    values = {
        name: float(get_activation(name)(ops.ones(())))
        for name in ("gelu", "gelu_tanh")
    }
    assert values["gelu"] == pytest.approx(0.841345, abs=1e-6)
    assert values["gelu_tanh"] == pytest.approx(0.841192, abs=1e-6)


def test_masked_lm_head_against_numpy():
    embedding = TokenEmbedding(11, 4)
    embedding.build()
    head, x = layers.MaskedLMHead(embedding, activation="relu"), normal(2, 3, 6)
    logits = array(head(x))
    head.bias.assign(np.arange(11.0))
    shifted = array(head(x))
    np.testing.assert_allclose(
        shifted - logits, np.tile(np.arange(11), (2, 3, 1)), atol=1e-5
    )
    hidden = np.maximum(x @ array(head.dense.kernel) + array(head.dense.bias), 0)
    centred = hidden - hidden.mean(-1, keepdims=True)
    hidden = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    expected = hidden @ array(embedding.embeddings).T
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_factorised_embedding():
    layer = layers.EncoderEmbedding(config_of(embedding_dim=3, num_segments=2))
    outputs = layer(np.array([[1, 2]]), segment_ids=np.array([[0, 1]]))
    assert tuple(outputs.shape) == (1, 2, 8)
    assert layer.projection.bias is not None
    assert tuple(layer.position_table.shape) == (512, 3)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="only TensorFlow has sparse gradients",
)
def test_the_gradient_of_the_table_is_dense():
    import tensorflow as tf

    layer = TokenEmbedding(9, 2)
    layer.build()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[1, 1, 3]])))
    gradient = tape.gradient(loss, layer.embeddings.value)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_array_equal(gradient[:, 0], [0, 2, 0, 1, 0, 0, 0, 0, 0])


def test_tables_in_16_bits():
    """Rows are cast after they are looked up; logits are computed in 16 bits."""
    layer = TokenEmbedding(9, 4, dtype="mixed_bfloat16")
    layer.build()
    ids = np.array([[1, 8]])
    found = layer(ids)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    expected = ops.cast(ops.take(layer.embeddings, ids, axis=0), "bfloat16")
    np.testing.assert_array_equal(
        *(array(ops.cast(x, "float32")) for x in (found, expected))
    )
    logits = layer(found, reverse=True)
    assert keras.backend.standardize_dtype(logits.dtype) == "bfloat16"
    table = ops.cast(ops.transpose(layer.embeddings), "bfloat16")
    again = ops.matmul(found, table)
    np.testing.assert_array_equal(
        *(array(ops.cast(x, "float32")) for x in (logits, again))
    )
    stack = layers.EncoderEmbedding(config_of(), dtype="mixed_bfloat16")
    stack(np.array([[1]]))
    assert stack.token_embedding.embeddings.dtype == "float32"


def test_weights_that_are_cast_once_are_the_new_ones():
    dense = keras.layers.Dense(3, dtype="mixed_bfloat16")
    x = ops.cast(normal(2, 4), "bfloat16")
    dense.build((2, 4))
    for scale in (1.0, 2.0):
        dense.kernel.assign(scale * normal(4, 3))
        with weights_cast_once(), without_gradients():
            found = [flat_dense(dense, x) for _ in range(2)]
            assert len(_casts.get()) == (2 if IS_TORCH else 0)
        assert _casts.get() is None
        expected = dense(x)
        for each in found:
            np.testing.assert_allclose(
                *(array(ops.cast(y, "float32")) for y in (each, expected)), rtol=0.02
            )


def test_a_single_key_is_seen_whole_and_without_a_gradient():
    attention = CrossAttention(num_heads=2, head_dim=4)
    x, context = keras.random.normal((1, 5, 8)), keras.random.normal((1, 1, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as Keras warns of a softmax of one number
        output, scores = attention(x, context, return_scores=True)
    assert (ops.convert_to_numpy(scores) == 1).all()
    assert np.ptp(ops.convert_to_numpy(output), axis=1).max() < 1e-6
    gradient = gradient_of(lambda x: ops.sum(attention(x, context)), attention)
    assert np.abs(ops.convert_to_numpy(gradient(x))).max() < 1e-6


def test_what_two_stacks_share():
    sizes = (9, 1, 2, 8, 16)
    stack = layers.TransformerStack(TransformerConfig(*sizes, norm_first=True))
    stack.build((None, None, 8))
    causal = TransformerConfig(*sizes, norm_first=True, causal=True)
    other = layers.TransformerStack(causal, shared=stack)
    other.build((None, None, 8))
    assert {id(v) for v in other.weights} == {id(v) for v in stack.weights}
    x = keras.random.normal((1, 5, 8))
    first, second = (ops.convert_to_numpy(each(x)) for each in (stack, other))
    assert np.abs(first - second)[:, :4].max() > 1e-3
    assert np.abs(first - second)[:, 4].max() < 1e-5  # the last token sees all in both
    with pytest.raises(ValueError, match=r"`shared` must be .*\['norm_first'\]"):
        layers.TransformerStack(TransformerConfig(*sizes), shared=stack)
    with pytest.raises(ValueError, match="`convolution` must be 0 with `causal`"):
        TransformerConfig(*sizes, causal=True, convolution=3)


def test_symbolic_shapes_are_those_of_the_call():
    """With positions, scores and states, as functional models ask for them."""
    x, positions = keras.Input((5, 8)), keras.Input((2,), dtype="int32")
    attention = layers.SelfAttention(num_heads=2, head_dim=4)
    assert attention(x, positions=positions).shape == (None, 2, 8)
    output, scores = attention(x, return_scores=True)
    assert (output.shape, scores.shape) == ((None, 5, 8), (None, 2, 5, 5))
    stack = layers.TransformerStack(config_of())
    model = keras.Model([x, positions], stack(x, positions=positions))
    assert model.output_shape == (None, 2, 8)
    output = model([ops.ones((3, 5, 8)), ops.zeros((3, 2), "int32")])
    assert output.shape == (3, 2, 8)
    asked = {"return_hidden_states": True, "return_scores": True}
    _, states, scores = stack(x, **asked)
    assert [s.shape for s in states] == [(None, 5, 8)] * 3
    assert [s.shape for s in scores] == [(None, 2, 5, 5)] * 2
