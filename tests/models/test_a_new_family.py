"""What a BERT-shaped family costs: a record, and a class that names it."""

import dataclasses
import inspect

import keras
import pytest

from keras_bertfam import models, presets, tasks
from keras_bertfam.layers.data.layouts import get_layout
from keras_bertfam.models.family import EncoderFamily
from keras_bertfam.presets.families import BACKBONES, FAMILIES
from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.record import size
from tests.from_transformers import convert, max_difference, randomize
from tests.tiny_fine_tuning import make_tokenizer

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}


@pytest.fixture
def ernie():
    """ERNIE 1.0, for as long as a test takes."""
    record = BERT.derived(
        "ernie",
        "ErnieBackbone",
        arguments={**BERT.arguments, "activation": "relu", "max_sequence_length": 513},
        sizes={"ernie_base_zh": size(18000, 12, 768, source="nghuyong/ernie-1.0-base")},
        transformers=dataclasses.replace(
            BERT.transformers, title="Ernie", prefix="ernie"
        ),
    )
    register = keras.saving.register_keras_serializable("keras_bertfam")
    yield register(type("ErnieBackbone", (EncoderFamily,), {"record": record}))
    del FAMILIES["ernie"], BACKBONES["ernie"]
    del keras.saving.get_custom_objects()["keras_bertfam>ErnieBackbone"]


def test_names_sizes_and_recipes(ernie):
    assert ernie.parameter_count(**ernie.presets_table["ernie_base_zh"]) == 99_866_112
    found = presets.list_presets(ernie)["ernie_base_zh"]
    assert found.backbone is ernie and found.tokenizer_files == ("vocab.txt",)
    assert found.sources == ("hf://nghuyong/ernie-1.0-base",)
    assert "ernie_base_zh" in presets.list_presets()
    # What a record doesn't say is its base's.
    base = tasks.fine_tuning_recipe("bert", "squad")
    assert tasks.fine_tuning_recipe("ErnieBackbone", "squad") == base
    assert tasks.pretraining_recipe("ernie").task == "MaskedLMSentencePair"


def test_defaults_head_and_layout(ernie):
    backbone = ernie(40, **SIZES)
    assert backbone.activation == "relu" and backbone.max_sequence_length == 513
    tokenizer = make_tokenizer()
    assert get_layout(None, tokenizer) is ernie.record.layout
    task = tasks.TextClassifier(backbone, 2)
    assert task.head_style == "bert" and task.reads_pooler


def test_checkpoints_of_transformers(ernie, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 12, "hidden_act": "relu"}
    config = transformers.ErnieConfig(**sizes)
    theirs = randomize(transformers.ErnieForMaskedLM(config), 0.1)
    ours = convert(tasks.MaskedLM, theirs)
    assert type(ours.backbone) is ernie
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        expected = theirs(ids).logits
    assert max_difference(ours({"token_ids": ids.numpy()}), expected) < 1e-4
    ours.export_to_transformers(tmp_path)
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    with torch.no_grad():
        assert max_difference(again(ids).logits.numpy(), expected) < 1e-6


def test_two_families_of_one_name(ernie):
    with pytest.raises(ValueError, match="'bert', which BertBackbone has"):
        type("Other", (EncoderFamily,), {"record": BERT.derived("bert", "Other")})
    assert models.BertBackbone.record is FAMILIES["bert"] is BERT


def test_a_class_is_defined_again(ernie):
    record = dataclasses.replace(ernie.record, license="MIT")
    again = type("ErnieBackbone", (EncoderFamily,), {"record": record})
    assert FAMILIES["ernie"] is again.record
    assert presets.list_presets()["ernie_base_zh"].backbone is again


def test_a_layout_of_the_same_name(ernie):
    layout = dataclasses.replace(BERT.layout, start_last=True)
    record = BERT.derived("mine", "Mine", layout=layout)
    with pytest.raises(ValueError, match="`layout` must have a name of its own"):
        type("Mine", (EncoderFamily,), {"record": record})
    assert "mine" not in FAMILIES


def test_a_class_that_keras_does_not_know(tmp_path):
    record = BERT.derived("mine", "Mine", sizes={}, reads=("bert",))
    mine = type("Mine", (EncoderFamily,), {"record": record})
    try:
        models.BertBackbone(20, **SIZES).export_to_transformers(tmp_path)
        assert type(mine.from_preset(str(tmp_path))) is mine
        assert type(models.BertBackbone.from_preset(str(tmp_path))) is not mine
    finally:
        del FAMILIES["mine"], BACKBONES["mine"]


def test_the_signature_is_what_the_constructor_takes(ernie):
    parameters = inspect.signature(ernie).parameters
    assert parameters["activation"].default == "relu"
    with pytest.raises(TypeError):
        inspect.signature(ernie).bind(40, 2, 2, 16, 24, 8)
    with pytest.raises(TypeError):
        ernie(40, 2, 2, 16, 24, 8)
