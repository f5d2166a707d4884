"""Report how good a model is on labelled examples, and where it is worst."""

import dataclasses
import html
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis import plots
from keras_bertfam.metrics import compute_metrics, squad_scores
from keras_bertfam.metrics.scores import METRICS
from keras_bertfam.types import Path

# Texts that must fit on a line are cut to this length.
_WIDTH = 60
# Characters of a line, and the least width of a column that is cut.
_LINE, _LEAST = 100, 16


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Holds the result of `report()` of fine-tuning tasks. As a string it is a text.

    Attributes:
        title: str.
        scores: dict from names to floats.
        classes: dict from the name or number of each class to a dict of its
            `precision`, `recall` and `f1`, floats, and `support`, the number of its
            examples; `None` if labels aren't classes.
        confusion: int array `(classes, classes)`, rows true, columns predicted. `None`
            without classes, or if examples have several.
        errors: list of dicts, the worst first: the texts, `true` and `predicted`, and a
            measure of the error.
        pairs: float array `(examples, 2)` of true and predicted numbers, or `None`.

    Example:

    ```python
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "my_bert", label_names=["negative", "positive"])
    report = model.report(["the cat sat", "a dog"], ["positive", "negative"])
    print(report)
    report.to_markdown()
    report.plot("report.png")
    report.scores["accuracy"], report.errors[:1]
    ```
    """

    title: str
    scores: dict[str, float]
    errors: list[dict[str, Any]]
    classes: dict[Any, dict[str, float]] | None = None
    confusion: np.ndarray | None = None
    pairs: np.ndarray | None = None

    def __repr__(self) -> str:
        tables = self.tables().items()
        parts = (f"{title}\n{as_text(*table)}" for title, table in tables)
        return "\n\n".join([self.title, *parts])

    def to_markdown(self) -> str:
        """Write the report as Markdown, the texts of errors in full.

        For more than 20 classes it has the most frequent confusions, as the text has.
        """
        parts = [f"## {_escaped(self.title)}"]
        for title, table in self.tables().items():
            parts += [f"### {title}", _as_markdown(*table)]
        return "\n\n".join(parts) + "\n"

    def plot(self, path: Path | None = None) -> Any:
        """Draw the report as one picture: confusion matrix and scores of each class.

        For numbers it draws predicted over true values; for answers, the scores.

        Args:
            path: file to write; its suffix (`.png`, `.svg`, `.pdf`) sets the format. Or
                `None`.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: without `matplotlib`, which the `analysis` extra has.
        """
        if self.confusion is not None and self.classes is not None:
            figure, panels = plots.new_figure(2, plots.side_of(self.confusion))
            plots.draw_confusion(panels[0], self.confusion, list(self.classes))
            _draw_classes(panels[1], self.classes)
        elif self.classes is not None:
            figure, [axes] = plots.new_figure(1)
            _draw_classes(axes, self.classes)
        elif self.pairs is not None:
            figure, [axes] = plots.new_figure(1)
            axes.scatter(*self.pairs.T, s=12, alpha=0.5)
            axes.axline((self.pairs[0, 0],) * 2, slope=1, color="grey", linewidth=1)
            axes.set(xlabel="true", ylabel="predicted")
        else:
            figure, [axes] = plots.new_figure(1)
            axes.barh(list(self.scores), list(self.scores.values()))
            axes.set(xlabel="score in percent", xlim=(0, 100))
        figure.suptitle(self.title)
        return plots.written(figure, path)

    def tables(self) -> dict[str, Any]:
        """Arrange the report: titles with pairs of the columns' names and the rows."""
        names: list[Any] = [*(self.classes or ())]
        rows: list[Any] = [*map(list, self.scores.items())]
        found: dict[str, Any] = {"Scores": (["score", "value"], rows)}
        if self.classes is not None:
            columns = ["class", "precision", "recall", "f1", "support"]
            rows = [[name, *each.values()] for name, each in self.classes.items()]
            found["Classes"] = (columns, rows)
        if self.confusion is not None and len(self.confusion) <= plots.MOST_IN_CELLS:
            rows = [[n, *row] for n, row in zip(names, self.confusion, strict=True)]
            title = "Confusion: true in rows, predicted in columns"
            found[title] = (["", *names], rows)
        elif self.confusion is not None:
            columns = ["true", "predicted", "count"]
            found["The most frequent confusions"] = (columns, self._confused())
        if self.errors:
            rows = [list(error.values()) for error in self.errors]
            found["The worst errors"] = (list(self.errors[0]), rows)
        return found

    def _confused(self):
        names = list(self.classes or ())
        counts = np.where(np.eye(len(names), dtype=bool), 0, self.confusion)
        order = np.argsort(-counts, axis=None, kind="stable")[: plots.MOST_IN_CELLS]
        places = zip(*np.unravel_index(order, counts.shape), strict=True)
        return [[names[i], names[j], counts[i, j]] for i, j in places if counts[i, j]]


