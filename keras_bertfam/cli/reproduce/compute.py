"""Reproduce ELECTRA's figures: scores by operations, and by the generator's size.

Keras is imported only when something is trained: requests are checked without it.
"""

import dataclasses
import glob
import os
import re
import types
from typing import Any

from keras_bertfam.analysis import plots
from keras_bertfam.cli.demo import write_documentation
from keras_bertfam.cli.inputs import check_files
from keras_bertfam.cli.reproduce.measures import MEASURES, Measure, Trained, measure
from keras_bertfam.cli.reproduce.paper_tables import (
    PaperTable,
    Row,
    check_changes,
    read_table,
)
from keras_bertfam.cli.reproduce.studies import Request, Study
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.types import Config

SIZES = (0.125, 0.25, 0.5, 1.0)
POINTS = 4  # checkpoints of a run
_MASKED = 0.15  # of the tokens
_BERT = "BERT"
_SCORE = "frozen"


class ComputeTable(PaperTable):
    """A table of scores and what they have cost."""

    measures = {
        **MEASURES,
        "operations": Measure("operations, 10^12", lambda trained: None),
    }


class Compute(Study):
    """Fill a table of ELECTRA with generators of several sizes, and of BERT.

    Each row is one run with four checkpoints, each of which is scored. The operations
    of a step, forward and backward, are counted from the sizes of its matrix products.

    Args:
        request: `Request`.
    """

    def __init__(self, request: Request) -> None:
        sizes = [*dict.fromkeys(request.sizes)] or [*SIZES]
        wrong = [size for size in sizes if not 0 < size <= 1]
        if wrong:
            raise ValueError(f"`sizes` must be shares in (0, 1]. Received: {wrong[0]}.")
        self.sizes = {f"ELECTRA, generator {size:g}": size for size in sizes}
        self._table = ComputeTable(
            source="ELECTRA, Clark et al., 2020, figures 2 and 3",
            columns=["operations", _SCORE],
            rows={name: Row() for name in (_BERT, *self.sizes)},
        )
        super().__init__(request)
        if request.labelled is not None:
            raise ValueError(
                "`labelled` must be left out for this table. Received: "
                f"{request.labelled!r}."
            )
        if request.held_out:
            raise ValueError(
                "`held_out` must be left out for this table, whose scores are of "
                f"Python's docstrings. Received: {[*request.held_out]}."
            )
        check_files("data", request.data)
        check_changes(request.changes)
        per_point = f"`scale`, as each run has {POINTS} points"
        check_changes(
            request.changes, dict.fromkeys(("epochs", "checkpoints"), per_point)
        )
        for row in self._table.rows:
            self.run(row, 0)

    @property
    def table(self) -> PaperTable:
        return self._table

    def run(self, row: str, seed: int) -> PretrainingRun:
        """Make the run of a row, with one epoch for each checkpoint."""
        known, request = read_table("electra-efficiency"), self.request
        name = _BERT if row == _BERT else "ELECTRA"
        changes = dict(request.changes)
        if row != _BERT:
            asked = {"variant": "electra", **changes.get("task_arguments", {})}
            if asked["variant"] not in ("electra", "adversarial"):
                raise ValueError(
                    "`variant` must be 'electra' or 'adversarial', whose operations "
                    f"are counted here. Received: {asked['variant']!r}."
                )
            changes["task_arguments"] = {**asked, "generator_size": self.sizes[row]}
        run = known.run(name, request.scale, changes)
        steps = max(1, round(run.epochs * (run.steps_per_epoch or 1) / POINTS))
        data = [*request.data] or [os.path.join(request.output, "train.txt")]
        return run.changed(
            files=tuple(data),
            output=self.place("".join(c for c in row if c.isalnum() or c == "."), seed),
            seed=seed,
            resume=True,
            epochs=POINTS,
            steps_per_epoch=steps,
            checkpoints=POINTS,
        )

    def settings(self, row: str, seed: int) -> Config:
        run = dataclasses.asdict(self.run(row, seed))
        for name in ("output", "resume"):
            del run[name]
        return {**run, "files": [*self.request.data]}

    def score(self, row: str, seed: int) -> Config:
        from keras_bertfam import models
        from keras_bertfam.cli import pretraining
        from keras_bertfam.presets.tokenizer_presets import load_tokenizer

        run = self.run(row, seed)
        if not self.request.data and not os.path.exists(run.files[0]):
            write_documentation(self.request.output)
        if not os.path.isdir(run.output):
            pretraining.pretrain(run, lambda line: None)
        reader = types.SimpleNamespace(tokenizer=load_tokenizer(run.output))
        curve = []
        found = glob.glob(f"{glob.escape(run.output)}-checkpoints/step-*")
        for steps, folder in sorted((int(re.findall(r"\d+", f)[-1]), f) for f in found):
            backbone = models.Backbone.from_preset(folder)
            task: Any = types.SimpleNamespace(backbone=backbone, preprocessor=reader)
            cost = steps * step_operations(backbone, run, self.sizes.get(row)) / 1e12
            scores = measure(Trained(task, run, None, run), [_SCORE])
            curve.append([cost, scores[_SCORE]])
        return {"operations": curve[-1][0], _SCORE: curve[-1][1], "curve": curve}

    def draw(self, scores: Any, path: str) -> None:
        figure, (left, right) = plots.new_figure(2)
        for name, found in scores.items():
            for number, seed in enumerate(found):
                x, y = zip(*seed["curve"], strict=True)
                left.plot(
                    x,
                    [100 * value for value in y],
                    "o-",
                    color=f"C{[*scores].index(name)}",
                    label=None if number else name,
                )
                if name in self.sizes:
                    right.plot(self.sizes[name], 100 * y[-1], "o", color="C0")
        title = f"{self.table.measures[_SCORE].title}, %"
        left.set(xlabel="operations, 10^12", title=title)
        left.legend(fontsize="small")
        right.set(xlabel="generator's width, of the discriminator's", title=title)
        plots.written(figure, path)


