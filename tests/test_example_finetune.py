"""The fine-tuning example, on files as GLUE has them."""

import importlib.util
import pathlib

import keras
import pytest

from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor
from tests import tiny_fine_tuning as tiny

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples/finetune_classification.py"


@pytest.fixture
def finetune():
    spec = importlib.util.spec_from_file_location("finetune_classification", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.finetune


@pytest.fixture
def preset(tmp_path):
    backbone = tiny.make_backbone(num_layers=1)
    model = MaskedLM(backbone, MaskedLMPreprocessor(tiny.make_tokenizer(), 16))
    model.save_to_preset(str(tmp_path / "preset"))
    return str(tmp_path / "preset")


@pytest.mark.slow
def test_classification(finetune, preset, tmp_path):
    for name, seed in (("train.tsv", 0), ("dev.tsv", 1), ("test.tsv", 2)):
        rows = [
            f"{text}\t{label}"
            for text, label in zip(*tiny.texts(24, seed), strict=True)
        ]
        (tmp_path / name).write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    jit_compile = keras.backend.backend() == "jax"
    model, metrics = finetune(
        "sst2",
        preset,
        str(tmp_path),
        epochs=4,
        learning_rate=3e-2,
        batch_size=8,
        jit_compile=jit_compile,
    )
    assert model.label_names == ["negative", "positive"]
    assert metrics["accuracy"] > 0.8