def class_report(
    title: str,
    texts: dict[str, list[Any]],
    y_true: Any,
    probabilities: np.ndarray,
    label_names: Sequence[Any] | None,
    worst: int | None,
    scores: dict[str, float] | None = None,
) -> Report:
    """Report on examples with one class each.

    Args:
        title: str.
        texts: dict from names to lists of texts, one for each example.
        y_true: int array `(examples,)`, the numbers of the true classes.
        probabilities: float array `(examples, classes)`.
        label_names: list of the names of the classes, or `None` for numbers.
        worst: int. The most errors that are listed; `None` for all.
        scores: dict of further scores, or `None`.

    Returns:
        A `Report`. Its errors are the wrong predictions; those with the least
        probability of the true class come first.

    Raises:
        ImportError: without scikit-learn, which the `evaluation` extra has.
    """
    count = probabilities.shape[1]
    names = list(label_names or range(count))
    y_pred = probabilities.argmax(axis=1)
    sklearn = METRICS["accuracy"].load()
    kinds = ["accuracy", "macro_f1", "matthews", *(["f1"] if count == 2 else [])]
    of_classes = sklearn.precision_recall_fscore_support(
        y_true, y_pred, labels=range(count), zero_division=0
    )
    each = np.arange(len(y_true))
    losses = -np.log(np.maximum(probabilities[each, y_true], 1e-12))
    errors = [
        {
            **{name: column[k] for name, column in texts.items()},
            "true": names[y_true[k]],
            "predicted": names[y_pred[k]],
            "probability": float(probabilities[k, y_pred[k]]),
            "loss": float(losses[k]),
        }
        for k in _worst_first(losses)
        if y_true[k] != y_pred[k]
    ]
    return Report(
        title=title,
        scores={
            **_scores(kinds, y_true, y_pred),
            **(scores or {}),
            "crossentropy": float(losses.mean()),
        },
        errors=_once(errors, texts)[:worst],
        classes=_by_class(names, of_classes),
        confusion=sklearn.confusion_matrix(y_true, y_pred, labels=range(count)),
    )


def label_set_report(
    title: str,
    texts: dict[str, list[Any]],
    y_true: np.ndarray,
    probabilities: np.ndarray,
    label_names: Sequence[Any] | None,
    worst: int | None,
) -> Report:
    """Report on examples with any number of classes, as `class_report` does.

    Args:
        title, texts, label_names, worst: see `class_report`.
        y_true: bool array `(examples, classes)`.
        probabilities: float array of that shape. Classes of at least .5 are predicted.

    Returns:
        A `Report`. Its errors are the examples with classes too many or too few, those
        with the greatest mean cross-entropy of classes first.

    Raises:
        ImportError: without scikit-learn, which the `evaluation` extra has.
    """
    names = list(label_names or range(probabilities.shape[1]))
    y_pred = probabilities >= 0.5
    sklearn = METRICS["accuracy"].load()
    # With a class that never holds, as scikit-learn takes a single one for two.
    padded = [np.pad(each, ((0, 0), (0, 1))) for each in (y_true, y_pred)]
    shares, micro = (
        sklearn.precision_recall_fscore_support(
            *padded, average=average, zero_division=0
        )
        for average in (None, "micro")
    )
    shares = [each[:-1] for each in shares]
    right = np.where(y_true, probabilities, 1 - probabilities)
    losses = -np.log(np.maximum(right, 1e-12)).mean(axis=1)
    errors = [
        {
            **{name: column[k] for name, column in texts.items()},
            "true": [
                name for name, there in zip(names, y_true[k], strict=True) if there
            ],
            "predicted": [
                n for n, there in zip(names, y_pred[k], strict=True) if there
            ],
            "loss": float(losses[k]),
        }
        for k in _worst_first(losses)
        if (y_true[k] != y_pred[k]).any()
    ]
    return Report(
        title=title,
        scores={
            "micro_f1": float(micro[2]),
            "macro_f1": float(shares[2].mean()),
            "exact_match": float((y_true == y_pred).all(axis=1).mean()),
            "accuracy": float((y_true == y_pred).mean()),
            "crossentropy": float(losses.mean()),
        },
        errors=_once(errors, texts)[:worst],
        classes=_by_class(names, shares),
    )