STUDY = Compute


def step_operations(
    backbone: Any, run: PretrainingRun, generator_size: float | None = None
) -> float:
    """Count the operations of a step's matrix products, forward and backward.

    A product of matrices `(a, b)` and `(b, c)` takes `2abc` operations. Its gradients
    are two more such products. The last block of a masked language model is computed at
    masked positions only.

    Args:
        backbone: the encoder.
        run: `PretrainingRun`. All rows count as full.
        generator_size: float, the width of ELECTRA's generator as a share; `None` for
            a masked language model.
    """
    length = run.sequence_length
    rate = run.preprocessor_arguments.get("mask_selection_rate", _MASKED)
    masked = round(rate * length)
    shape = (backbone.num_layers, backbone.hidden_dim, backbone.intermediate_dim)
    table = backbone.embedding_dim or backbone.hidden_dim
    size = backbone.vocabulary_size
    if generator_size is None:
        row = _encoder(shape, table, length, masked) + _head(
            shape[1], table, size, masked
        )
    else:
        width = max(1, round(shape[1] * generator_size))
        depth = run.task_arguments.get("generator_depth", 1.0)
        small = (max(1, round(shape[0] * depth)), width, 4 * width)
        row = _encoder(small, table, length, masked) + _head(width, table, size, masked)
        row += _encoder(shape, table, length, length)
        row += length * 2 * shape[1] * (shape[1] + 1)
    return float(3 * row * run.batch_size * run.accumulate)


def _encoder(shape, table, length, queries):
    """Count the operations of a row whose last block has `queries` positions."""
    layers, width, inner = shape
    both = 4 * width**2  # keys and values
    others = 4 * width**2 + 4 * length * width + 4 * width * inner
    projected = length * 2 * table * width if table != width else 0
    return (layers - 1) * length * (both + others) + (
        length * both + queries * others + projected
    )


def _head(width, table, size, tokens):
    return tokens * 2 * table * (width + size)
