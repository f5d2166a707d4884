"""Attention within windows: in blocks and by a mask, with global tokens."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import models
from keras_bertfam.layers import SelfAttention
from keras_bertfam.layers.attention.local_attention import LocalSelfAttention
from keras_bertfam.layers.attention.pattern import NearbyKeys
from keras_bertfam.layers.attention.positions import rotary_positions, rotate
from keras_bertfam.layers.attention.windows import (
    neighbours_in_blocks,
    neighbours_in_rows,
    tokens_at,
    tokens_of_mask,
    uses_blocks,
)
from tests.tiny_families import IDS, SIZES, backbone_of

LENGTH = 23
BATCH = 2


@pytest.fixture(scope="module")
def layers():
    """A local layer with global projections, and one that sees all with its weights."""
    keras.utils.set_random_seed(0)
    common = {"num_heads": 4, "head_dim": 4, "initializer": "glorot_normal"}
    local = LocalSelfAttention(window=4, global_projections=True, **common)
    every = SelfAttention(**common)
    for layer in (local, every):
        layer.build((None, None, 16))
    for source, target in zip(local.qkv.weights, every.qkv.weights, strict=True):
        target.assign(ops.copy(source))
    pairs = zip(local.output_dense.weights, every.output_dense.weights, strict=True)
    for source, target in pairs:
        target.assign(ops.copy(source))
    return local, every


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, LENGTH, 16)).astype("float32")
    padding = np.arange(LENGTH) < [[LENGTH], [17]]
    ids = np.cumsum(np.isin(np.arange(LENGTH), [5, 6, 14]))
    ids = np.tile(ids.astype("int32"), (BATCH, 1))
    mask = np.zeros((BATCH, LENGTH), bool)
    mask[0, [0, 9, 22]] = mask[1, [3, 4]] = True
    return {"x": x, "padding": padding, "ids": ids, "mask": mask}


def as_numpy(x):
    return ops.convert_to_numpy(x)


def dense_mask(inputs, size, step=1, masks=("padding", "ids")):
    """Which keys each query sees, `(batch, length, length)`."""
    places = np.arange(LENGTH)
    apart = np.abs(places[:, None] - places)
    seen = ((apart <= size * step) & (apart % step == 0))[None]
    if "padding" in masks:
        seen = seen & inputs["padding"][:, None]
    if "ids" in masks:
        seen = seen & (inputs["ids"][:, :, None] == inputs["ids"][:, None])
    return np.broadcast_to(seen, (BATCH, LENGTH, LENGTH))


@pytest.mark.parametrize("masks", [(), ("padding",), ("padding", "ids")])
@pytest.mark.parametrize("window", [2, 4, 10])
def test_blocks_are_a_dense_mask(layers, inputs, window, masks):
    local, every = layers
    padding = ops.convert_to_tensor(inputs["padding"]) if "padding" in masks else None
    ids = ops.convert_to_tensor(inputs["ids"]) if "ids" in masks else None
    keys = NearbyKeys(window, (1,) * 4, mask=padding, sequence_ids=ids)
    given = {"attention_mask": keys}
    assert uses_blocks(LENGTH, window, (1,)) == (window < 12)
    ours = as_numpy(local(inputs["x"], **given))
    seen = ops.convert_to_tensor(dense_mask(inputs, window // 2, masks=masks))
    expected = as_numpy(every(inputs["x"], attention_mask=seen))
    real = inputs["padding"] if masks else np.ones_like(inputs["padding"])
    np.testing.assert_allclose(ours[real], expected[real], atol=2e-6)
    # All scores, which are asked for, give the same.
    whole, scores = local(inputs["x"], **given, return_scores=True)
    np.testing.assert_allclose(as_numpy(whole)[real], ours[real], atol=2e-6)
    assert scores.shape == (BATCH, 4, LENGTH, LENGTH)
    hidden = ~np.broadcast_to(as_numpy(seen)[:, None], scores.shape)
    rows = np.broadcast_to(real[:, None, :, None], scores.shape)
    assert np.abs(as_numpy(scores)[hidden & rows]).max() == 0


def test_dilation_is_by_head(layers, inputs):
    local, every = layers
    dilation = (1, 3, 1, 2)
    x, padding = inputs["x"], ops.convert_to_tensor(inputs["padding"])
    ids = ops.convert_to_tensor(inputs["ids"])
    keys = NearbyKeys(2, dilation, mask=padding, sequence_ids=ids)
    given = {"attention_mask": keys}
    head = np.eye(4, dtype="float32")
    for k, step in enumerate(dilation):
        ours = local(x, **given, head_mask=head[k])
        seen = ops.convert_to_tensor(dense_mask(inputs, 1, step))
        expected = every(x, attention_mask=seen, head_mask=head[k])
        real = inputs["padding"]
        np.testing.assert_allclose(
            as_numpy(ours)[real], as_numpy(expected)[real], atol=2e-6
        )
    whole, _ = local(x, **given, return_scores=True)
    ours = local(x, **given)
    np.testing.assert_allclose(as_numpy(whole)[real], as_numpy(ours)[real], atol=2e-6)


def global_reference(local, inputs, size, seen):
    """Longformer's attention in NumPy, by its definition."""
    weights = {}
    for name in ("qkv", "global_qkv", "output_dense"):
        kernel, bias = (as_numpy(w) for w in getattr(local, name).weights)
        weights[name] = lambda x, kernel=kernel, bias=bias: x @ kernel + bias
    shape = (BATCH, LENGTH, 3, 4, 4)
    query, key, value = np.moveaxis(weights["qkv"](inputs["x"]).reshape(shape), 2, 0)
    theirs = np.moveaxis(weights["global_qkv"](inputs["x"]).reshape(shape), 2, 0)
    out = np.zeros((BATCH, LENGTH, 4, 4), "float32")
    for b, i, h in np.ndindex(BATCH, LENGTH, 4):
        keys = np.abs(np.arange(LENGTH) - i) <= size
        q, k, v = query[b, i, h], key[b, :, h], value[b, :, h]
        if inputs["mask"][b, i]:
            keys[:] = True
            q, k, v = theirs[0, b, i, h], theirs[1, b, :, h], theirs[2, b, :, h]
        keys = (keys | inputs["mask"][b]) & seen[b, i]
        if not keys.any():
            continue
        scores = np.exp(k[keys] @ q / 2)
        out[b, i, h] = scores @ v[keys] / scores.sum()
    return weights["output_dense"](out.reshape(BATCH, LENGTH, 16))