def number_report(
    title: str,
    texts: dict[str, list[Any]],
    y_true: Any,
    y_pred: Any,
    worst: int | None,
) -> Report:
    """Report on examples with a number each, as `class_report` does.

    Returns:
        A `Report`. Its errors are the examples with the greatest differences.

    Raises:
        ImportError: without SciPy, which the `evaluation` extra has.
    """
    difference = y_pred - y_true
    errors = [
        {
            **{name: column[k] for name, column in texts.items()},
            "true": float(y_true[k]),
            "predicted": float(y_pred[k]),
            "error": float(difference[k]),
        }
        for k in _worst_first(np.abs(difference))
    ]
    errors = _once(errors, texts)[:worst]
    scores = {
        **compute_metrics(["pearson", "spearman"], y_true, y_pred),
        "rmse": float(np.sqrt(np.mean(difference**2))),
        "mean_absolute_error": float(np.mean(np.abs(difference))),
    }
    return Report(title, scores, errors, pairs=np.stack([y_true, y_pred], axis=1))


def answer_report(
    title: str,
    texts: dict[str, list[Any]],
    y: Sequence[dict[str, Any]],
    answers: Sequence[dict[str, Any]],
    worst: int | None,
) -> Report:
    """Report on questions with answers in a text.

    Args:
        title, texts, worst: see `class_report`.
        y: list of dicts as in SQuAD, with a list `text`.
        answers: result of `SpanQuestionAnswering.predict`.

    Returns:
        A `Report`. Its errors are the answers with the least F1; of equal ones, the
        most probable come first.
    """
    predicted = [answer["text"] for answer in answers]
    f1 = [squad_scores([y[k]], [text])["f1"] for k, text in enumerate(predicted)]
    probable = [
        next(n["probability"] for n in answer["n_best"] if n["text"] == answer["text"])
        for answer in answers
    ]
    errors = [
        {
            **{name: column[k] for name, column in texts.items()},
            "true": list(y[k]["text"]),
            "predicted": predicted[k],
            "probability": probable[k],
            "f1": f1[k],
        }
        for k in sorted(range(len(y)), key=lambda k: (f1[k], -probable[k]))
        if f1[k] < 100
    ]
    return Report(title, squad_scores(y, predicted), _once(errors, texts)[:worst])


def _by_class(names, shares):
    """Make rows of a table from scikit-learn's scores of each class."""
    columns = ("precision", "recall", "f1", "support")
    return {
        name: dict(zip(columns, [*map(float, row[:3]), int(row[3])], strict=True))
        for name, row in zip(names, zip(*shares, strict=True), strict=True)
    }


def _scores(kinds, y_true, y_pred):
    with warnings.catch_warnings():
        # scikit-learn's advice if there is only one class.
        warnings.filterwarnings("ignore", "A single label was found")
        return compute_metrics(kinds, y_true, y_pred)


def _once(errors, texts):
    """Keep the first error of each text."""
    found: dict[str, Any] = {}
    for error in errors:
        found.setdefault(repr([error[name] for name in texts]), error)
    return list(found.values())


def _worst_first(losses):
    """Sort examples by their losses; losses that aren't finite are the worst."""
    losses = np.where(np.isfinite(losses), losses, np.inf)
    return np.argsort(-losses, kind="stable").tolist()


def _draw_classes(axes, classes):
    places = np.arange(len(classes))
    for shift, name in enumerate(("precision", "recall", "f1")):
        values = [scores[name] for scores in classes.values()]
        axes.barh(places + 0.25 * (shift - 1), values, height=0.25, label=name)
    if len(classes) <= 5 * plots.MOST_IN_CELLS:
        axes.set_yticks(places, [f"{k} ({v['support']})" for k, v in classes.items()])
    axes.set(xlabel="score, 1 is best", ylabel="class (examples)", xlim=(0, 1))
    axes.invert_yaxis()
    plots.legend_beside(axes)


def _cell(value):
    if isinstance(value, (list, tuple)):
        value = " / ".join(map(str, value))
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    return " ".join(str(value).split())


def as_text(columns, rows):
    cells = [[*map(_cell, row)] for row in (columns, *rows)]
    widest = [max(map(len, column)) for column in zip(*cells, strict=True)]
    # Texts share the room that numbers leave on a line.
    most = next(
        (
            width
            for width in range(_WIDTH, _LEAST, -1)
            if sum(min(w, width) + 2 for w in widest) <= _LINE
        ),
        _LEAST,
    )
    lines = [
        [c if len(c) <= most else f"{c[: most - 1]}…" for c in row] for row in cells
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _as_markdown(columns, rows):
    lines = [[_escaped(_cell(value)) for value in row] for row in (columns, *rows)]
    lines.insert(1, ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text):
    """Escape characters that Markdown or its tables would read as markup."""
    text = html.escape(text, quote=False)
    return re.sub(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
