"""What becomes of a preset in another task, or with other arguments."""

import json

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_bertfam.tasks import (
    MaskedLM,
    MaskedLMPreprocessor,
    MaskedLMSentencePair,
    PermutationLM,
    ReplacedTokenDetectionPreprocessor,
    SpanQuestionAnswering,
    TextClassifier,
)
from tests import tiny_electra, tiny_masked_lm, tiny_sentence_pair, tiny_span_boundary
from tests.tiny_fine_tuning import make_backbone

MAKERS = {
    "replaced tokens": tiny_electra.make_model,
    "pairs": tiny_sentence_pair.make_model,
    "spans": tiny_span_boundary.make_model,
}


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("maker", MAKERS)
def test_a_masked_lm_of_another_task_has_its_own_preprocessor(maker, tmp_path):
    preset = str(tmp_path)
    trained = MAKERS[maker]()
    trained.save_to_preset(preset)
    if maker == "replaced tokens":
        with pytest.warns(
            UserWarning, match="New in a MaskedLM: .*masked_lm_head/dense"
        ):
            model = MaskedLM.from_preset(preset)
    else:
        model = MaskedLM.from_preset(preset)
        head = getattr(trained, "masked_lm_head" if maker == "pairs" else "head")
        assert_same_weights(model.head, head)
    assert type(model.preprocessor) is MaskedLMPreprocessor
    assert model.preprocessor.sequence_length == 16  # the backbone takes no more
    data = model.preprocessor.dataset(tiny_masked_lm.documents(8), 4)
    _, targets, weights = next(iter(data))
    assert targets.shape == weights.shape
    preprocessor = MaskedLMPreprocessor.from_preset(preset, sequence_length=12)
    assert type(preprocessor) is MaskedLMPreprocessor
    assert preprocessor.sequence_length == 12


def assert_same_weights(ours, theirs):
    for pair in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(*pair)


def test_heads_that_the_other_task_lacks_are_named(tmp_path):
    trained = tiny_masked_lm.make_model()
    trained.save_to_preset(str(tmp_path))
    new = "New in a MaskedLMSentencePair: .*sentence"
    with pytest.warns(UserWarning, match=new) as caught:
        model = MaskedLMSentencePair.from_preset(str(tmp_path))
    assert __file__ in {warning.filename for warning in caught}
    assert_same_weights(model.masked_lm_head, trained.head)


def test_a_head_of_another_shape_is_new(tmp_path):
    trained = MaskedLM(make_backbone("xlnet"))
    for weight in trained.head.weights:
        weight.assign(np.ones(weight.shape))
    trained.save_to_preset(str(tmp_path))
    model = PermutationLM.from_preset(str(tmp_path))
    (bias,) = (w for w in model.head.weights if "bias" in w.path)
    assert not np.any(ops.convert_to_numpy(bias))


def test_a_preset_of_a_class_of_keras_hub(tmp_path):
    tiny_masked_lm.make_model().save_to_preset(str(tmp_path))
    path = tmp_path / "task.json"
    task = json.loads(path.read_text())
    name = keras.saving.get_registered_name(keras_hub.models.BertMaskedLM)
    path.write_text(json.dumps({**task, "registered_name": name}))
    with pytest.warns(UserWarning, match="New in a MaskedLM"):
        MaskedLM.from_preset(str(tmp_path))


def test_a_taken_head_that_is_not_finite(tmp_path):
    trained = tiny_sentence_pair.make_model()
    bias = trained.masked_lm_head.weights[-1]
    bias.assign(np.full(bias.shape, np.nan))
    trained.save_to_preset(str(tmp_path))
    with pytest.warns(UserWarning, match="NaN or infinite"):
        MaskedLM.from_preset(str(tmp_path))


@keras.saving.register_keras_serializable("tests")
class MyPreprocessor(MaskedLMPreprocessor):
    """One of a user's own."""


def test_a_preprocessor_of_ones_own_stays_with_its_task(tmp_path):
    model = tiny_masked_lm.make_model()
    model.preprocessor = MyPreprocessor(model.preprocessor.tokenizer, 16)
    model.save_to_preset(str(tmp_path))
    assert type(MaskedLM.from_preset(str(tmp_path)).preprocessor) is MyPreprocessor


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_what_is_frozen_stays_so(family, tmp_path):
    backbone = make_backbone(family, trainable=False)
    assert not backbone.trainable_variables
    model = TextClassifier(backbone, 2)
    model.save_to_preset(str(tmp_path))
    loaded = TextClassifier.from_preset(str(tmp_path))
    assert not loaded.backbone.trainable_variables
    assert len(loaded.trainable_variables) == len(model.trainable_variables) > 0


def test_short_rows_have_room_for_a_context(tmp_path):
    tiny_masked_lm.make_model().save_to_preset(str(tmp_path))
    preprocessor = SpanQuestionAnswering.from_preset(str(tmp_path)).preprocessor
    assert (preprocessor.sequence_length, preprocessor.question_length) == (16, 5)


@pytest.mark.slow
def test_arguments_take_the_place_of_what_follows_from_others(tmp_path):
    model = tiny_electra.make_model()
    model.preprocessor = tiny_electra.make_preprocessor(mask_selection_rate=0.15)
    model.save_to_preset(str(tmp_path / "electra"))
    longer = ReplacedTokenDetectionPreprocessor.from_preset(
        str(tmp_path / "electra"), sequence_length=64
    )
    assert longer(["the cat"])["mask_positions"].shape == (1, 9)
    assert model.preprocessor(["the cat"])["mask_positions"].shape == (1, 2)
    spans = tiny_span_boundary.make_model()
    tokenizer = spans.preprocessor.tokenizer  # has pieces
    model = MaskedLM(spans.backbone, MaskedLMPreprocessor(tokenizer, 16))
    model.save_to_preset(str(tmp_path / "bert"))
    words = MaskedLMPreprocessor.from_preset(str(tmp_path / "bert"), strategy="words")
    assert words.strategy.uses_words