@pytest.mark.parametrize("masks", [("padding",), ("padding", "ids")])
def test_global_tokens_see_all_and_are_seen(layers, inputs, masks):
    local, _ = layers
    tokens = tokens_of_mask(ops.convert_to_tensor(inputs["mask"]), 6)
    given = {"attention_mask": ops.convert_to_tensor(inputs["padding"])}
    if "ids" in masks:
        given["sequence_ids"] = inputs["ids"]
    expected = global_reference(
        local, inputs, 2, dense_mask(inputs, LENGTH, masks=masks)
    )
    real = inputs["padding"]
    ours = local(inputs["x"], **given, global_tokens=tokens)
    np.testing.assert_allclose(as_numpy(ours)[real], expected[real], atol=3e-6)
    whole, scores = local(
        inputs["x"], **given, global_tokens=tokens, return_scores=True
    )
    np.testing.assert_allclose(as_numpy(whole)[real], expected[real], atol=3e-6)
    sums = as_numpy(scores).sum(-1)
    np.testing.assert_allclose(sums, np.ones_like(sums), atol=1e-5)
    # At some positions only, and by positions in any order.
    places = np.array([[22, 0, 1], [3, 16, 5]], "int32")
    some = local(inputs["x"], **given, global_tokens=tokens, positions=places)
    picked = np.take_along_axis(expected, places[..., None], axis=1)
    np.testing.assert_allclose(as_numpy(some), picked, atol=3e-6)
    by_place = tokens_at(np.array([[9, 0, 22], [4, 3, -1]], "int32"), LENGTH)
    ours = local(inputs["x"], **given, global_tokens=by_place)
    np.testing.assert_allclose(as_numpy(ours)[real], expected[real], atol=3e-6)


