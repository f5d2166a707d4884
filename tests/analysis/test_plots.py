import sys

import keras
import matplotlib
import numpy as np
import pytest

from keras_bertfam.analysis import plots

PNG = b"\x89PNG\r\n\x1a\n"
LOGS = {
    "accuracy": [0.2, 0.4, 0.5, 0.6],
    "loss": [4.0, 3.0, 2.5, 2.0],
    "val_loss": [3.1, 2.2],  # every second epoch
    "val_f1": [0.1, 0.2, 0.3, 0.4],
}


def lines(axes):
    return {
        line.get_label(): [np.asarray(part).tolist() for part in line.get_data()]
        for line in axes.get_lines()
    }


def test_history_has_a_panel_for_each_metric(tmp_path):
    backend = matplotlib.get_backend(auto_select=False)
    path = tmp_path / "history.png"
    figure = plots.history(LOGS, path)
    loss, accuracy, f1 = figure.axes
    assert lines(loss) == {
        "training, mean of the epoch": [[1, 2, 3, 4], LOGS["loss"]],
        "held out": [[2, 4], LOGS["val_loss"]],
    }
    assert list(lines(f1)) == ["held out"]
    assert [axes.get_ylabel() for axes in (loss, accuracy, f1)] == [
        "loss",
        "accuracy (share that is right)",
        "f1",
    ]
    assert {axes.get_xlabel() for axes in figure.axes} == {"epoch"}
    assert path.read_bytes().startswith(PNG) and len([*tmp_path.iterdir()]) == 1
    assert matplotlib.get_backend(auto_select=False) == backend


def test_history_of_fit_names_its_loss_and_its_epochs():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(True, name="crossentropy")
    model.compile("sgd", loss)
    log = keras.callbacks.History()
    log.set_model(model)
    log.on_train_begin()
    for epoch in (3, 4):
        log.on_epoch_end(epoch, {"loss": 1.0})
    [axes] = plots.history(log).axes
    assert axes.get_ylabel() == "loss: crossentropy (nats)"
    assert lines(axes)["training, mean of the epoch"][0] == [4, 5]
    [axes] = plots.history(log, labels={"loss": "nats"}).axes
    assert axes.get_ylabel() == "nats"


def test_confusion_shows_counts_and_names(tmp_path):
    path = tmp_path / "confusion.svg"
    figure = plots.confusion([[8, 2], [0, 0]], ["no", "yes"], path)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["8", "2", "0", "0"]
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.8, 0.2], [0, 0]])
    assert [t.get_text() for t in axes.get_xticklabels()] == ["no", "yes"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "true")
    assert b"<svg" in path.read_bytes()
    many = plots.confusion(np.eye(150, dtype=int)).axes[0]
    assert not many.texts


def test_compare_shows_means_and_ranges(tmp_path):
    path = tmp_path / "runs"
    runs = {"a": [{"val_loss": [4.0, 2.0]}, [2.0]], "b": [[1.0, np.nan, 3.0]]}
    [axes] = plots.compare(runs, "val_loss", path).axes
    drawn = lines(axes)
    assert list(drawn) == ["a (mean of 2 runs)", "b (1 run)"]
    assert drawn["a (mean of 2 runs)"] == [[1, 2], [3.0, 2.0]]
    [band] = axes.collections
    corners = band.get_paths()[0].vertices
    first = corners[corners[:, 0] == 1, 1]
    assert (first.min(), first.max()) == (2, 4)
    assert axes.get_ylabel() == "loss, held out" and "greatest" in axes.get_title()
    assert path.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: plots.history({}), "must have an epoch. Received: {}"),
        (lambda: plots.history({"loss": []}), "must have an epoch"),
        (lambda: plots.history([1.0]), "`history` must be a `keras.*Received: .1.0"),
        (lambda: plots.history({"loss": 1.0}), "its dict of lists"),
        (lambda: plots.confusion([[1, 2]]), r"square.*shape=\(1, 2\)"),
        (lambda: plots.confusion([]), "square"),
        (lambda: plots.confusion([[1]], "ab"), "a name for each of 1 classes"),
        (lambda: plots.compare({}), "`runs` must have a run. Received: {}"),
        (lambda: plots.compare({"a": []}), "values of each name. Received for 'a'"),
        (lambda: plots.compare({"a": [[]]}), "values of each name. Received for 'a'"),
        (lambda: plots.compare({"a": [1.0]}), "A run in `runs`.*'a': 1.0"),
        (lambda: plots.compare({"a": LOGS}), "a list of runs for each name.*'a'"),
        (lambda: plots.compare({"a": [LOGS]}, "rmse"), "`metric`.*Received: 'rmse'"),
    ],
)
def test_what_is_no_history(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_unknown_ending_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="not supported"):
        plots.history(LOGS, tmp_path / "history.doc")
    assert not [*tmp_path.iterdir()]


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install keras-bertfam\[analysis\]"):
        plots.confusion([[1]])
