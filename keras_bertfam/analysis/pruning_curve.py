"""How good a model is without the heads that it needs least."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis.head_importance import labelled_batches, score, trunk_of
from keras_bertfam.analysis.plots import new_figure, written
from keras_bertfam.arguments import checked
from keras_bertfam.types import Model, Path


@checked
def pruning_curve(
    model: Model,
    data: Any,
    importance: np.ndarray,
    shares: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    metric: str = "loss",
    *,
    batch_size: int = 32,
) -> dict[float, float]:
    """Score a model without its least important heads.

    Args:
        model: a compiled task, see `head_importance`.
        data: see `head_importance`; better other data than that of the importance.
        importance: float array `(num_layers, num_heads)`.
        shares: floats from 0 to 1. Which shares of all heads are masked.
        metric: `"loss"` or the name of a compiled metric.
        batch_size: int.

    Returns:
        Dict from shares to scores, for `plot_pruning`.

    Raises:
        ValueError: as `head_importance`; for shares out of their range.

    Example:

    ```python
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "my_bert", label_names=["negative", "positive"])
    data = ["the cat sat", "a dog"], ["positive", "negative"]
    importance = keras_bertfam.analysis.head_importance(model, data)
    curve = keras_bertfam.analysis.pruning_curve(
        model, data, importance, metric="accuracy")
    ```
    """
    stack = trunk_of(model)
    batches = labelled_batches(model, data, batch_size)
    found = {}
    for share in shares:
        mask = np.ones((stack.num_layers, stack.num_heads), "float32")
        for layer, heads in least_important(importance, share).items():
            mask[layer, heads] = 0
        found[share] = score(model, stack, batches, mask, metric)
    return found


@checked
def least_important(importance: np.ndarray, share: float) -> dict[int, list[int]]:
    """Find the least important heads, for `prune_heads`.

    Args:
        importance: float array `(num_layers, num_heads)`, what `head_importance` gives.
        share: float from 0 to 1, of all heads; the number is rounded down.

    Returns:
        Dict from layers to lists of heads. Of equally important heads the first.

    Raises:
        ValueError: for a share out of its range, or another shape.

    Example:

    ```python
    importance = np.array([[0.1, 0.9], [0.5, 0.2]])
    keras_bertfam.analysis.least_important(importance, 0.5)  # {0: [0], 1: [1]}
    ```
    """
    importance = np.asarray(importance)
    if importance.ndim != 2 or not 0 <= share <= 1:
        raise ValueError(
            "`importance` must be an array `(num_layers, num_heads)` and `share` from "
            f"0 to 1. Received: shape={importance.shape}, share={share!r}."
        )
    count = int(importance.size * share + 1e-9)
    order = np.argsort(importance, axis=None, kind="stable")[:count]
    found: dict[int, list[int]] = {}
    for place in sorted(order.tolist()):
        layer, head = divmod(place, importance.shape[1])
        found.setdefault(layer, []).append(head)
    return found


def plot_pruning(
    curves: Mapping[str, Mapping[float, float]],
    path: Path | None = None,
    axis_label: str = "score",
) -> Any:
    """Draw scores over the share of heads that are pruned, a curve for each name.

    Args:
        curves: dict from names to what `pruning_curve` gives.
        path: where to write it, by the ending of its name (`.png`, `.svg`, `.pdf`), or
            `None`.
        axis_label: str, what is scored.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: without a curve.
        ImportError: without `matplotlib`, which the `analysis` extra has.

    Reference: [Michel et al., 2019](https://arxiv.org/abs/1905.10650), figure 3.

    Example:

    ```python
    keras_bertfam.analysis.plot_pruning(
        {"by gradient": {0.0: 0.92, 0.5: 0.9, 1.0: 0.5}}, "pruning.png", "accuracy")
    ```
    """
    if not curves:
        raise ValueError(f"`curves` must have a curve. Received: {curves!r}.")
    figure, [axes] = new_figure(1, 6)
    for name, curve in curves.items():
        shares = sorted(curve)
        scores = [curve[share] for share in shares]
        axes.plot([100 * share for share in shares], scores, marker="o", label=name)
    axes.set(xlabel="heads pruned, percent", ylabel=axis_label)
    axes.legend()
    return written(figure, path)
