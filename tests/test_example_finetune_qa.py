import importlib.util

import pytest

from keras_bertfam.datasets import Examples
from keras_bertfam.datasets.task_data import get_task
from tests.checkout import ROOT
from tests.tiny_questions import make_model, questions

FOLDER = ROOT / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_question_answering(tmp_path):
    model = make_model()
    model.save_to_preset(tmp_path / "preset")
    x, y = questions(48, sentences=(1, 2), impossible=0.3)
    examples = Examples(x, y, get_task("squad_v2"))
    settings = {"learning_rate": 1e-2, "batch_size": 8, "jit_compile": False}
    trained, scores = load("finetune_qa").finetune(
        examples[:40],
        examples[40:],
        str(tmp_path / "preset"),
        epochs=2,
        version_2=True,
        sequence_length=24,
        question_length=6,
        **settings,
    )
    assert trained.null_threshold is not None
    assert 0 <= scores["exact_match"] <= scores["f1"] <= 100
