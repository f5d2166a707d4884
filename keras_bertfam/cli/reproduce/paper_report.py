"""Report a paper's table: our figures beside the paper's, and the seeds' spread."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from keras_bertfam.analysis import plots
from keras_bertfam.cli.reproduce.paper_tables import PaperTable
from keras_bertfam.types import Path

# For each row, the scores of its seeds.
Scores = Mapping[str, Sequence[Mapping[str, Any]]]
_NONE = "–"


def as_markdown(table: PaperTable, scores: Scores) -> str:
    """Write the table as Markdown, with remarks on its numbers.

    Args:
        table: `PaperTable`.
        scores: dict from names of rows to lists with what `measure` gives for each
            seed. Rows without scores are left out.
    """
    head, *rows = _cells(table, scores)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*drawn, "", *(f"- {line}" for line in remarks(table, scores))])


def as_text(table: PaperTable, scores: Scores) -> str:
    """Write the table and remarks for a terminal, in columns."""
    cells = _cells(table, scores)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    return "\n".join([table.source, "", *lines, "", *remarks(table, scores)])


def remarks(table: PaperTable, scores: Scores) -> list[str]:
    """Say how many seeds there are, and which differences their spread explains.

    Rows can be told apart in a column if the best and the worst mean differ by more
    than the seeds of any row.
    """
    counts = sorted({len(found) for found in scores.values() if found})
    if not counts:
        return ["No row is trained yet."]
    several = counts[-1] > 1
    of = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    lines = [
        f"Of {of} seed{'s, mean ± standard deviation' if several else ''}; shares in "
        "percent. The paper's columns are of its own size and tasks."
    ]
    lines += [
        f"{' and '.join(names)} came out equal: in so few steps, what tells them "
        "apart, such as the masks of later epochs, played no part. A larger `--scale` "
        "makes more steps."
        for names in _equal(scores)
    ]
    for name in table.columns:
        known = table.measures[name]
        values = [found for each in scores.values() if (found := _of(each, name))]
        ranges = [max(each) - min(each) for each in values if len(each) > 1]
        if len(values) < 2 or not ranges or isinstance(values[0][0], int):
            continue  # counts don't depend on the seed
        means, within = [*map(statistics.fmean, values)], max(ranges)
        apart = max(means) - min(means)
        verdict = "" if apart > within else ": they can't be told apart"
        lines.append(
            f"{known.title}: best and worst row differ by {_number(known, apart)}, "
            f"seeds of one row by up to {_number(known, within)}{verdict}."
        )
    return lines


def _equal(scores):
    """Find rows whose scores are the same to the last digit."""
    groups: dict[str, list[str]] = {}
    for name, found in scores.items():
        if found and any(isinstance(x, float) for x in found[0].values()):
            groups.setdefault(repr(found), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def draw(table: PaperTable, scores: Scores, path: Path) -> None:
    """Draw a panel for each column, the paper's last. Each row of the table is a line.

    Args:
        table: `PaperTable`.
        scores: see `as_markdown`.
        path: of the picture.

    Raises:
        ImportError: without `matplotlib`.
    """
    names = [name for name, found in scores.items() if found]
    panels = [
        (
            table.measures[c].title,
            [_of(scores[name], c) for name in names],
            table.measures[c].share,
        )
        for c in table.columns
    ]
    for number, title in enumerate(table.figures):
        figures = [_figure(table, name, number) for name in names]
        values = [[x] if isinstance(x, (int, float)) else [] for x in figures]
        panels.append((f"the paper's {title}", values, False))
    panels = [panel for panel in panels if any(panel[1])]
    if not panels:
        return
    figure, axes = plots.new_figure(len(panels))
    for axis, (title, values, share) in zip(axes, panels, strict=True):
        for place, found in enumerate(values):
            shown = [100 * value if share else value for value in found]
            axis.plot(shown, [place] * len(shown), "o", color="C0", alpha=0.4)
            if shown:
                axis.plot(statistics.fmean(shown), place, "|", color="C3", ms=14)
        axis.set(
            title=f"{title}{', %' if share else ''}", ylim=(len(names) - 0.5, -0.5)
        )
        axis.set_yticks(range(len(names)), names)
        axis.grid(axis="x", alpha=0.3)
    plots.written(figure, path)


def _cells(table, scores):
    titles = [table.measures[name].title for name in table.columns]
    lines = [["row", *titles, *(f"paper: {title}" for title in table.figures)]]
    for name, found in scores.items():
        if found:
            ours = [_cell(table.measures[c], _of(found, c)) for c in table.columns]
            theirs = [_figure(table, name, k) for k in range(len(table.figures))]
            said = [_NONE if value is None else str(value) for value in theirs]
            lines.append([name, *ours, *said])
    return lines


def _of(found, column):
    """Give the values of one column for a row's seeds."""
    values = [scores.get(column) for scores in found]
    return [value for value in values if value is not None]


def _figure(table, row, number):
    figures = table.rows[row].figures
    return figures[number] if number < len(figures) else None


def _cell(known, values):
    if not values:
        return _NONE
    if isinstance(values[0], int):
        return f"{values[0]:,}"
    text = _number(known, statistics.fmean(values))
    if len(values) == 1:
        return text
    return f"{text} ± {_number(known, statistics.stdev(values))}"


def _number(known, value):
    return f"{100 * value:.1f}" if known.share else f"{value:.3g}"
