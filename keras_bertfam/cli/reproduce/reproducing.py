"""Reproduce a paper's table: pre-train its rows one after the other, and measure."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_bertfam.cli import pretraining
from keras_bertfam.cli.demo import write_documentation
from keras_bertfam.cli.reproduce import paper_report
from keras_bertfam.cli.reproduce.labelled import LABELLED_LIMIT
from keras_bertfam.cli.reproduce.measures import Trained, measure
from keras_bertfam.cli.reproduce.paper_tables import (
    PAPER,
    PaperTable,
    check_request,
    folder_name,
)
from keras_bertfam.cli.reproduce.results import Results
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.presets import folders
from keras_bertfam.presets.working_folders import working_folder
from keras_bertfam.types import Config, Path
from keras_bertfam.whole_files import write_text

_TEACHER = ""  # in the place of a row's name
# Settings that say where a run is and how it began, and don't change its result.
_PLACES = ("files", "output", "teacher", "resume")


def reproduce(
    table: Path,
    output: str,
    rows: Sequence[str] = (),
    seeds: int = 2,
    scale: float | str = 1.0,
    data: Sequence[str] = (),
    held_out: Sequence[str] = (),
    changes: Config | None = None,
    report: Callable[[str], Any] = print,
    labelled: str | None = None,
    labelled_limit: int | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Pre-train the rows of a paper's table, and write our figures beside the paper's.

    Results in `output` are kept: a finished row and seed isn't trained again. So a
    killed call can be repeated, and a later call may add rows or seeds.

    Args:
        table: name of a table, or a file, see `read_table`.
        output: folder for `table.md`, `table.png` (with `matplotlib`), `results.json`
            and a preset for each row and seed.
        rows: names of rows. Defaults to all.
        seeds: int. How many runs a row has.
        scale: float, the factor for the number of steps; or `"paper"` for the paper's
            settings.
        data: text files or a prepared corpus. Defaults to Python's documentation.
        held_out: text files or a prepared corpus to measure on, if there is `data`.
        changes: dict of settings of all runs, see `PretrainingRun`.
        report: function that takes a line of text.
        labelled: folder of labelled data, for tables that have columns for it. It holds
            folders with the names in `labelled.PLACES`, or is SciBERT's `data`.
        labelled_limit: int, the most examples to learn of each labelled dataset.
            Defaults to 6,000.

    Returns:
        Dict from names of rows to lists with what `measure` gives for each seed.

    Raises:
        ValueError: for an unknown table, row or setting, `data` without `held_out`, or
            an `output` that is in use or holds results of other settings.
    """
    known, chosen = check_request(
        table, rows, seeds, scale, data, held_out, changes, labelled, labelled_limit
    )
    folders.check_destination(output)
    # Writers of presets lock the folder itself, so the run locks another one.
    with working_folder(os.path.join(output, ".running"), output):
        given = bool(data)
        if not given:
            data, held_out = ([path] for path in write_documentation(output))
        files = (tuple(data), tuple(held_out))
        limit = labelled_limit or LABELLED_LIMIT
        runner = _Runner(
            known, output, scale, files, given, changes or {}, report, labelled, limit
        )
        runner.check(chosen)
        for seed in range(seeds):
            for row in chosen:
                runner.finish(row, seed)
        runner.write()  # the last call may have been killed between a row and the table
        runner.draw()
        return runner.scores()


@dataclasses.dataclass
class _Runner:
    """Train and measure rows, and keep the results."""

    table: PaperTable
    output: str
    scale: float | str
    files: tuple[tuple[str, ...], ...]
    given: bool  # whether the text is the user's
    changes: Config
    report: Callable[[str], Any]
    labelled: str | None = None
    labelled_limit: int = LABELLED_LIMIT

    def __post_init__(self) -> None:
        self.results = Results(self.output)

    def run(self, row: str, seed: int, scale: float | str) -> PretrainingRun:
        """Make the run of a row, or of the teacher."""
        changes = {
            **self.changes,
            "files": self.files[0],
            "output": self.place(row, seed),
            "seed": seed,
            "resume": True,
        }
        if self.table.teacher is not None and row != _TEACHER:
            changes["teacher"] = self.place(_TEACHER, seed)
        return self.table.run(None if row == _TEACHER else row, scale, changes)

    def _paper(self, row, seed):
        """Make the paper's run, if a column needs it."""
        asked = row != _TEACHER and "published_parameters" in self.table.columns
        return self.run(row, seed, PAPER if asked else self.scale)

    def place(self, row: str, seed: int) -> str:
        """Give the folder for the preset of a row."""
        return os.path.join(self.output, f"{folder_name(row or 'teacher')}-{seed}")

    def check(self, rows: Sequence[str]) -> None:
        """Raise a `ValueError` for a run that fails later or has other results."""
        teacher = [] if self.table.teacher is None else [_TEACHER]
        for row in (*teacher, *rows):
            self.run(row, 0, self.scale)
            self._paper(row, 0)
            for seed in self.results.seeds(row):
                settings = self._settings(self.run(row, seed, self.scale))
                self.results.check(row, seed, settings)
        pretraining.read(self.run(rows[0], 0, self.scale), self.files[1])

    def _settings(self, run):
        """Give a run's settings as JSON would, without its places."""
        settings = dataclasses.asdict(run)
        kept = {name: v for name, v in settings.items() if name not in _PLACES}
        text = [[*files] for files in self.files] if self.given else []
        more: Config = {}
        if self.labelled is not None:
            more = {"labelled": str(self.labelled)}
            if self.labelled_limit != LABELLED_LIMIT:
                more["labelled_limit"] = self.labelled_limit
        return {**kept, "text": text, **more}

    def finish(self, row: str, seed: int) -> None:
        """Pre-train and measure a row, if it isn't done yet."""
        if row != _TEACHER and self.table.teacher is not None:
            self.finish(_TEACHER, seed)
        columns = [] if row == _TEACHER else self.table.columns
        known = self.results.find(row, seed)
        if known is not None and {*columns} <= {*known}:
            if row != _TEACHER or os.path.isdir(self.place(row, seed)):
                return
        run = self.run(row, seed, self.scale)
        self.report(f"{row or 'The teacher'}, seed {seed}:")
        task = pretraining.pretrain(run, lambda line: None)
        scores: dict[str, Any] = {}
        if columns:
            held_out = pretraining.read(run, self.files[1])
            paper = self._paper(row, seed)
            data = self.labelled, self.labelled_limit
            trained = Trained(task, run, held_out, paper, *data)
            scores = measure(trained, columns)
        self.results.add(row, seed, self._settings(run), scores)
        self.write()
        keras.utils.clear_session()

    def scores(self) -> dict[str, list[dict[str, Any]]]:
        """Give the scores of each row, by seed, in the table's order."""
        return self.results.scores(self.table.rows)

    def write(self) -> None:
        """Write the rows of the table that are finished."""
        text = paper_report.as_markdown(self.table, self.scores())
        path = os.path.join(self.output, "table.md")
        write_text(path, f"{self.table.source}\n\n{text}\n")

    def draw(self) -> None:
        """Draw the table, if `matplotlib` is installed."""
        path = os.path.join(self.output, "table.png")
        try:
            paper_report.draw(self.table, self.scores(), path)
        except ImportError as error:
            self.report(f"{path} wasn't drawn: {error}")
