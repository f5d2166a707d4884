"""Model cards: what they say, and whose README.md they leave alone."""

import os

import keras
import pytest
import yaml

from keras_bertfam.models import BertBackbone
from keras_bertfam.presets import cards, families, hub, replacing
from keras_bertfam.tasks import (
    Distiller,
    MaskedLM,
    TextClassifier,
    TextClassifierPreprocessor,
)
from keras_bertfam.version import __version__
from tests import tiny_fine_tuning as tiny
from tests.tiny_preset import make


def read(folder):
    """The metadata of a card, and its text."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    return yaml.safe_load(head), body


def row(text, name):
    return next(x for x in text.splitlines() if x.startswith(f"| {name} |"))


def test_a_card_of_a_trained_task(tmp_path):
    preprocessor = TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    model = TextClassifier(tiny.make_backbone(num_layers=1), 2, preprocessor)
    model.compile(learning_rate=1e-3)
    model.optimizer.iterations.assign(2)
    model.history = keras.callbacks.History()  # tests/test_finetuning.py has a true one
    model.history.history = {"loss": [1, 0.5], "val_accuracy": [0.1, 0.25]}
    given = {
        "license": "CC-BY-4.0",
        "language": ["en", "is"],
        "datasets": "stanfordnlp/sst2",
        "tags": ["bert", "films"],
        "description": "Films: good | bad?",
    }
    model.save_to_preset(tmp_path / "a", card=given)
    head, text = read(tmp_path / "a")
    assert head == {
        "library_name": "keras-hub",
        "pipeline_tag": "text-classification",
        "tags": ["keras", "keras-bertfam", "bert", "films"],
        "license": "cc-by-4.0",
        "language": ["en", "is"],
        "datasets": ["stanfordnlp/sst2"],
        "metrics": ["accuracy"],
    }
    assert "# TextClassifier of BertBackbone\n\nFilms: good | bad?\n" in text
    for name, value in {
        "layers": 1,
        "width": 16,
        "parameters": f"{model.count_params():,}",
        "steps": 2,
        "learning_rate": 0.001,
        "loss": 0.5,
        "val_accuracy": 0.25,
    }.items():
        assert row(text, name) == f"| {name} | {value} |"
    assert "Devlin et al., 2018, appendix A.3" in text
    assert f"keras_bertfam {__version__}, with Keras {keras.__version__}" in text
    for place in (tmp_path, os.getcwd(), os.path.expanduser("~")):
        assert os.fspath(place) not in text
    model.save_to_preset(tmp_path / "a", card={"scores": {"f1": 0.5}})
    head, text = read(tmp_path / "a")
    assert head["metrics"] == ["f1"] and row(text, "f1") == "| f1 | 0.5 |"
    assert "val_accuracy" not in text and "license" not in head
    assert row(text, "licence of the weights").endswith("not said |")


def test_what_was_not_trained_here_is_not_said(tmp_path):
    task = make()
    task.save_to_preset(tmp_path / "a")
    head, text = read(tmp_path / "a")
    assert head["pipeline_tag"] == "fill-mask" and "steps" not in text
    task.backbone.save_to_preset(tmp_path / "a")
    head, text = read(tmp_path / "a")
    assert head["pipeline_tag"] == "feature-extraction"
    assert "# BertBackbone\n" in text and "models.BertBackbone.from_preset" in text
    Distiller(make(), make()).save_to_preset(tmp_path / "b")
    assert "# MaskedLM of BertBackbone" in read(tmp_path / "b")[1]


def test_where_the_weights_are_from(saved, tmp_path, monkeypatch):
    size = families.FAMILIES["bert"].sizes["bert_tiny_en_uncased"]
    monkeypatch.setattr(hub, "locate", lambda *args, **kwargs: saved)
    task = MaskedLM.from_preset("bert_tiny_en_uncased")
    backbone = BertBackbone.from_preset("bert_tiny_en_uncased")
    for model in (task, backbone):
        assert getattr(model, "backbone", model).origin == f"hf://{size.source}"

    def card():
        backbone.save_to_preset(tmp_path / "a")
        return read(tmp_path / "a")

    head, text = card()
    assert head["base_model"] == size.source
    assert head["license"] == "apache-2.0"
    assert row(text, "began with") == f"| began with | hf://{size.source} |"
    backbone = BertBackbone.from_preset("hf://org/model")
    head, _ = card()
    assert head["base_model"] == "org/model" and "license" not in head
    backbone.origin = hub.handle("kaggle://org/a/keras/b")
    head, text = card()
    assert "base_model" not in head and "kaggle://org/a/keras/b" in text
    backbone.origin = hub.handle(saved)
    head, text = card()
    assert "base_model" not in head and "began" not in text
    random = BertBackbone.from_preset("bert_tiny_en_uncased", load_weights=False)
    assert random.origin is None


def test_a_readme_of_the_users_stays(tmp_path):
    task, path = make(), tmp_path / "a"
    readme = path / "README.md"
    task.save_to_preset(path)
    first = readme.read_text()
    assert cards.is_ours(readme)
    task.save_to_preset(path, card={"license": "mit"})
    assert "license: mit" in readme.read_text()
    for own in (first.replace("layers", "Layers"), "mine", "", first + "more\n"):
        readme.write_text(own)
        task.save_to_preset(path)
        assert readme.read_text() == own
    task.backbone.save_to_preset(path)
    task.preprocessor.tokenizer.save_to_preset(path)
    assert readme.read_text() == own
    readme.unlink()
    readme.symlink_to("config.json")
    task.save_to_preset(path)
    assert readme.is_symlink()
    readme.unlink()
    readme.mkdir()
    task.save_to_preset(path)
    assert readme.is_dir()
    readme.rmdir()
    readme.write_bytes(b"\xff")
    task.save_to_preset(path)
    assert readme.read_bytes() == b"\xff"


def test_a_readme_that_comes_while_a_preset_is_saved_stays(tmp_path, monkeypatch):
    task, path = make(), tmp_path / "a"
    task.save_to_preset(path)
    carry_over, calls = replacing._carry_over, []

    def busy(old, new, outdated):
        carry_over(old, new, outdated)
        calls.append(old)
        if len(calls) == 1:
            (path / "README.md").write_text("mine")
            raise replacing.Replaced(old)

    monkeypatch.setattr(replacing, "_carry_over", busy)
    task.save_to_preset(path)
    assert len(calls) == 2
    assert (path / "README.md").read_text() == "mine"


@pytest.mark.parametrize(
    "card, message",
    [
        ({"licence": "mit"}, r"keys of \[.*'license'.*Received: 'licence'"),
        ({"license": ["mit"]}, "a string as 'license'"),
        ({"datasets": [1]}, "a string or a list of them as 'datasets'"),
        ({"description": " "}, "a string as 'description'"),
        ({"scores": {"f1": "high"}}, "a dict of numbers as 'scores'"),
        ({"scores": {1: 0.5}}, "a dict of numbers as 'scores'"),
        ({"base_model": "/home/me/model"}, "'base_model'. Received: '/home"),
        ({"base_model": "../model"}, "'base_model'"),
        ("mit", "`card` must be a dict"),
    ],
)
def test_facts_that_a_card_does_not_take(card, message, tmp_path):
    for model in (task := make(), task.backbone):
        with pytest.raises(ValueError, match=message):
            model.save_to_preset(tmp_path / "a", card=card)
    assert not (tmp_path / "a").exists()
