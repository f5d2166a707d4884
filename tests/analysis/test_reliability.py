import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from keras_bertfam.analysis import calibration
from keras_bertfam.analysis.reliability import plot_calibration

pytestmark = pytest.mark.any_backend


def example(count=500, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet([1.0] * classes, count)
    return probabilities, rng.integers(0, classes, count)


def test_known_errors():
    probabilities = np.repeat([[0.8, 0.2]], 10, axis=0)
    y = np.array([0] * 8 + [1] * 2)
    assert calibration(probabilities, y)["error"] == pytest.approx(0)
    assert calibration(probabilities, 1 - y)["error"] == pytest.approx(0.6)
    # Half in a bin that is right, half in one that is off by a half.
    probabilities = np.array([[1, 0], [1, 0], [0.5, 0.5], [0.5, 0.5]])
    found = calibration(probabilities, [0, 0, 1, 1], bins=2)
    assert found["error"] == pytest.approx(0.25) and found["greatest"] == 0.5
    assert found["counts"].tolist() == [2, 2]


def test_bins_are_those_of_scikit_learn():
    probabilities, y = example()
    found = calibration(probabilities, y)
    right = probabilities.argmax(1) == y
    theirs = calibration_curve(right, probabilities.max(1), n_bins=10)
    filled = found["counts"] > 0
    np.testing.assert_allclose(found["accuracy"][filled], theirs[0])
    np.testing.assert_allclose(found["confidence"][filled], theirs[1])
    shares = found["counts"][filled] / 500
    expected = shares @ np.abs(theirs[0] - theirs[1])
    assert found["error"] == pytest.approx(expected)


def test_two_classes_by_one_number():
    probabilities, y = example(classes=2)
    one, two = calibration(probabilities[:, 1], y), calibration(probabilities, y)
    assert one["error"] == pytest.approx(two["error"])


def test_plot(tmp_path):
    plot_calibration(*example(), tmp_path / "calibration.png")
    assert (tmp_path / "calibration.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "probabilities, y, bins, message",
    [
        ([[2.0, 1.0]], [0], 10, "`probabilities` must be those of all classes"),
        ([[-0.5, 1.5]], [0], 10, "`probabilities`"),
        (np.zeros((0, 2)), [], 10, "`probabilities`"),
        ([[0.5, 0.5]], [2], 10, "`y_true` must be numbers of classes"),
        ([[0.5, 0.5]], [0.0], 10, "`y_true`"),
        ([[0.5, 0.5]], [0, 1], 10, "`y_true`"),
        ([[0.5, 0.5]], [0], 0, "`bins`"),
    ],
)
def test_what_has_no_calibration(probabilities, y, bins, message):
    with pytest.raises(ValueError, match=message):
        calibration(probabilities, y, bins)


@pytest.mark.parametrize("bins", [5, 10, 20, 100])
def test_every_bin_has_its_upper_edge(bins):
    edges = [k / bins for k in range(bins // 2 + 1, bins + 1)]
    for number, edge in enumerate(edges, bins // 2):
        counts = calibration([[edge, 1 - edge]], [0], bins=bins)["counts"]
        assert counts.argmax() == number
