"""Fill tables whose rows are more than a run of pre-training.

Keras is imported only when something is trained: requests are checked without it.
"""

import dataclasses
import importlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from keras_bertfam.cli.reproduce import paper_report
from keras_bertfam.cli.reproduce.paper_tables import PaperTable
from keras_bertfam.cli.reproduce.results import Results
from keras_bertfam.presets import folders
from keras_bertfam.presets.working_folders import working_folder
from keras_bertfam.types import Config
from keras_bertfam.whole_files import write_text

# For each table, the module whose `STUDY` fills it.
STUDIES = {
    "electra-compute": "keras_bertfam.cli.reproduce.compute",
    "realm": "keras_bertfam.cli.reproduce.open_questions",
}


@dataclasses.dataclass(frozen=True)
class Request:
    """Hold the arguments of a study; see `reproducing.reproduce`.

    Attributes:
        output: str, the folder.
        rows: names of rows. Empty for all.
        seeds: int. How many runs a row has.
        scale: float, the factor for numbers of steps.
        data: text files, or other files that the study reads.
        held_out: such files to measure on.
        changes: dict of settings for all rows.
        labelled: folder of labelled data, or `None`.
        sizes: sequence of sizes of generators. Empty for the usual ones.
        report: function that takes a line of text.
    """

    output: str
    rows: Sequence[str] = ()
    seeds: int = 2
    scale: float = 1.0
    data: Sequence[str] = ()
    held_out: Sequence[str] = ()
    changes: Config = dataclasses.field(default_factory=dict)
    labelled: str | None = None
    sizes: Sequence[float] = ()
    report: Callable[[str], Any] = print


class Study:
    """Fill a table, row by row and seed by seed: the base class of studies.

    A subclass defines `table`, `settings` and `score`.

    Args:
        request: `Request`.

    Raises:
        ValueError: for a request that doesn't fit.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        if request.seeds < 1:
            raise ValueError(f"`seeds` must be at least 1. Received: {request.seeds}.")
        scale: Any = request.scale
        if not isinstance(scale, (int, float)) or not 0 < scale < math.inf:
            raise ValueError(
                "`scale` must be a positive number for this table. Received: "
                f"{scale!r}."
            )
        for row in request.rows:
            if row not in self.table.rows:
                raise ValueError(
                    f"`rows` must be some of {[*self.table.rows]}. Received: {row!r}."
                )

    @property
    def table(self) -> PaperTable:
        """The table whose columns show the scores."""
        raise TypeError(f"{type(self).__name__} must define `table`.")

    def settings(self, row: str, seed: int) -> Config:
        """Give the settings on which the scores of a row and seed depend."""
        raise TypeError(f"{type(self).__name__} must define `settings`.")

    def score(self, row: str, seed: int) -> Config:
        """Train a row and measure it: dict from columns to numbers or `None`."""
        raise TypeError(f"{type(self).__name__} must define `score`.")

    def draw(self, scores: Any, path: str) -> None:
        """Draw a picture of the scores."""
        paper_report.draw(self.table, scores, path)

    def place(self, name: str, seed: int) -> str:
        """Give the folder for a model that is trained before the rows."""
        return os.path.join(self.request.output, f"{name}-{seed}")


def of(table: str, request: Request) -> Study:
    """Make the study for a table's name, which checks the request."""
    study: Study = importlib.import_module(STUDIES[table]).STUDY(request)
    return study


def run(study: Study) -> dict[str, list[dict[str, Any]]]:
    """Fill the missing rows of a table, and write it after each row.

    Args:
        study: `Study`.

    Returns:
        Dict from names of rows to lists of scores, one for each seed.

    Raises:
        ValueError: for an `output` that is in use or holds results of other settings.
    """
    import keras

    request, table = study.request, study.table
    output = request.output
    folders.check_destination(output)
    rows = [row for row in table.rows if row in request.rows or not request.rows]
    with working_folder(os.path.join(output, ".running"), output):
        results = Results(output)
        for row in table.rows:  # a model that is trained first serves all of them
            for seed in results.seeds(row):
                results.check(row, seed, study.settings(row, seed))
        for seed in range(request.seeds):
            for row in rows:
                if results.find(row, seed) is not None:
                    continue
                request.report(f"{row}, seed {seed}:")
                keras.utils.set_random_seed(seed)
                results.begin(row, seed, study.settings(row, seed))
                found = study.score(row, seed)
                results.add(row, seed, study.settings(row, seed), found)
                _write(study, results)
                keras.utils.clear_session()
        _write(
            study, results
        )  # the last call may have been killed between a row and the table
        scores = results.scores(table.rows)
        path = os.path.join(output, "table.png")
        try:
            study.draw(scores, path)
        except ImportError as error:
            request.report(f"{path} wasn't drawn: {error}")
        return scores


def _write(study, results):
    text = paper_report.as_markdown(study.table, results.scores(study.table.rows))
    path = os.path.join(study.request.output, "table.md")
    write_text(path, f"{study.table.source}\n\n{text}\n")
