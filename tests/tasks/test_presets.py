"""What becomes of a preset in another task, or with other arguments."""

import keras
import numpy as np
import pytest

from keras_bertfam.tasks import (
    MaskedLM,
    MaskedLMPreprocessor,
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


@pytest.mark.parametrize("maker", MAKERS)
def test_a_masked_lm_of_another_task_has_its_own_preprocessor(maker, tmp_path):
    preset = str(tmp_path)
    trained = MAKERS[maker]()
    trained.save_to_preset(preset)
    if maker == "replaced tokens":
        with pytest.warns(UserWarning, match="left out: those of MaskedLM are new"):
            model = MaskedLM.from_preset(preset)
    else:
        model = MaskedLM.from_preset(preset)
        head = getattr(trained, "masked_lm_head" if maker == "pairs" else "head")
        for ours, theirs in zip(
            model.head.get_weights(), head.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
    assert type(model.preprocessor) is MaskedLMPreprocessor
    assert model.preprocessor.sequence_length == 16  # the backbone takes no more
    data = model.preprocessor.dataset(tiny_masked_lm.documents(8), 4)
    _, targets, weights = next(iter(data))
    assert targets.shape == weights.shape
    preprocessor = MaskedLMPreprocessor.from_preset(preset, sequence_length=12)
    assert type(preprocessor) is MaskedLMPreprocessor
    assert preprocessor.sequence_length == 12


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
    words = MaskedLMPreprocessor.from_preset(str(tmp_path / "bert"), whole_word=True)
    assert words.strategy.uses_words
