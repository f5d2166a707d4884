import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers.heads.scalar_mix import ScalarMix


@pytest.mark.parametrize("layer_norm", [False, True])
def test_against_numpy(layer_norm):
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(2, 3, 4)).astype("float32") for _ in range(3)]
    mask = np.array([[1, 1, 0], [1, 1, 1]], bool)
    layer = ScalarMix(3, layer_norm=layer_norm)
    layer.build()
    layer.mix.assign([0.3, -1.0, 0.5])
    layer.gamma.assign(1.7)
    shares = np.exp([0.3, -1.0, 0.5]) / np.exp([0.3, -1.0, 0.5]).sum()
    expected = 0
    for share, state in zip(shares, states, strict=True):
        if layer_norm:
            kept = state[mask]
            state = (state - kept.mean()) / kept.std()
        expected = expected + 1.7 * share * state
    mixed = ops.convert_to_numpy(layer(states, padding_mask=mask))
    np.testing.assert_allclose(mixed, expected, atol=1e-5)
    copy = ScalarMix.from_config(layer.get_config())
    assert copy.layer_norm is layer_norm


def test_errors():
    with pytest.raises(ValueError, match="`num_states` must be a positive int.*0"):
        ScalarMix(0)
    with pytest.raises(ValueError, match="num_states=2 tensors. Received: 1"):
        ScalarMix(2)([np.zeros((1, 2, 3), "float32")])
