"""What is said of a preset of another kind than was asked for."""

import pytest

from keras_bertfam import models, tasks
from keras_bertfam.cli import inputs
from keras_bertfam.presets import CheckpointError, inspection
from keras_bertfam.presets.families import FAMILIES
from tests import tiny_masked_lm

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    model = tiny_masked_lm.make_model()
    model.save_to_preset(folder / "masked")
    preprocessor = tasks.TextClassifierPreprocessor(model.preprocessor.tokenizer)
    classifier = tasks.TextClassifier(model.backbone, 2, preprocessor=preprocessor)
    classifier.save_to_preset(folder / "classifier")
    t5 = models.T5Backbone(
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        head_dim=4,
        vocabulary_size=model.backbone.vocabulary_size,
    )
    t5.save_to_preset(folder / "t5")
    tasks.TextToText(t5).save_to_preset(folder / "writer")
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_tasks_of_families(family):
    backbone = getattr(models, FAMILIES[family].backbone)
    for name in inspection.tasks_of(family):
        assert issubclass(backbone, getattr(tasks, name).backbone_cls)


@pytest.mark.parametrize(
    ("task", "preset", "words"),
    [
        (
            "TextToText",
            "classifier",
            ["holds a BertBackbone", "is for MaskedLM,"],
        ),
        ("MaskedLM", "t5", ["holds a T5Backbone", "It is for TextToText."]),
        (
            "PermutationLM",
            "masked",
            ["hold a XLNetBackbone", "a BertBackbone"],
        ),
    ],
)
def test_presets_of_another_kind(task, preset, words, presets):
    with pytest.raises(CheckpointError) as caught:
        getattr(tasks, task).from_preset(presets / preset)
    for each in [*words, preset]:
        assert each in str(caught.value)
    assert "directly" not in str(caught.value)


def test_commands_and_presets(presets):
    for command, preset, words in [
        (
            "fill-mask",
            "classifier",
            "of a TextClassifier, which predict, score, analyse",
        ),
        ("fill-mask", "writer", "of a TextToText, which generate, predict, score, "),
        ("fill-mask", "t5_small_multi", "of a TextToText"),
        ("predict", "masked", "of a MaskedLM, which fill-mask, analyse, export"),
    ]:
        path = presets / preset
        given = str(path) if path.exists() else preset
        with pytest.raises(ValueError, match=words) as caught:
            inputs.check_taken(command, given)
        assert str(caught.value).startswith("`preset` must be of one of ")
    inputs.check_taken("fill-mask", str(presets / "masked"))
    inputs.check_taken("fill-mask", "bert_tiny_en_uncased")
    inputs.check_taken("fill-mask", str(presets / "t5"))  # the loader says it
    inputs.check_taken("predict", str(presets / "classifier"))


def test_the_nearest_names():
    with pytest.raises(ValueError, match="The nearest names: bert_base_en") as caught:
        tasks.MaskedLM.from_preset("bert_base_engl")
    assert len(str(caught.value)) < 350
