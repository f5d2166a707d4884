"""Draw training and its results; this needs the `analysis` extra.

Each function returns a `matplotlib.figure.Figure` that belongs to no window, with any
backend of `matplotlib`. A notebook shows it, and `path` writes it to a file.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bertfam.types import Path
from keras_bertfam.whole_files import written_aside

__all__ = ["compare", "confusion", "history"]

# Units of metrics, by the endings of their names.
_UNITS = {
    "accuracy": "share that is right",
    "crossentropy": "nats",
    "perplexity": "per token",
    "rmse": "in the unit of the labels",
    "squared_error": "unit of the labels, squared",
}
MOST_IN_CELLS = 20


def history(
    history: Any, path: Path | None = None, labels: Mapping[str, str] | None = None
) -> Any:
    """Draw the logs of `fit()`: a panel with curves for each metric.

    Training values are means over an epoch, while the model changes. Held-out values
    are from the model at the epoch's end.

    Args:
        history: the `keras.callbacks.History` of `fit()`, or its dict.
        path: file to write; its suffix (`.png`, `.svg`, `.pdf`) sets the format. Or
            `None`.
        labels: dict from names of metrics to labels of axes, or `None`. Known metrics
            get their units as labels; the loss gets its name if a `History` is given.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: for a history without an epoch.
        ImportError: without `matplotlib`.

    Example:

    ```python
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    log = model.fit(np.ones((8, 2)), np.ones(8), epochs=3, validation_split=0.5)
    keras_bertfam.analysis.plots.history(log, "training.png")
    ```
    """
    logs = _logs(history)
    epochs = max((len(values) for values in logs.values()), default=0)
    if not epochs:
        raise ValueError(f"`history` must have an epoch. Received: {history!r}.")
    places = np.arange(1, epochs + 1) + min(getattr(history, "epoch", None) or [0])
    names = list(dict.fromkeys(name.removeprefix("val_") for name in logs))
    names.sort(key=lambda name: name != "loss")
    labels = {"loss": _loss_label(history), **(labels or {})}
    figure, panels = new_figure(len(names))
    for axes, name in zip(panels, names, strict=True):
        parts = {name: "training, mean of the epoch", f"val_{name}": "held out"}
        for key, label in parts.items():
            values = logs.get(key)
            if values is not None and len(values):
                every = max(1, epochs // len(values))  # `validation_freq`
                x = places[every - 1 :: every][: len(values)]
                axes.plot(x, values, marker=_marker(values), label=label)
        axes.set(xlabel="epoch", ylabel=labels.get(name) or _label(name))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()
    return written(figure, path)


def confusion(
    matrix: Any, label_names: Sequence[Any] | None = None, path: Path | None = None
) -> Any:
    """Draw a confusion matrix: counts, and as colour the share of the true class.

    Args:
        matrix: int array `(classes, classes)`: how often the row's class was predicted
            as the column's, as in scikit-learn. With up to 20 classes, cells show their
            counts.
        label_names: list of the classes' names, or `None` for numbers.
        path: see `history`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: for a matrix that isn't square, or more or fewer names than rows.
        ImportError: without `matplotlib`.

    Example:

    ```python
    keras_bertfam.analysis.plots.confusion(
        [[8, 1], [2, 9]], ["negative", "positive"], "confusion.png")
    ```
    """
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or not matrix.size or len(matrix) != matrix.shape[1]:
        raise ValueError(
            "`matrix` must be square, with a row for each class. "
            f"Received: shape={matrix.shape}."
        )
    names = list(range(len(matrix)) if label_names is None else label_names)
    if len(names) != len(matrix):
        raise ValueError(
            f"`label_names` must have a name for each of {len(matrix)} classes. "
            f"Received: {names}."
        )
    figure, [axes] = new_figure(1, side_of(matrix))
    draw_confusion(axes, matrix, names)
    return written(figure, path)


def compare(
    runs: Mapping[str, Sequence[Any]],
    metric: str = "val_loss",
    path: Path | None = None,
    axis_label: str | None = None,
) -> Any:
    """Draw curves of several trainings: for each, the mean and the range of its runs.

    If runs stopped at different epochs, mean and range are those of the runs that
    reached the epoch.

    Args:
        runs: dict from names to lists of runs, such as one for each seed. A run is
            the `keras.callbacks.History` of `fit()`, its dict, or a list of values.
        metric: str. The values of a history to show, such as `"val_accuracy"`.
        path: see `history`.
        axis_label: str, the axis's label; `None` for the metric's name and unit.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: without runs, or for a run without values of the metric.
        ImportError: without `matplotlib`.

    Example:

    ```python
    keras_bertfam.analysis.plots.compare(
        {"dynamic": [[5.1, 4.2], [5.0, 4.4]], "static": [[5.2, 4.6]]},
        "val_loss", "runs.png")
    ```
    """
    curves = {name: _curves(name, given, metric) for name, given in runs.items()}
    if not curves:
        raise ValueError(f"`runs` must have a run. Received: {runs!r}.")
    figure, [axes] = new_figure(1, 6)
    for name, rows in curves.items():
        places = np.arange(1, rows.shape[1] + 1)
        count = "1 run" if len(rows) == 1 else f"mean of {len(rows)} runs"
        label, marker = f"{name} ({count})", _marker(places)
        [line] = axes.plot(places, rows.mean(axis=0), marker=marker, label=label)
        if len(rows) > 1:
            band = rows.min(axis=0), rows.max(axis=0)
            axes.fill_between(places, *band, alpha=0.2, color=line.get_color())
    part = "held out" if metric.startswith("val_") else "training"
    usual = f"{_label(metric.removeprefix('val_'))}, {part}"
    axes.set(xlabel="epoch", ylabel=axis_label or usual)
    if any(len(rows) > 1 for rows in curves.values()):
        axes.set_title("bands: least to greatest value of the runs", fontsize="medium")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    return written(figure, path)


def draw_confusion(axes: Any, matrix: np.ndarray, names: Sequence[Any]) -> None:
    """Draw a confusion matrix on axes of `matplotlib`; see `confusion`."""
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    places = range(len(names))
    axes.set(xlabel="predicted", ylabel="true")
    if len(names) <= 5 * MOST_IN_CELLS:
        axes.set_xticks(places, names, rotation=90 if len(names) > 4 else 0)
        axes.set_yticks(places, names)
    axes.figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    if len(names) > MOST_IN_CELLS:
        return
    # A digit's width is about 0.6 of its size. Beside its cells a panel has labels and
    # a bar of colours.
    longest = max(len(f"{count:,}") for count in matrix.ravel())
    cell = 72 * 0.55 * side_of(matrix) / len(names)
    size = min(10.0, 0.85 * cell / (0.6 * longest))
    for row in places:
        for column in places:
            color = "white" if shares[row, column] > 0.5 else "black"
            text = f"{matrix[row, column]:,}"
            axes.text(
                column, row, text, ha="center", va="center", color=color, fontsize=size
            )


def _logs(history):
    logs = getattr(history, "history", history)
    if not isinstance(logs, Mapping) or not all(map(np.iterable, logs.values())):
        raise ValueError(
            "`history` must be a `keras.callbacks.History`, or its dict of lists. "
            f"Received: {history!r}."
        )
    return logs


def _curves(name, given, metric):
    """Stack the values of runs, `(runs, epochs)`, masked after a run's end."""
    if isinstance(given, (str, Mapping)) or not np.iterable(given):
        raise ValueError(
            f"`runs` must have a list of runs for each name. Received for {name!r}: "
            f"{given!r}."
        )
    values = [_values(name, run, metric) for run in given]
    rows = np.full((len(values), max(map(len, values), default=0)), np.nan)
    if not rows.size:
        raise ValueError(
            f"`runs` must have values of each name. Received for {name!r}: {given!r}."
        )
    for row, run in zip(rows, values, strict=True):
        row[: len(run)] = run
    return np.ma.masked_invalid(rows)


