"""The examples of ELECTRA and DistilBERT on real text, with tiny settings."""

import importlib.util
import pathlib

import pytest

from keras_bertfam.corpus import python_documentation
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone, DistilBertBackbone, ElectraBackbone
from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor
from tests import tiny_masked_lm as tiny

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}


def load(name):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text("utf-8").splitlines()) < 60
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_text(path, documents=4):
    path.write_text("\n\n".join(python_documentation()[:documents]), "utf-8")
    return str(path)


@pytest.mark.slow
def test_pretrain_electra(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = load("pretrain_electra")
    settings = {"epochs": 1, "vocabulary_size": 300, "batch_size": 4, **SIZES}
    model = module.main(write_text(tmp_path / "text.txt"), embedding_dim=8, **settings)
    assert isinstance(ElectraBackbone.from_preset("my_electra"), ElectraBackbone)
    generator = ElectraBackbone.from_preset("my_electra_generator")
    assert generator.hidden_dim == 4
    assert generator.count_params() == model.generator.count_params()
    assert not (tmp_path / "backup").exists()


@pytest.mark.slow
def test_distill(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vocabulary = [*tiny.SPECIALS, *tiny.WORDS, *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = BertTokenizer(list(dict.fromkeys(vocabulary)), lowercase=True)
    backbone = BertBackbone(tokenizer.vocabulary_size(), **{**SIZES, "num_layers": 2})
    teacher = MaskedLM(backbone, MaskedLMPreprocessor(tokenizer, sequence_length=64))
    teacher.save_to_preset("my_bert")
    student = load("distill").main(
        "my_bert", write_text(tmp_path / "text.txt"), epochs=1, batch_size=4
    )
    assert isinstance(student.backbone, DistilBertBackbone)
    assert student.backbone.num_layers == 1
    loaded = MaskedLM.from_preset("my_distilbert")
    assert loaded.fill_mask("the [MASK]", top_k=1)[0]
