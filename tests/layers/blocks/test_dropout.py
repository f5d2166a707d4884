import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats

from keras_bertfam.layers.blocks.dropout import Dropout, hash_bits


def dropped(layer, shape):
    return ops.convert_to_numpy(layer(np.ones(shape, "float32"), training=True)) == 0


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.01])
def test_rate(rate):
    count = dropped(Dropout(rate, seed=1), (1000, 301)).sum()
    assert stats.binomtest(int(count), 301000, rate).pvalue > 1e-3


def test_expectation_is_exact():
    # Kept elements are scaled by the inverse of the rounded keep rate.
    layer = Dropout(0.1, seed=0)
    outputs = ops.convert_to_numpy(layer(np.ones((8, 8), "float32"), training=True))
    assert np.unique(outputs)[-1] == np.float32(65536 / (65536 - round(6553.6)))


def test_steps_neighbours_and_layers_are_independent():
    layer = Dropout(0.5, seed=1)
    first, second = dropped(layer, (512, 512)), dropped(layer, (512, 512))
    other = dropped(Dropout(0.5, seed=2), (512, 512))
    pairs = {
        "steps": (first, second),
        "seeds": (first, other),
        "neighbours": (first[:, 1:], first[:, :-1]),
        "rows": (first[1:], first[:-1]),
        "halves of a word": (first[:, ::2], first[:, 1::2]),
    }
    for name, (a, b) in pairs.items():
        table = np.histogram2d(a.ravel(), b.ravel(), bins=2)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-3, name


def test_every_bit_is_fair_for_consecutive_seeds():
    rows = []
    for step in range(64):
        seed = ops.convert_to_tensor(np.array([7, step]))
        rows.append(ops.convert_to_numpy(hash_bits(4096, seed)).view("uint32"))
    bits = (np.stack(rows)[..., None] >> np.arange(32, dtype="uint32")) & 1
    size = bits[..., 0].size
    scores = (bits.reshape(-1, 32).sum(0) - size / 2) / np.sqrt(size / 4)
    assert stats.chi2.sf((scores**2).sum(), 32) > 1e-3
    # Bit by bit, the integers of two seeds agree half of the time.
    agree = (bits[1:] == bits[:-1]).mean(axis=(0, 1))
    assert abs(agree - 0.5).max() < 5 * 0.5 / np.sqrt(63 * 4096)


def test_same_seed_same_mask():
    a, b = Dropout(0.3, seed=5), Dropout(0.3, seed=5)
    np.testing.assert_array_equal(dropped(a, (7, 9)), dropped(b, (7, 9)))


def test_seeds_count_and_go_back_with_the_state():
    layer = Dropout(0.3, seed=5)
    first, second = dropped(layer, (7, 9)), dropped(layer, (7, 9))
    state = layer.seed_generator.state
    np.testing.assert_array_equal(ops.convert_to_numpy(state), [5, 2])
    state.assign([5, 1])  # as a checkpoint does
    np.testing.assert_array_equal(dropped(layer, (7, 9)), second)
    other = Dropout(0.3, seed=5)
    other.seed_generator.state.assign([5, 1])
    np.testing.assert_array_equal(dropped(other, (7, 9)), second)
    assert (first != second).any()


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="only PyTorch has these")
@pytest.mark.parametrize("seed", [(7, 3), (2**32 - 1, 0), (0, 2**31)])
def test_seeds_of_the_host_give_the_same_bits(seed):
    tensor = ops.convert_to_tensor(np.array(seed))
    found = ops.convert_to_numpy(hash_bits(101, seed))
    np.testing.assert_array_equal(found, ops.convert_to_numpy(hash_bits(101, tensor)))


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="only PyTorch has these")
def test_seeds_within_a_stateless_scope():
    layer = Dropout(0.3, seed=5)
    state = layer.seed_generator.state
    with keras.StatelessScope([(state, ops.convert_to_tensor([5, 9]))]) as scope:
        inside = dropped(layer, (7, 9))
    np.testing.assert_array_equal(scope.get_current_value(state), [5, 10])
    np.testing.assert_array_equal(ops.convert_to_numpy(state), [5, 0])
    state.assign([5, 9])
    np.testing.assert_array_equal(dropped(layer, (7, 9)), inside)


def test_inference_and_rate_zero_change_nothing():
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    for layer, training in ((Dropout(0.5), False), (Dropout(0.0), True)):
        outputs = ops.convert_to_numpy(layer(x, training=training))
        np.testing.assert_array_equal(outputs, x)


def test_half_precision():
    layer = Dropout(0.5, dtype="mixed_bfloat16")
    outputs = layer(ops.ones((4, 5), "bfloat16"), training=True)
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_bad_rate(rate):
    with pytest.raises(ValueError, match=f"rate={rate}"):
        Dropout(rate)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only TensorFlow has unknown shapes"
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_unknown_batch_size(jit_compile):
    import tensorflow as tf

    layer = Dropout(0.5, seed=5)
    call = tf.function(
        lambda x: layer(x, training=True),
        input_signature=[tf.TensorSpec([None, 9])],
        jit_compile=jit_compile,
    )
    expected = dropped(Dropout(0.5, seed=5), (7, 9))
    np.testing.assert_array_equal(call(tf.ones((7, 9))).numpy() == 0, expected)
