"""The fine-tuning examples, on files as the benchmarks have them."""

import importlib.util
import json

import keras
import pytest

from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor
from tests import tiny_fine_tuning as tiny
from tests.checkout import ROOT

FOLDER = ROOT / "examples"
FAST = {"batch_size": 8, "jit_compile": keras.backend.backend() == "jax"}


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def preset(tmp_path):
    backbone = tiny.make_backbone(num_layers=1)
    model = MaskedLM(backbone, MaskedLMPreprocessor(tiny.make_tokenizer(), 16))
    model.save_to_preset(str(tmp_path / "preset"))
    return str(tmp_path / "preset")


def write(folder, texts_of_files):
    for name, text in texts_of_files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def classes(seed):
    rows = zip(*tiny.texts(24, seed), strict=True)
    lines = [f"{text}\t{label}" for text, label in rows]
    return "\n".join(["sentence\tlabel", *lines]) + "\n"


@pytest.mark.slow
@pytest.mark.any_backend
def test_classification(preset, tmp_path):
    files = {
        f"{part}.tsv": classes(k) for k, part in enumerate(("train", "dev", "test"))
    }
    data = write(tmp_path / "data", files)
    finetune = load("finetune_classification").finetune
    model, metrics = finetune(
        "sst2", preset, data, epochs=4, learning_rate=3e-2, **FAST
    )
    assert model.label_names == ["negative", "positive"]
    assert metrics["accuracy"] > 0.8


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_trees_and_relations(preset, tmp_path):
    finetune = load("finetune_classification").finetune
    rows = [(1, "the", 2, "det"), (2, "cat", 3, "nsubj"), (3, "sat", 0, "root")]
    tree = "".join(f"{k}\t{w}\t_\t_\t_\t_\t{h}\t{r}\t_\t_\n" for k, w, h, r in rows)
    names = [f"{part}.txt" for part in ("train", "dev", "test")]
    data = write(tmp_path / "trees", dict.fromkeys(names, f"{tree}\n" * 8))
    _, metrics = finetune("genia", preset, data, epochs=8, learning_rate=3e-2, **FAST)
    assert metrics["las"] > 0.6
    rows = [("the << cat >> sat on [[ mat ]]", "AGONIST")]
    rows += [("a [[ dog ]] ran to << red >>", "INHIBITOR")]
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows * 4]
    files = dict.fromkeys(names, "\n".join(lines))
    data = write(tmp_path / "relations", files)
    _, metrics = finetune(
        "chemprot", preset, data, epochs=8, learning_rate=3e-2, **FAST
    )
    assert metrics["accuracy"] > 0.6


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_words_and_choices(preset, tmp_path):
    finetune = load("finetune_classification").finetune
    words = "\n\n".join(["the\tO\ncat\tB-person\nsat\tO"] * 8)
    names = ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
    data = write(tmp_path / "words", dict.fromkeys(names, words))
    _, metrics = finetune("wnut17", preset, data, epochs=6, learning_rate=3e-2, **FAST)
    assert metrics["entity_f1"] > 0.5
    passage = {
        "article": "the cat sat",
        "questions": ["the _ sat", "the dog"],
        "options": [["cat", "dog", "hat", "mat"], ["ran", "sat", "a", "on"]],
        "answers": ["A", "B"],
    }
    parts, levels = ("train", "dev", "test"), ("middle", "high")
    names = [f"{part}/{level}/1.txt" for part in parts for level in levels]
    data = write(tmp_path / "race", dict.fromkeys(names, json.dumps(passage)))
    _, metrics = finetune("race", preset, data, epochs=1, **FAST)
    assert metrics["accuracy"] in (0, 0.25, 0.5, 0.75, 1)


@pytest.mark.slow
@pytest.mark.any_backend
def test_embedder(preset, tmp_path):
    row = "main\tMSR\t2012\t{}\t{}\tthe {} sat\tthe cat sat"
    rows = [row.format(0, 5.0, "cat"), row.format(1, 0.5, "tree")] * 8
    names = ("sts-train.csv", "sts-dev.csv", "sts-test.csv")
    data = write(tmp_path / "stsb", dict.fromkeys(names, "\n".join(rows)))
    finetune = load("finetune_embedder").finetune
    model, scores = finetune(preset, data, epochs=2, learning_rate=1e-2, **FAST)
    assert scores["spearman"] > 0.9
    settings = {"epochs": 1, "negatives": True, **FAST}
    _, scores = finetune(preset, data, **settings)
    assert -1 <= scores["spearman"] <= 1
