"""The results of probes, and the layers that they come from."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis import plots
from keras_bertfam.analysis.report import as_text
from keras_bertfam.types import Path


def expected_layer(scores: Sequence[float]) -> float:
    """Compute the mean layer at which a probe's score rises.

    Args:
        scores: floats: item `k` is the score of the probe that sees layers 0 to `k`.
            Layer `k` gains item `k` minus item `k - 1`, which may be negative. Scores
            0.5, 0.7, 0.8, 0.8 have the gains 0.2, 0.1 and 0 in layers 1 to 3, and `(1 *
            0.2 + 2 * 0.1 + 3 * 0) / 0.3 = 1.333`. The score of layer 0 alone is no
            gain.

    Returns:
        A float, `nan` if the last score is the first one.

    Example:

    ```python
    from keras_bertfam.analysis.probes.report import expected_layer
    expected_layer([0.5, 0.7, 0.8, 0.8])  # 1.333
    ```

    Reference: [Tenney et al., 2019](https://arxiv.org/abs/1905.05950), section 2.2.
    """
    gains = np.diff(np.asarray(scores, float))
    if not gains.sum():
        return float("nan")
    return float(np.arange(1, len(gains) + 1) @ gains / gains.sum())


def center_of_gravity(weights: Sequence[float]) -> float:
    """Compute the mean layer of a scalar mix.

    Args:
        weights: floats, the shares of the layers, from layer 0 on.

    Returns:
        A float.

    Example:

    ```python
    from keras_bertfam.analysis.probes.report import center_of_gravity
    center_of_gravity([0.1, 0.2, 0.3, 0.4])  # 2.0
    ```

    Reference: [Tenney et al., 2019](https://arxiv.org/abs/1905.05950), section 2.1.
    """
    shares = np.asarray(weights, float)
    return float(np.arange(len(shares)) @ shares / shares.sum())


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ProbeReport:
    """The result of `probe()`. As a string it is a table.

    Arrays `(seeds, probes)` have a probe for each layer, from the embeddings on, and a
    last probe for the mix of all layers. If `cumulative`, probe `k` is for the mix of
    layers 0 to `k`.

    Attributes:
        metric: str, the name of the scores' metric.
        cumulative: bool.
        scores: float array `(seeds, probes)`, on held-out targets.
        control_scores: the same of the control task, or `None`.
        mix_weights: float array `(seeds, layers)`, the shares of the mix of all.
        description_bits: float array `(seeds, probes)`, the description lengths of the
            labels that were trained on, or `None`.
        control_bits: the same of the control task, or `None`.
        uniform_bits: float. The description length if all labels are equally probable.
        majority: float. The score of always predicting the most frequent label, or set
            of labels: the micro F1 if that is the metric, else the accuracy.
        label_names: list of the labels.
        counts: tuple of three ints, the numbers of targets that were trained on, that
            were held out to end the training, and that were scored.

    Example:

    ```python
    from keras_bertfam.analysis.probes.report import ProbeReport
    report = ProbeReport(
        "accuracy", True, scores=np.array([[0.5, 0.7, 0.8]]), control_scores=None,
        mix_weights=np.array([[0.1, 0.4, 0.5]]))
    report.expected_layer, report.center_of_gravity  # 1.33, 1.4
    ```
    """

    metric: str
    cumulative: bool
    scores: np.ndarray
    control_scores: np.ndarray | None
    mix_weights: np.ndarray
    description_bits: np.ndarray | None = None
    control_bits: np.ndarray | None = None
    uniform_bits: float = float("nan")
    majority: float = float("nan")
    label_names: Sequence[Any] = ()
    counts: tuple[int, ...] = ()

    @property
    def probes(self) -> list[str]:
        """The names of the probes."""
        layers = self.mix_weights.shape[1]
        if self.cumulative:
            return [f"0-{k}" if k else "0" for k in range(layers)]
        return [*map(str, range(layers)), "mix"]

    @property
    def selectivity(self) -> np.ndarray | None:
        """The real task's scores minus the control task's, `(seeds, probes)`."""
        if self.control_scores is None:
            return None
        return self.scores - self.control_scores

    @property
    def compression(self) -> np.ndarray | None:
        """`uniform_bits` divided by `description_bits`, or `None`."""
        if self.description_bits is None:
            return None
        return self.uniform_bits / self.description_bits

    @property
    def expected_layer(self) -> float | None:
        """The `expected_layer` of the mean scores, or `None` unless `cumulative`."""
        return expected_layer(self.scores.mean(0)) if self.cumulative else None

    @property
    def center_of_gravity(self) -> float:
        """The `center_of_gravity` of the mean mix of all layers."""
        return center_of_gravity(self.mix_weights.mean(0))

    @property
    def mix_divergence(self) -> float:
        """The divergence of the mean mix from a uniform one, in bits."""
        shares = self.mix_weights.mean(0)
        logs = np.log2(np.maximum(shares, 1e-30) * len(shares))
        return float(shares @ logs)

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Give the names of the columns, and the rows, one for each probe."""
        columns, values = ["probe", self.metric], [self.probes, self.scores.mean(0)]
        optional = {
            "control": self.control_scores,
            "selectivity": self.selectivity,
            "bits": self.description_bits,
            "compression": self.compression,
        }
        if len(self.scores) > 1:
            columns.append("deviation")
            values.append(self.scores.std(0, ddof=1))
        for name, array in optional.items():
            if array is not None:
                columns.append(name)
                values.append(array.mean(0))
        return columns, [*map(list, zip(*values, strict=True))]

    @property
    def title(self) -> str:
        """A line with the metric, the number of seeds, and results of all probes."""
        said = [f"center of gravity {self.center_of_gravity:.2f}"]
        if self.expected_layer is not None:
            said.append(f"expected layer {self.expected_layer:.2f}")
        if self.metric == "micro_f1":
            which = "always saying the most frequent set of labels"
            said.append(f"micro F1 {self.majority:.4g} of {which}")
        else:
            metric = "" if self.metric == "accuracy" else "accuracy "
            said.append(f"{metric}{self.majority:.4g} of the most frequent label")
        return f"{self.metric}, {len(self.scores)} seed(s); " + ", ".join(said)

    def __repr__(self) -> str:
        return f"{self.title}\n{as_text(*self.table())}"

    def plot(self, path: Path | None = None) -> Any:
        """Draw the scores over the layers, and the shares of the mix.

        Args:
            path: where to write the picture, by the ending of its name (`.png`,
                `.svg`, `.pdf`), or `None`.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: without `matplotlib`, which the `analysis` extra has.
        """
        figure, [axes, shares] = plots.new_figure(2)
        lines = {"task": self.scores, "control task": self.control_scores}
        for name, scores in lines.items():
            if scores is not None:
                spread = scores.std(0)
                axes.errorbar(
                    self.probes, scores.mean(0), spread, marker="o", label=name
                )
        axes.set(xlabel="layers", ylabel=self.metric.replace("_", " "))
        axes.legend()
        shares.bar(range(self.mix_weights.shape[1]), self.mix_weights.mean(0))
        shares.axvline(self.center_of_gravity, color="grey", label="center of gravity")
        shares.set(xlabel="layer", ylabel="share of the scalar mix")
        shares.legend()
        return plots.written(figure, path)
