import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis import layer_transitions, plot_layer_transitions
from keras_bertfam.models import AlbertBackbone


def test_golden():
    states = [np.array([[[1.0, 0.0]]]), np.array([[[1.0, 1.0]]])]
    out = {k: ops.convert_to_numpy(v) for k, v in layer_transitions(states).items()}
    assert out["l2_distance"] == pytest.approx([1.0])
    assert out["angle"] == pytest.approx([45.0])


def test_small_and_large_angles():
    for angle in (1e-3, 90.0, 180.0):
        x = np.array([[[1.0, 0.0]]])
        y = np.array([[[np.cos(np.radians(angle)), np.sin(np.radians(angle))]]])
        received = layer_transitions([x, 3 * y])["angle"]
        assert ops.convert_to_numpy(received) == pytest.approx([angle], rel=1e-3)


def test_equals_numpy_over_tokens_that_are_no_padding():
    backbone = AlbertBackbone(20, 3, 2, 8, 16, embedding_dim=4, initializer_range=0.5)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
    inputs = {"token_ids": np.arange(8).reshape(2, 4), "padding_mask": mask}
    states = backbone(inputs, return_hidden_states=True)["hidden_states"]
    received = layer_transitions(states, mask)
    received = {k: ops.convert_to_numpy(v) for k, v in received.items()}
    states = [ops.convert_to_numpy(state)[mask].astype("float64") for state in states]
    for layer, (x, y) in enumerate(zip(states[:-1], states[1:], strict=True)):
        distance = np.linalg.norm(y - x, axis=-1)
        lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
        angle = np.degrees(np.arccos((x * y).sum(-1) / lengths))
        assert float(received["l2_distance"][layer]) == pytest.approx(distance.mean())
        assert float(received["angle"][layer]) == pytest.approx(angle.mean(), rel=1e-4)
    assert received["angle"].shape == (3,)


def test_one_state():
    with pytest.raises(ValueError, match="`hidden_states`.*1 state"):
        layer_transitions([np.ones((1, 1, 2))])


@pytest.mark.any_backend
def test_the_figure_has_a_panel_for_each_measure(tmp_path):
    one = {"l2_distance": np.array([1.0, 3.0]), "angle": np.array([45.0, 90.0])}
    states = [np.eye(2)[None] + k for k in range(4)]
    path = tmp_path / "layers.png"
    figure = plot_layer_transitions({"a": one, "b": layer_transitions(states)}, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "L2 distance",
        "angle in degrees",
    ]
    for axes, values in zip(figure.axes, one.values(), strict=True):
        first, _ = axes.get_lines()
        assert first.get_label() == "a"
        np.testing.assert_array_equal(first.get_xydata(), np.stack([[1, 2], values], 1))
    assert len(plot_layer_transitions(one).axes[1].get_lines()) == 1
    for wrong in ({}, {"a": 3}, {"angle": one["angle"]}):
        with pytest.raises(ValueError, match="`transitions` must be a result"):
            plot_layer_transitions(wrong)
