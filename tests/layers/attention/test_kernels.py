"""Every way to compute attention against its definition, for all that can be asked."""

import dataclasses
import functools
import sys
import types

import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats

from keras_bertfam.analysis.gradients import gradient_of
from keras_bertfam.layers import SelfAttention
from keras_bertfam.layers.attention.definition import Asked, explicit_attention
from keras_bertfam.layers.attention.jax_kernels import lowered_for
from keras_bertfam.layers.attention.kernels import (
    added_mask,
    attend,
    kernel_for,
)
from keras_bertfam.layers.attention.local_attention import LocalSelfAttention
from keras_bertfam.layers.attention.masks import numbers_of, same_sequence
from keras_bertfam.layers.attention.pattern import VisibleKeys
from keras_bertfam.layers.blocks.dropout import Dropout

BACKEND = keras.backend.backend()
only_jax = pytest.mark.skipif(BACKEND != "jax", reason="only JAX has these kernels")
BATCH, HEADS, WIDTH = 2, 2, 8
RNG = np.random.default_rng(0)


def masks(length):
    """A key mask, sequence numbers with padding, and a mask of any pairs."""
    keys = np.arange(length) < [[length], [length - 3]]
    ids = (1 + (np.arange(length) >= length // 3) + np.zeros((BATCH, 1), int)) * keys
    pairs = np.random.default_rng(1).random((BATCH, 1, length, length)) < 0.5
    pairs[..., 0] = True
    return keys, ids.astype("int32"), pairs


def patterns(length):
    """All that is asked for, by name: arguments, and whether there is a bias."""
    keys, ids, pairs = masks(length)
    key_mask = keys[:, None, None]
    same = (ids[:, :, None] == ids[:, None]) & keys[:, None]
    packed = {"mask": same[:, None], "numbers": np.where(keys, ids, -1).astype("int32")}
    return {
        "all keys": {},
        "keys": {"mask": key_mask},
        "pairs": {"mask": pairs},
        "packed": packed,
        "causal": {"causal": True},
        "causal, keys": {"causal": True, "mask": key_mask},
        "bias": {"bias": True},
        "bias, keys": {"bias": True, "mask": key_mask},
        "bias, pairs": {"bias": True, "mask": pairs},
        "some queries": {"mask": key_mask, "queries": 5},
        "some queries, pairs": {"mask": pairs[:, :, :5], "queries": 5},
    }


def seen_queries(arguments, length):
    """Which queries see a key: `(batch, queries)`."""
    count = arguments.get("queries", length)
    mask = arguments.get("mask", np.ones((1, 1, 1, 1), bool))
    return np.broadcast_to(mask, (BATCH, 1, count, length)).any((1, 3))


def asked_of(values, arguments, length, **more):
    """What is asked, of numbers that queries, keys, values and a bias are made of."""
    arguments = dict(arguments)
    count = arguments.pop("queries", length)
    size = BATCH * length * HEADS * WIDTH
    parts = ops.reshape(values[: 3 * size], (3, BATCH, length, HEADS, WIDTH))
    if arguments.pop("bias", False):
        bias = ops.reshape(values[3 * size :], (1, HEADS, length, length))
        arguments["bias"] = bias
    for name in ("mask", "numbers"):
        if name in arguments:
            arguments[name] = ops.convert_to_tensor(arguments[name])
    return Asked(parts[0][:, :count], parts[1], parts[2], 0.3, **arguments, **more)


def results(compute, asked_for, length):
    """Outputs and gradients of each pattern, where queries see a key."""
    size = 3 * BATCH * length * HEADS * WIDTH + HEADS * length**2
    values = np.random.default_rng(2).normal(size=(len(asked_for), size))
    values = ops.convert_to_tensor(values.astype("float32"))
    seen = [seen_queries(arguments, length) for arguments in asked_for.values()]

    def outputs(values):
        found = []
        rows = zip(ops.unstack(values, axis=0), asked_for.values(), seen, strict=True)
        for each, arguments, there in rows:
            context = compute(asked_of(each, arguments, length))
            there = ops.convert_to_tensor(there[..., None, None])
            found.append(ops.where(there, context, 0))
        return found

    rng = np.random.default_rng(3)
    weights = [rng.normal(size=(*rows.shape, HEADS, WIDTH)) for rows in seen]

    def loss(values):
        pairs = zip(outputs(values), weights, strict=True)
        return sum(
            ops.sum(part * ops.convert_to_tensor(weight.astype("float32")))
            for part, weight in pairs
        )

    found = [ops.convert_to_numpy(part) for part in compiled(outputs)(values)]
    gradients = gradient_of(loss, keras.layers.Identity())(values)
    return found, ops.convert_to_numpy(gradients)


def compiled(function):
    """The function, which JAX compiles as a whole: one operation at a time is slow."""
    if BACKEND != "jax":
        return function
    import jax

    return jax.jit(function)


def by_definition(asked):
    return explicit_attention(asked)[0]


def assert_all_right(
    asked_for, length, compute=attend, tolerance=2e-5, right=by_definition
):
    outputs, gradients = results(compute, asked_for, length)
    expected, slopes = results(right, asked_for, length)
    for at, name in enumerate(asked_for):
        for found, right in (
            (outputs[at], expected[at]),
            (gradients[at], slopes[at]),
        ):
            np.testing.assert_allclose(
                found, right, rtol=tolerance, atol=tolerance, err_msg=name
            )


def test_every_pattern():
    assert_all_right(patterns(16), 16)


def of_groups(compute, repeats=1):
    """Compute with the keys and values of every other head alone, or repeated."""

    def computed(asked):
        parts = (ops.repeat(x[:, :, ::2], repeats, 2) for x in (asked.key, asked.value))
        key, value = parts
        return compute(dataclasses.replace(asked, key=key, value=value))

    return computed


@pytest.mark.slow
def test_queries_that_share_keys(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "HEADS", 4)
    repeated = of_groups(by_definition, repeats=2)
    names = ("packed", "causal, keys", "bias, pairs", "some queries, pairs")
    asked_for = {name: patterns(8)[name] for name in names}
    assert_all_right(asked_for, 8, of_groups(attend), right=repeated)


def test_the_definition():
    # The one thing that is compared with something else: NumPy, a query at a time.
    asked_for = patterns(8)["bias, pairs"]
    values = RNG.normal(size=3 * BATCH * 8 * HEADS * WIDTH + HEADS * 64)
    asked = asked_of(ops.convert_to_tensor(values.astype("float32")), asked_for, 8)
    names = ("query", "key", "value", "mask", "bias")
    query, key, value, mask, bias = (
        ops.convert_to_numpy(getattr(asked, name)) for name in names
    )
    found = ops.convert_to_numpy(by_definition(asked))
    for row, head, place in ((0, 0, 0), (1, 1, 5)):
        scores = key[row, :, head] @ query[row, place, head] * 0.3
        scores = (scores + bias[0, head, place])[mask[row, 0, place]]
        weights = np.exp(scores) / np.exp(scores).sum()
        right = weights @ value[row, mask[row, 0, place], head]
        np.testing.assert_allclose(found[row, place, head], right, atol=1e-5)


def test_which_kernel():
    values = ops.zeros(3 * BATCH * 16 * HEADS * WIDTH)
    names = {"tensorflow": None, "torch": "scaled_dot_product_attention", "jax": "xla"}
    kernel = kernel_for(asked_of(values, {}, 16))
    assert (kernel and kernel.name) == names[BACKEND]
    # On CPUs, probabilities are dropped by our own hash on each backend.
    dropping = kernel_for(asked_of(values, {}, 16, dropout=Dropout(0.1)))
    on_gpu = BACKEND == "torch" and values.is_cuda
    assert (dropping and dropping.name) == (names[BACKEND] if on_gpu else None)


def test_a_mask_in_other_words():
    pairs = ops.convert_to_tensor(masks(16)[2])
    added = added_mask(pairs[:, 0], "float32")
    assert (added is not None) == (BACKEND == "torch")
    if added is not None:
        added = ops.expand_dims(added, 1)
    values = RNG.normal(size=(3, BATCH, 16, HEADS, WIDTH)).astype("float32")
    parts = [*ops.convert_to_tensor(values), 0.3, pairs]
    for more in ({}, {"causal": True}):
        for compute in (attend, by_definition):
            both = (
                compute(Asked(*parts, added=each, **more)) for each in (None, added)
            )
            first, second = (ops.convert_to_numpy(each) for each in both)
            np.testing.assert_allclose(first, second, atol=1e-6)


def dropped(layer, length=64, **arguments):
    """Which probabilities are dropped, and what the kept ones are multiplied by."""
    shape = (4, length, HEADS, length)
    zeros = ops.zeros(shape)
    # Queries see all keys alike, and each key's value is a place of its own.
    value = ops.broadcast_to(
        ops.reshape(ops.eye(length), (1, length, 1, length)), shape
    )
    asked = Asked(zeros, zeros, value, 1.0, dropout=layer, **arguments)
    factors = ops.convert_to_numpy(attend(asked)) * length
    return factors < 0.5, factors[factors > 0.5]


def test_the_law_of_dropout():
    layer = Dropout(0.1, seed=4)
    gone, kept = dropped(layer)
    other, _ = dropped(layer)
    assert stats.binomtest(int(gone.sum()), gone.size, 0.1).pvalue > 1e-3
    np.testing.assert_allclose(kept, 65536 / (65536 - 6554), rtol=1e-5)
    for name, first, second in (
        ("calls", gone, other),
        ("rows", gone[0], gone[1]),
        ("heads", gone[:, :, 0], gone[:, :, 1]),
        ("queries", gone[:, 1:], gone[:, :-1]),
        ("keys", gone[..., 1:], gone[..., :-1]),
    ):
        table = np.histogram2d(first.ravel(), second.ravel(), bins=2)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-3, name
    again, _ = dropped(Dropout(0.1, seed=4))
    np.testing.assert_array_equal(again, gone)


def test_dropout_has_the_masked_keys_left_out():
    keys = masks(64)[0][:1]
    mask = ops.convert_to_tensor(keys[:, None, None])
    gone, _ = dropped(Dropout(0.5, seed=1), mask=mask)
    assert gone[..., ~keys[0]].all()


# === JAX on TPUs ===

TPU_PATTERNS = ("all keys", "keys", "packed", "causal", "causal, keys")


def interpreted_tpu():
    return lowered_for("tpu", interpreted=True)


@only_jax
@pytest.mark.slow
def test_tpu_kernel_by_the_interpreter(monkeypatch):
    length = 128
    asked_for = {name: patterns(length)[name] for name in TPU_PATTERNS}
    keys, ids, _ = masks(length)
    near = np.abs(np.subtract.outer(np.arange(length), np.arange(length))) <= 16
    asked_for["window"] = {"window": 32}
    asked_for["window, packed"] = {**asked_for["packed"], "window": 32}

    def compute(asked):
        with interpreted_tpu():
            assert kernel_for(asked).name == "splash"
            return attend(asked)

    monkeypatch.setattr(sys.modules[__name__], "HEADS", 4)
    assert_all_right(
        {"packed": asked_for["packed"]},
        length,
        of_groups(compute),
        tolerance=1e-4,
        right=of_groups(by_definition, repeats=2),
    )
    monkeypatch.undo()

    def right(asked):
        # The definition has no windows: as masks.
        if not asked.window:
            return by_definition(asked)
        mask = ops.convert_to_tensor(near[None, None])
        if asked.mask is not None:
            mask = ops.logical_and(mask, asked.mask)
        return by_definition(
            Asked(asked.query, asked.key, asked.value, asked.scale, mask)
        )

    outputs, gradients = results(compute, asked_for, length)
    expected, slopes = results(right, asked_for, length)
    for at, name in enumerate(asked_for):
        np.testing.assert_allclose(outputs[at], expected[at], atol=1e-4, err_msg=name)
        np.testing.assert_allclose(gradients[at], slopes[at], atol=1e-4, err_msg=name)


@only_jax
def test_what_tpus_have_no_kernel_for():
    with interpreted_tpu():
        assert_all_right(
            {
                name: arguments
                for name, arguments in patterns(128).items()
                if name not in TPU_PATTERNS
            },
            128,
            tolerance=1e-4,
        )
        values = ops.zeros(3 * BATCH * 128 * HEADS * WIDTH + HEADS * 128**2)
        for name in ("pairs", "bias", "bias, keys", "some queries"):
            kernel = kernel_for(asked_of(values, patterns(128)[name], 128))
            assert kernel.name == "xla", name
        dropping = asked_of(values, {}, 128, dropout=Dropout(0.1))
        assert kernel_for(dropping) is None
        short = asked_of(values[: 3 * BATCH * 16 * HEADS * WIDTH], {}, 16)
        assert kernel_for(short).name == "xla"


@only_jax
def test_a_batch_that_devices_share_is_left_to_xla(monkeypatch):
    # Which can't split a kernel of Pallas.
    mesh = types.SimpleNamespace(devices=np.zeros(4))
    shared = types.SimpleNamespace(device_mesh=mesh)
    asked = asked_of(ops.zeros(3 * BATCH * 128 * HEADS * WIDTH), {}, 128)
    with interpreted_tpu():
        assert kernel_for(asked).name == "splash"
        monkeypatch.setattr(keras.distribution, "distribution", lambda: shared)
        assert kernel_for(asked).name == "xla"


@only_jax
@pytest.mark.parametrize("kind", ["whole", "window", "causal"])
def test_layers_on_a_tpu(kind):
    keys, ids, _ = (ops.convert_to_tensor(each) for each in masks(128))
    x = ops.convert_to_tensor(RNG.normal(size=(BATCH, 128, 16)).astype("float32"))
    if kind == "window":
        layer = LocalSelfAttention(HEADS, WIDTH, window=16)
        arguments = {"attention_mask": keys, "sequence_ids": ids}
    else:
        layer = SelfAttention(HEADS, WIDTH, causal=kind == "causal")
        numbers = numbers_of(ids, keys)
        visible = VisibleKeys(same_sequence(ids, keys), kind == "causal", numbers)
        arguments = {"attention_mask": visible}
    layer.build(x.shape)
    expected = layer(x, **arguments)
    with interpreted_tpu():
        found = layer(x, **arguments)
    there = np.asarray(keys)
    np.testing.assert_allclose(found[there], expected[there], atol=1e-5)


@only_jax
def test_keras_is_still_wrong_on_tpus(monkeypatch):
    """Fails when Keras's attention on TPUs is right."""
    import jax
    from keras.src.backend.jax import nn

    kernels = types.SimpleNamespace(
        **{
            **vars(nn.splash_attention_kernel),
            "make_splash_mha": functools.partial(
                nn.splash_attention_kernel.make_splash_mha, interpret=True
            ),
        }
    )
    monkeypatch.setattr(nn, "splash_attention_kernel", kernels)
    device = types.SimpleNamespace(platform="tpu")
    monkeypatch.setattr(nn.jax, "devices", lambda *_: [device])
    asked = asked_of(
        ops.convert_to_tensor(
            RNG.normal(size=3 * BATCH * 128 * HEADS * WIDTH).astype("float32")
        ),
        {},
        128,
    )
    found = jax.jit(nn.dot_product_attention)(asked.query, asked.key, asked.value)
    monkeypatch.undo()
    right = by_definition(Asked(asked.query, asked.key, asked.value, WIDTH**-0.5))
    assert np.abs(found - right).max() > 0.1, (
        "Keras has mended `ops.dot_product_attention` on TPUs: the paragraph about it "
        "in attention_kernels.py can go, with this test."
    )