def test_as_many_pairs_as_there_are():
    """n (2 w + 1) - w (w + 1), n = 8 and w = 2: 34."""
    bias = neighbours_in_rows(8, 4, (1,), "float32")
    assert int((as_numpy(bias) == 0).sum()) == 34
    blocks = neighbours_in_blocks(1, 8, 2, 1, "float32")
    assert int((as_numpy(blocks) == 0).sum()) == 34
    assert blocks.shape == (4, 1, 2, 6)


def test_rotations_are_of_complex_numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 3, 8)).astype("float32")
    places = np.array([[0, 1, 2, 0, 1], [7, 8, 9, 10, 11]], "int32")
    ours = as_numpy(rotate(x, rotary_positions(places, 8, 100.0)))
    angles = places[..., None] * 100.0 ** (-np.arange(0, 8, 2) / 8)
    turned = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angles)[:, :, None]
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 3}, "must be even"),
        ({"window": -2}, "`window` must be an int of at least 0"),
        ({"window": 2**17}, "from 2 to 65536"),
        ({"window": 4, "dilation": 0}, "positive integer, or one for each of 2"),
        ({"window": 4, "dilation": [1, 2, 3]}, "one for each of 2 heads"),
    ],
)
@pytest.mark.any_backend
def test_what_is_no_window(arguments, message):
    with pytest.raises(ValueError, match=message):
        LocalSelfAttention(num_heads=2, head_dim=4, **arguments)


def test_config_and_global_tokens_without_projections(inputs):
    layer = LocalSelfAttention(num_heads=2, head_dim=4, window=6, dilation=[1, 2])
    again = LocalSelfAttention.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    with pytest.raises(ValueError, match="`global_tokens` need an attention with"):
        tokens = tokens_at(np.zeros((BATCH, 1), "int32"), LENGTH)
        again(inputs["x"], global_tokens=tokens)


@pytest.mark.any_backend
def test_a_layer_without_a_window_sees_all_whatever_its_dilation():
    ids = np.arange(5, 13)[None]
    x = {"token_ids": ids, "padding_mask": np.ones((1, 8), bool)}
    backbone = backbone_of("Longformer", attention_window=(0, 4), attention_dilation=2)
    none = {**x, "global_positions": np.array([[-1]])}
    first, second = (
        ops.convert_to_numpy(backbone(rows)["sequence_output"]) for rows in (x, none)
    )
    np.testing.assert_allclose(first, second, atol=1e-5)


@pytest.mark.any_backend
def test_windows_with_a_prefix_that_is_not_causal():
    backbone = models.DecoderBackbone(
        **SIZES, causal=False, attention_window=4, max_sequence_length=8
    )
    x = {"token_ids": IDS[:1]}
    prefixed = {**x, "prefix_mask": np.arange(8)[None] < 3}
    first, second = (
        ops.convert_to_numpy(backbone(rows)["sequence_output"])
        for rows in (x, prefixed)
    )
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_causal_attention_has_no_global_tokens():
    layer = LocalSelfAttention(2, 4, window=4, causal=True, global_projections=True)
    here = np.arange(16)[None] < 1
    tokens = tokens_of_mask(ops.convert_to_tensor(here), 1)
    with pytest.raises(ValueError, match="`global_tokens` must be `None` with causal"):
        layer(np.ones((1, 16, 8), "float32"), global_tokens=tokens)
