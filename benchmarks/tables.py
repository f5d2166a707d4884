"""Markdown tables and pictures of curves."""


def markdown(rows):
    """A table of dicts; columns are their keys, numbers stand to the right.

    Args:
        rows: list of dict of str to str or number, floats with four digits.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numbers = {
        name
        for name in columns
        if all(isinstance(row.get(name, 0), (int, float)) for row in rows)
    }
    lines = [columns, ["---:" if name in numbers else "---" for name in columns]]
    lines += [[_cell(row.get(name, "")) for name in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value):
    if not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def draw(panels, path, columns=2):
    """Writes a picture with a panel for each dict.

    Args:
        panels: list of dicts: `lines`, a dict of names to two lists of numbers;
            `expected`, another, drawn dashed in the same colours; and any property
            of matplotlib's axes, such as `xlabel` and `yscale`.
        path: str, whose ending says the format.
        columns: int. Panels beside each other.
    """
    from matplotlib.figure import Figure

    lines_of_panels = -(-len(panels) // columns)
    size = 5 * columns, 4 * lines_of_panels
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(lines_of_panels, columns, squeeze=False).flat
    for axis, panel in zip(axes, panels, strict=True):
        panel = dict(panel)
        lines, expected = panel.pop("lines"), panel.pop("expected", {})
        for name, (x, y) in lines.items():
            (line,) = axis.plot(x, y, marker=".", label=name)
            if name in expected:
                axis.plot(*expected[name], linestyle="--", color=line.get_color())
        ticks = panel.pop("xticks", None)
        tick_labels = panel.pop("xticklabels", None)
        axis.set(**panel)
        if ticks is not None:  # after the scale, which has its own
            axis.set_xticks(ticks, tick_labels)
            axis.set_xticks([], minor=True)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)
