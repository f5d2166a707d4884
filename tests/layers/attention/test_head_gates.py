import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers.attention.head_gates import HeadGates
from keras_bertfam.layers.attention.stack_heads import NoAttention


def array(x):
    return ops.convert_to_numpy(x)


def make(**kwargs):
    gates = HeadGates(4, 3, seed=1, **kwargs)
    gates.build()
    return gates


def test_gates_begin_open_and_close():
    gates = make(learning_rate_multiplier=10)
    assert (gates.values() == 1).all() and gates.closed_heads() == {}
    log_alpha = np.full((4, 3), 0.3)
    log_alpha[1, 2] = log_alpha[3, 0] = -1
    log_alpha[2, 1] = 0
    gates.log_alpha.assign(log_alpha)
    assert gates.closed_heads() == {1: [2], 3: [0]}
    np.testing.assert_allclose(gates.values()[2], [1, 0.5, 1], atol=1e-6)
    mask = np.full((4, 2, 3), 0.5, "float32")
    np.testing.assert_allclose(
        array(gates(mask)), gates.values()[:, None] * mask, atol=1e-6
    )
    assert not gates.losses


def test_samples_are_often_open_or_closed_and_cost():
    gates = make(initial=0.0, penalty=0.5)
    np.testing.assert_allclose(gates.open_probabilities(), 0.688112, atol=1e-5)
    ones = np.ones((4, 3), "float32")
    samples = []
    for _ in range(100):
        samples.append(array(gates(ones, training=True)))
        [cost] = gates.losses
        assert float(array(cost)) == pytest.approx(0.5 * 12 * 0.688112, rel=1e-5)
    samples = np.stack(samples)
    assert samples.min() == 0 and samples.max() == 1
    # 1,200 draws: a standard deviation is 0.013.
    assert np.mean(samples > 0) == pytest.approx(0.688, abs=0.06)
    assert np.mean(samples == 1) == pytest.approx(1 - 0.688, abs=0.06)


def test_layers_of_a_group_have_the_same_gates():
    gates = make(num_groups=2)
    assert tuple(gates.log_alpha.shape) == (2, 3)
    gates.log_alpha.assign([[9, 9, -9], [9, 9, 9]])
    assert gates.closed_heads() == {0: [2], 1: [2]}
    copy = HeadGates.from_config(gates.get_config())
    copy.build()
    assert copy.num_groups == 2 and copy.closed_heads() == {}


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "argument",
    [
        {"penalty": -1},
        {"temperature": 0},
        {"stretch": (0, 1.1)},
        {"learning_rate_multiplier": 0},
    ],
)
def test_what_is_out_of_range_is_refused(argument):
    with pytest.raises(
        ValueError, match=f"`{next(iter(argument))}` must be .*Received"
    ):
        make(**argument)


def test_attention_without_heads_is_a_bias():
    layer = NoAttention()
    x = np.ones((2, 5, 3), "float32")
    layer.build(x.shape)
    layer.bias.assign([1, 2, 3])
    output, scores = layer(x, positions=np.array([[4], [0]]), return_scores=True)
    np.testing.assert_array_equal(array(output), [[[1, 2, 3]]] * 2)
    assert tuple(scores.shape) == (2, 0, 1, 5)
    unbiased = keras.layers.deserialize(
        keras.layers.serialize(NoAttention(use_bias=False))
    )
    assert not array(unbiased(x)).any()
