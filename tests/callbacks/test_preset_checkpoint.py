import json
import os

import keras
import pytest

from keras_bertfam import callbacks
from keras_bertfam.tasks import MaskedLM
from tests import tiny_masked_lm as tiny


class Saved:
    """A model that writes its number of updates in place of a preset."""

    def __init__(self):
        self.optimizer = keras.optimizers.SGD()
        self.train_function = None
        self.variables = []

    def save_to_preset(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as file:
            file.write(str(int(self.optimizer.iterations)))

    def read(self, folder):
        return int((folder / "config.json").read_text())


def run(folder, values, first=0, batches=2, model=None, **kwargs):
    """Epochs of some values of the loss; returns the model and the callback."""
    model = model or Saved()
    keep = callbacks.PresetCheckpoint(folder, **{"monitor": "val_loss", **kwargs})
    keep.set_model(model)
    keep.on_train_begin()
    for epoch, value in enumerate(values, first):
        keep.on_epoch_begin(epoch)
        for batch in range(batches):
            keep.on_train_batch_begin(batch)
            model.optimizer.iterations.assign_add(1)
            keep.on_train_batch_end(batch)
        logs = {} if value is None else {"val_loss": value, "val_accuracy": value}
        keep.on_epoch_end(epoch, logs)
    return model


def names(folder):
    return sorted(os.listdir(folder))


@pytest.mark.any_backend
def test_the_last_ones_and_the_best_one_stay(tmp_path):
    model = run(tmp_path, [3.0, 1.0, 2.0, float("nan")], keep_last=2)
    kept = ["best", "best.json", "step-000006", "step-000008"]
    assert names(tmp_path) == kept
    assert model.read(tmp_path / "best") == 4
    assert model.read(tmp_path / "step-000008") == 8
    best = json.loads((tmp_path / "best.json").read_text())
    assert best == {"monitor": "val_loss", "value": 1.0, "step": 4}
    # It goes on, and what is worse doesn't replace the best one.
    run(tmp_path, [1.5, 0.5], 4, model=model, keep_last=2)
    assert names(tmp_path) == [*kept[:2], "step-000010", "step-000012"]
    assert model.read(tmp_path / "best") == 12


@pytest.mark.any_backend
def test_a_new_run_replaces_the_old_ones_presets_one_by_one(tmp_path):
    run(tmp_path, [1.0] * 4, keep_last=3)
    (tmp_path / "notes").mkdir()
    (tmp_path / "step-1").mkdir()
    (tmp_path / ".deleted-step-000002").mkdir()
    run(tmp_path, [1.0], keep_last=3)
    steps = ["step-000002", "step-000006", "step-000008", "step-1"]
    assert names(tmp_path) == ["best", "best.json", "notes", *steps]


@pytest.mark.any_backend
def test_the_best_one_of_another_run_is_replaced(tmp_path):
    run(tmp_path, [0.5, 0.7], batches=3)
    model = run(tmp_path, [2.0, 3.0])  # of other data, say
    assert model.read(tmp_path / "best") == 2
    # A killed run goes on after 4 updates.
    resumed = Saved()
    resumed.optimizer.iterations.assign(4)
    run(tmp_path, [2.5, 1.0], 2, model=resumed)
    assert json.loads((tmp_path / "best.json").read_text())["step"] == 8


@pytest.mark.any_backend
def test_every_so_many_batches_and_another_direction(tmp_path):
    run(tmp_path, [0.1, 0.3, 0.2], save_freq=4, keep_last=None, batches=3)
    assert names(tmp_path)[2:] == ["step-000004", "step-000008"]
    folder = tmp_path / "accuracy"
    model = run(folder, [0.1, 0.3, 0.2], monitor="val_accuracy", keep_last=1)
    assert model.read(folder / "best") == 4
    model = run(tmp_path / "max", [0.1, 0.3, 0.2], mode="max", keep_last=1)
    assert model.read(tmp_path / "max" / "best") == 4
    run(tmp_path / "none", [0.1], monitor=None)
    assert names(tmp_path / "none") == ["step-000002"]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("monitor", "mode"),
    [(name, "min") for name in ("val_loss", "rmse", "val_rmse", "mae", "val_mse")]
    + [(f"val_{name}", "min") for name in ("masked_crossentropy", "kl_divergence")]
    + [(name, "min") for name in ("val_mape", "masked_lm_loss", "token_nats")]
    + [(name, "max") for name in ("val_accuracy", "f1", "spearman", "val_rouge_l")]
    + [(name, "max") for name in ("val_glossary_accuracy", "cosine_similarity")],
)
def test_the_direction_of_each_measure(monitor, mode, tmp_path):
    assert callbacks.PresetCheckpoint(tmp_path, monitor=monitor).mode == mode


@pytest.mark.any_backend
def test_an_older_one_stays_until_the_newer_is_complete(tmp_path, monkeypatch):
    model = run(tmp_path, [1.0], keep_last=1)

    def fail(folder):
        raise OSError("No space left on device")

    monkeypatch.setattr(model, "save_to_preset", fail)
    with pytest.raises(OSError, match="No space"):
        run(tmp_path, [0.5], 1, model=model, keep_last=1)
    assert names(tmp_path) == ["best", "best.json", "step-000002"]


@pytest.mark.any_backend
def test_bad_arguments_and_files(tmp_path):
    for name, value in {
        "keep_last": 0,
        "monitor": "",
        "mode": "least",
        "save_freq": -1,
    }.items():
        with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
            callbacks.PresetCheckpoint(tmp_path, **{name: value})
    with pytest.raises(ValueError, match="must have `save_to_preset`"):
        run(tmp_path, [], model=keras.Sequential())
    with pytest.warns(UserWarning, match="Received: monitor='val_loss'"):
        run(tmp_path, [None])
    run(tmp_path, [1.0])
    (tmp_path / "best.json").write_text('{"value"')
    with pytest.raises(ValueError, match="Delete it"):
        run(tmp_path, [1.0])


@pytest.mark.slow
@pytest.mark.any_backend
def test_presets_load(tmp_path):
    model = tiny.make_model()
    keep = callbacks.PresetCheckpoint(tmp_path, 1, "loss", save_freq=2)
    model.fit(tiny.stream(model).take(3), callbacks=[keep], verbose=0)
    assert names(tmp_path) == ["best", "best.json", "step-000002"]
    for name in ("best", "step-000002"):
        loaded = MaskedLM.from_preset(tmp_path / name)
        assert loaded.count_params() == model.count_params()
