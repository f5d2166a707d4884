"""Pictures and reports keep within their bounds: cells, panels, lines."""

import numpy as np
import pytest

from keras_bertfam.analysis import plots
from keras_bertfam.analysis.occurrences import WordVectors
from keras_bertfam.analysis.report import class_report

pytestmark = pytest.mark.any_backend
pytest.importorskip("matplotlib")


def drawn(figure):
    """The figure's renderer, after all has its place."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


@pytest.mark.parametrize(("classes", "count"), [(2, 4004), (4, 1e6), (12, 4004)])
def test_counts_stay_in_their_cells(classes, count):
    matrix = np.full((classes, classes), int(count))
    figure = plots.confusion(matrix)
    renderer = drawn(figure)
    axes = figure.axes[0]
    cell = axes.get_window_extent(renderer).width / classes
    assert len(axes.texts) == classes**2
    for text in axes.texts:
        assert text.get_window_extent(renderer).width <= cell


def report(texts):
    count = len(texts)
    probabilities = np.tile([0.9, 0.1], (count, 1))
    y = np.ones(count, int)
    return class_report("t", {"text": texts}, y, probabilities, ["a" * 30, "b"], None)


def test_legends_are_beside_what_is_drawn():
    figure = report(["one", "two"]).plot()
    renderer = drawn(figure)
    axes = figure.axes[1]
    legend = axes.get_legend().get_window_extent(renderer)
    panel = axes.get_window_extent(renderer)
    assert legend.x0 >= panel.x1 and legend.x1 <= figure.bbox.x1


def test_lines_of_reports_are_short_and_errors_come_once():
    long = ["one two three " * 20, "four five six " * 20, "one two three " * 20]
    found = report(long)
    assert len(found.errors) == 2
    assert max(map(len, str(found).splitlines())) <= 100
    columns = {f"text {k}": long for k in range(3)}
    y, probabilities = np.ones(3, int), np.tile([0.9, 0.1], (3, 1))
    pairs = class_report("t", columns, y, probabilities, ["a", "b"], None)
    assert max(map(len, str(pairs).splitlines())) <= 100


def test_words_stay_in_the_picture():
    contexts = [["a", "rather", f"play{k}", "in", "Rotterdam"] for k in range(6)]
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    places = np.array([[k, 2] for k in range(6)])
    found = WordVectors([c[2] for c in contexts], vectors, contexts, places)
    figure = found.plot()
    renderer = drawn(figure)
    for text in figure.axes[0].texts:
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1
