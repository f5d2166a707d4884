"""The example that searches a grid, on a task as the benchmarks have it."""

import importlib.util

import pytest

from keras_bertfam import tasks
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.tasks.recipes import FineTuningRecipe
from tests import tiny_fine_tuning as tiny
from tests.checkout import ROOT

keras_tuner = pytest.importorskip("keras_tuner")
pytestmark = pytest.mark.any_backend

PATH = ROOT / "examples" / "tune_finetuning.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("tune_finetuning", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def preset(tmp_path):
    tiny.make_backbone(num_layers=1).save_to_preset(tmp_path / "preset")
    tiny.make_tokenizer().save_to_preset(tmp_path / "preset")
    return str(tmp_path / "preset")


def test_the_grid_is_the_published_one(example, preset):
    space = keras_tuner.HyperParameters()
    model = example.Grid(preset, TASKS["mrpc"], run_eagerly=True).build(space)
    assert model.label_names == ["not_equivalent", "equivalent"]
    assert {x.name: tuple(x.values) for x in space.space} == {
        "learning_rate": (5e-5, 3e-5, 2e-5),
        "batch_size": (16, 32),
        "epochs": (2, 3, 4),
    }


@pytest.mark.slow("release")
def test_two_trials(example, preset, tmp_path, monkeypatch):
    recipe = FineTuningRecipe((1e-2, 1e-7), (8,), (1,))
    monkeypatch.setattr(tasks, "fine_tuning_recipe", lambda *args: recipe)
    rows = [f"{k}\t1\t2\t{t}\ta cat" for t, k in zip(*tiny.texts(8), strict=True)]
    table = "\n".join(["label\tid1\tid2\tsentence1\tsentence2", *rows])
    for part in ("train", "test"):
        (tmp_path / f"msr_paraphrase_{part}.txt").write_text(table)
    folder = str(tmp_path / "tuning")
    tuner = example.search(
        "mrpc", preset, tmp_path, 2, folder=folder, verbose=0, run_eagerly=True
    )
    best, other = tuner.oracle.get_best_trials(2)
    assert 1 >= best.score >= other.score >= 0
    assert best.hyperparameters.values != other.hyperparameters.values
    (model,) = tuner.get_best_models()
    assert model.preprocessor.tokenizer.vocabulary_size() == 23
