"""A paper's table: its rows pre-trained one after the other, and measured."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_bertfam.cli import pretraining
from keras_bertfam.cli.demo import write_documentation
from keras_bertfam.cli.reproduce import paper_report
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
from keras_bertfam.types import Config, Path
from keras_bertfam.whole_files import write_text

_TEACHER = ""  # in the place of a row's name
# Where a run is, and how it was begun, which changes nothing about it.
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
) -> dict[str, list[dict[str, Any]]]:
    """Pre-train the rows of a paper's table, and write ours beside the paper's.

    What `output` holds is kept: a row and seed that is finished isn't trained again,
    so a killed call goes on, and another may have more rows or seeds.

    Args:
        table: name of a table, or a file, see `read_table`.
        output: folder for `table.md`, `table.png` (with `matplotlib`), `results.json`
            and, of each row and seed, a preset.
        rows: names of rows; all by default.
        seeds: int. How many runs a row has.
        scale: float, by which the number of updates is multiplied; or `"paper"` for
            the paper's settings.
        data: text files or a prepared corpus; Python's documentation by default.
        held_out: text files or a prepared corpus to measure on, if there is `data`.
        changes: dict of settings of all runs, see `PretrainingRun`.
        report: function that takes a line of text.
        labelled: folder of labelled data, for a table with columns of such: with
            folders of their names, see `labelled.PLACES`, or SciBERT's `data`.

    Returns:
        Dict from names of rows to lists of what `measure` gives, one of each seed.

    Raises:
        ValueError: for an unknown table, row or setting, `data` without `held_out`, or
            an `output` that is in use or holds results of other settings.
    """
    known, chosen = check_request(
        table, rows, seeds, scale, data, held_out, changes, labelled
    )
    folders.check_destination(output)
    # Presets' writers lock the folder itself.
    with pretraining.held(os.path.join(output, ".running"), output):
        given = bool(data)
        if not given:
            data, held_out = ([path] for path in write_documentation(output))
        files = (tuple(data), tuple(held_out))
        runner = _Runner(
            known, output, scale, files, given, changes or {}, report, labelled
        )
        runner.check(chosen)
        for seed in range(seeds):
            for row in chosen:
                runner.finish(row, seed)
        runner.write()  # a kill may have come between a row and the table
        runner.draw()
        return runner.scores()


@dataclasses.dataclass
class _Runner:
    """What finishes rows, and keeps what is measured."""

    table: PaperTable
    output: str
    scale: float | str
    files: tuple[tuple[str, ...], ...]
    given: bool  # whether the text is the user's
    changes: Config
    report: Callable[[str], Any]
    labelled: str | None = None

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
        """Make the paper's run, if a column asks for it."""
        asked = row != _TEACHER and "published_parameters" in self.table.columns
        return self.run(row, seed, PAPER if asked else self.scale)

    def place(self, row: str, seed: int) -> str:
        """Tell where the preset of a row is written."""
        return os.path.join(self.output, f"{folder_name(row or 'teacher')}-{seed}")

    def check(self, rows: Sequence[str]) -> None:
        """Raise a `ValueError` for what would fail later, or has other results."""
        teacher = [] if self.table.teacher is None else [_TEACHER]
        for row in (*teacher, *rows):
            self.run(row, 0, self.scale)
            self._paper(row, 0)
            for seed in self.results.seeds(row):
                settings = self._settings(self.run(row, seed, self.scale))
                self.results.check(row, seed, settings)
        pretraining.read(self.run(rows[0], 0, self.scale), self.files[1])

    def _settings(self, run):
        """Give a run's settings as JSON has them, without where it is."""
        settings = dataclasses.asdict(run)
        kept = {name: v for name, v in settings.items() if name not in _PLACES}
        text = [[*files] for files in self.files] if self.given else []
        more = {} if self.labelled is None else {"labelled": str(self.labelled)}
        return {**kept, "text": text, **more}

    def finish(self, row: str, seed: int) -> None:
        """Pre-train and measure, unless that is done."""
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
            trained = Trained(task, run, held_out, paper, self.labelled)
            scores = measure(trained, columns)
        self.results.add(row, seed, self._settings(run), scores)
        self.write()
        keras.utils.clear_session()

    def scores(self) -> dict[str, list[dict[str, Any]]]:
        """Give what is measured of each row, by seed, in the table's order."""
        return self.results.scores(self.table.rows)

    def write(self) -> None:
        """Write the table as far as it is."""
        text = paper_report.as_markdown(self.table, self.scores())
        path = os.path.join(self.output, "table.md")
        write_text(path, f"{self.table.source}\n\n{text}\n")

    def draw(self) -> None:
        """Draw the table, if `matplotlib` is there."""
        path = os.path.join(self.output, "table.png")
        try:
            paper_report.draw(self.table, self.scores(), path)
        except ImportError as error:
            self.report(f"There is no {path}: {error}")
