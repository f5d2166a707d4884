"""What a BERT-shaped family costs: a record, and a class that names it."""

import dataclasses
import inspect

import keras
import pytest

from keras_bertfam import models, presets, tasks
from keras_bertfam.layers.data.pairs.segments import get_layout
from keras_bertfam.models import EncoderBackbone
from keras_bertfam.presets.families import BACKBONES, FAMILIES
from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts.record import size
from keras_bertfam.presets.families.roberta import ROBERTA
from tests.from_transformers import convert, max_difference, randomize
from tests.tiny_fine_tuning import make_tokenizer

SOURCE = "facebook/data2vec-text-base"
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}


@pytest.fixture
def data2vec():
    """data2vec's of texts, for as long as a test takes."""
    record = ROBERTA.derived(
        "data2vec-text",
        "Data2VecTextBackbone",
        sizes={"data2vec_text_base_en": size(50265, 12, 768, source=SOURCE)},
        transformers=dataclasses.replace(
            ROBERTA.transformers,
            title="Data2VecText",
            prefix="data2vec_text",
            signs=(),
            sign_file=None,
        ),
    )
    register = keras.saving.register_keras_serializable("keras_bertfam")
    yield register(type("Data2VecTextBackbone", (EncoderBackbone,), {"record": record}))
    del FAMILIES["data2vec-text"], BACKBONES["data2vec-text"]
    del keras.saving.get_custom_objects()["keras_bertfam>Data2VecTextBackbone"]


def test_names_sizes_and_recipes(data2vec):
    arguments = data2vec.presets_table["data2vec_text_base_en"]
    assert data2vec.parameter_count(**arguments) == 124_054_272
    found = presets.list_presets(data2vec)["data2vec_text_base_en"]
    assert found.backbone is data2vec
    assert found.tokenizer_files == ("vocab.json", "merges.txt")
    assert found.sources == (f"hf://{SOURCE}",)
    assert "data2vec_text_base_en" in presets.list_presets()
    # What a record doesn't say is its base's.
    base = tasks.fine_tuning_recipe("roberta", "squad")
    assert tasks.fine_tuning_recipe("Data2VecTextBackbone", "squad") == base
    assert tasks.pretraining_recipe("data2vec-text").task == "MaskedLM"


def test_defaults_head_and_layout(data2vec):
    backbone = data2vec(40, **SIZES)
    assert backbone.position_offset == 2 and backbone.layer_norm_epsilon == 1e-5
    assert get_layout("roberta", make_tokenizer()) is data2vec.record.layout
    task = tasks.TextClassifier(backbone, 2)
    assert task.head_style == "roberta" and not task.reads_pooler


@pytest.mark.slow
def test_checkpoints_of_transformers(data2vec, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 12}
    config = transformers.Data2VecTextConfig(**sizes)
    theirs = randomize(transformers.Data2VecTextForMaskedLM(config), 0.1)
    ours = convert(tasks.MaskedLM, theirs)
    assert type(ours.backbone) is data2vec
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        expected = theirs(ids).logits
    assert max_difference(ours({"token_ids": ids.numpy()}), expected) < 1e-4
    ours.export_to_transformers(tmp_path)
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    with torch.no_grad():
        assert max_difference(again(ids).logits.numpy(), expected) < 1e-6


def test_two_families_of_one_name(data2vec):
    with pytest.raises(ValueError, match="'bert', which BertBackbone has"):
        type("Other", (EncoderBackbone,), {"record": BERT.derived("bert", "Other")})
    assert models.BertBackbone.record is FAMILIES["bert"] is BERT


def test_a_class_is_defined_again(data2vec):
    record = dataclasses.replace(data2vec.record, license="MIT")
    again = type("Data2VecTextBackbone", (EncoderBackbone,), {"record": record})
    assert FAMILIES["data2vec-text"] is again.record
    assert presets.list_presets()["data2vec_text_base_en"].backbone is again


def test_a_layout_of_the_same_name(data2vec):
    layout = dataclasses.replace(BERT.layout, start_last=True)
    record = BERT.derived("mine", "Mine", layout=layout)
    with pytest.raises(ValueError, match="`layout` must have a name of its own"):
        type("Mine", (EncoderBackbone,), {"record": record})
    assert "mine" not in FAMILIES


def test_a_class_that_keras_does_not_know(tmp_path):
    record = BERT.derived("mine", "Mine", sizes={}, reads=("bert",))
    mine = type("Mine", (EncoderBackbone,), {"record": record})
    try:
        models.BertBackbone(20, **SIZES).export_to_transformers(tmp_path)
        assert type(mine.from_preset(str(tmp_path))) is mine
        assert type(models.BertBackbone.from_preset(str(tmp_path))) is not mine
    finally:
        del FAMILIES["mine"], BACKBONES["mine"]


def test_the_signature_is_what_the_constructor_takes(data2vec):
    parameters = inspect.signature(data2vec).parameters
    assert parameters["layer_norm_epsilon"].default == 1e-5
    with pytest.raises(TypeError):
        inspect.signature(data2vec).bind(40, 2, 2, 16, 24, 8)
    with pytest.raises(TypeError):
        data2vec(40, 2, 2, 16, 24, 8)
