"""Compare classifiers' confidence with how often they are correct."""

from typing import Any

import numpy as np

from keras_bertfam.analysis import plots
from keras_bertfam.arguments import checked
from keras_bertfam.types import Path


@checked
def calibration(probabilities: Any, y_true: Any, bins: int = 10) -> dict[str, Any]:
    """Measure how far a classifier's confidence is from its accuracy.

    An example's confidence is its greatest probability. By confidence, examples are put
    into bins of equal width.

    Args:
        probabilities: float array `(examples, classes)`; or `(examples,)`, the
            probabilities of class 1 of two.
        y_true: int array `(examples,)`, the numbers of the true classes.
        bins: int.

    Returns:
        Dict of `error`, the expected calibration error: the mean over the examples of
        the distance between their bin's accuracy and mean confidence; `greatest`, the
        greatest of these distances; `confidence` and `accuracy`, float arrays
        `(bins,)`, `nan` for empty bins; and `counts`, an int array `(bins,)`.

    Raises:
        ValueError: for values that aren't probabilities, or labels of other classes.

    Example:

    ```python
    keras_bertfam.analysis.calibration([[0.9, 0.1], [0.4, 0.6]], [0, 0])["error"]
    # 0.35
    ```

    Reference: [Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 2.
    """
    probabilities, y_true = _checked(probabilities, y_true)
    if bins < 1:
        raise ValueError(f"`bins` must be at least 1. Received: {bins}.")
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == y_true
    # A bin includes its upper edge, as in the paper.
    edges = np.linspace(0, 1, bins + 1)
    places = np.clip(np.searchsorted(edges, confidence) - 1, 0, bins - 1)
    counts = np.bincount(places, minlength=bins)
    share = np.where(counts, counts, np.nan)
    means = np.bincount(places, confidence, minlength=bins) / share
    accuracies = np.bincount(places, right, minlength=bins) / share
    distances = np.abs(accuracies - means)
    return {
        "error": float(np.nansum(distances * counts) / len(y_true)),
        "greatest": float(np.nanmax(distances)),
        "confidence": means,
        "accuracy": accuracies,
        "counts": counts,
    }


@checked
def plot_calibration(
    probabilities: Any, y_true: Any, path: Path | None = None, bins: int = 10
) -> Any:
    """Draw the reliability diagram: accuracy over confidence, and counts of examples.

    Args:
        probabilities, y_true, bins: see `calibration`.
        path: file to write; its suffix (`.png`, `.svg`, `.pdf`) sets the format. Or
            `None`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: see `calibration`.
        ImportError: without `matplotlib`, which the `analysis` extra has.

    Example:

    ```python
    from keras_bertfam.analysis.reliability import plot_calibration
    plot_calibration(
        [[0.9, 0.1], [0.4, 0.6]], [0, 0], "calibration.png")
    ```
    """
    found = calibration(probabilities, y_true, bins)
    figure, panels = plots.new_figure(2)
    draw_calibration(panels[0], found)
    edges = (np.arange(bins) + 0.5) / bins
    panels[1].bar(edges, found["counts"], width=1 / bins, edgecolor="white")
    panels[1].set(xlabel="confidence", ylabel="examples", xlim=(0, 1))
    return plots.written(figure, path)


def draw_calibration(axes: Any, found: dict[str, Any]) -> None:
    """Draw the result of `calibration` on axes of `matplotlib`."""
    bins = len(found["counts"])
    edges = (np.arange(bins) + 0.5) / bins
    axes.bar(edges, found["accuracy"], width=1 / bins, edgecolor="white", alpha=0.7)
    axes.plot(found["confidence"], found["accuracy"], "o", color="black", ms=4)
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(
        f"expected calibration error {found['error']:.3f}", fontsize="medium"
    )


def _checked(probabilities, y_true):
    probabilities, y_true = np.asarray(probabilities, float), np.asarray(y_true)
    if probabilities.ndim == 1:
        probabilities = np.stack([1 - probabilities, probabilities], axis=1)
    shares = probabilities.ndim == 2 and probabilities.size > 0
    # Sums of float16 probabilities have larger errors than those of float32.
    shares = shares and bool((probabilities >= 0).all())
    if not shares or np.abs(probabilities.sum(axis=-1) - 1).max() > 1e-2:
        raise ValueError(
            "`probabilities` must be those of all classes, `(examples, classes)`. "
            f"Received: shape={probabilities.shape}."
        )
    fitting = y_true.shape == probabilities.shape[:1] and y_true.dtype.kind in "iub"
    if not fitting or y_true.min() < 0 or y_true.max() >= probabilities.shape[1]:
        raise ValueError(
            "`y_true` must be numbers of classes, one for each row of `probabilities`, "
            f"whose shape is {probabilities.shape}. Received: shape={y_true.shape}, "
            f"dtype={y_true.dtype}."
        )
    return probabilities, y_true