def _values(name, run, metric):
    logs = getattr(run, "history", run)
    if isinstance(logs, Mapping):
        if metric not in logs:
            raise ValueError(
                f"`metric` must be in each run, as {sorted(logs)} are in one of "
                f"{name!r}. Received: {metric!r}."
            )
        logs = logs[metric]
    if not np.iterable(logs):
        raise ValueError(
            "A run in `runs` must be a `keras.callbacks.History`, its dict or a list "
            f"of values. Received for {name!r}: {run!r}."
        )
    return np.asarray(logs, float)


def _loss_label(history):
    """Name the loss, if it is known from a `History`."""
    loss = getattr(getattr(history, "model", None), "loss", None)
    name = loss if isinstance(loss, str) else getattr(loss, "name", None)
    return f"loss: {_label(name)}" if name else "loss"


def _label(name):
    units = (unit for end, unit in _UNITS.items() if name.endswith(end))
    unit = next(units, None)
    return name.replace("_", " ") + (f" ({unit})" if unit else "")


def _marker(values):
    return "o" if len(values) < 20 else None


def legend_beside(axes: Any) -> None:
    """Put the legend of a panel to the right of it, where nothing is drawn."""
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")


def side_of(matrix: np.ndarray) -> float:
    """Give the width, in inches, of a panel with a row for each class."""
    return min(5 + 0.3 * max(0, len(matrix) - 4), 16)


def new_figure(panels: int, side: float = 5.0) -> tuple[Any, list[Any]]:
    """Make a figure of `matplotlib`, and the axes of its panels, three in a row."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.text import Text
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib: pip install keras-bertfam[analysis]."
        ) from error

    class Plain(Figure):
        """Make a figure that never reads its texts as mathematics."""

        def draw(self, renderer):
            for text in self.findobj(Text):
                text.set_parse_math(False)
            with matplotlib.rc_context({"text.parse_math": False}):  # for new ones
                super().draw(renderer)

    columns = min(panels, 3)
    rows = -(-panels // columns)
    size = (side * columns, 0.8 * side * rows)
    figure = Plain(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for unused in axes[panels:]:
        unused.remove()
    return figure, axes[:panels]


def written(figure: Any, path: Path | None) -> Any:
    """Write a figure, which appears under its name once complete; return it."""
    if path is not None:
        ending = pathlib.Path(path).suffix[1:].lower() or "png"
        with written_aside(path) as part:
            figure.savefig(part, dpi=120, format=ending)
    return figure
