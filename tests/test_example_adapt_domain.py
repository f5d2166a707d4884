import importlib.util

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.layers import extend_vocabulary
from keras_bertfam.models import BertBackbone
from keras_bertfam.tasks import (
    MaskedLM,
    MaskedLMPreprocessor,
    TextClassifier,
    resize_vocabulary,
)
from tests.checkout import ROOT
from tests.tiny_fine_tuning import SIZES, make_backbone, make_tokenizer
from tests.tiny_masked_lm import documents

_PATH = ROOT / "examples" / "adapt_domain.py"
_spec = importlib.util.spec_from_file_location("adapt_domain", _PATH)
adapt_domain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(adapt_domain)


def corpus():
    """The usual words, and "cats" (cat ##s) and "sitting" (unknown)."""
    texts = ["the Cats sitting on the mat", "a cats sitting by red cats", "once"]
    return documents(30).concatenate(tf.data.Dataset.from_tensor_slices(texts))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "albert", "distilbert"])
def test_new_rows_are_means_and_old_outputs_stay(family):
    model = MaskedLM(make_backbone(family), MaskedLMPreprocessor(make_tokenizer(), 16))
    model.head.bias.assign(np.arange(model.backbone.vocabulary_size) * 0.1)
    old = model.preprocessor.tokenizer
    tokenizer = extend_vocabulary(old, corpus(), 10)
    larger = resize_vocabulary(model, tokenizer)
    size = old.vocabulary_size()
    assert larger.backbone.vocabulary_size == size + 2
    table = ops.convert_to_numpy(larger.backbone.token_embedding.embeddings)
    before = ops.convert_to_numpy(model.backbone.token_embedding.embeddings)
    pieces = [old.token_to_id("cat"), old.token_to_id("##s")]
    np.testing.assert_allclose(table[size], before[pieces].mean(0), rtol=1e-6)
    np.testing.assert_array_equal(table[:size], before)
    bias = ops.convert_to_numpy(larger.head.bias)
    assert bias[size] == pytest.approx(0.1 * np.mean(pieces), rel=1e-5)
    inputs = {"token_ids": np.array([[2, 5, 6, 7, 3]], "int32")}
    logits = ops.convert_to_numpy(larger(inputs))[..., :size]
    np.testing.assert_allclose(logits, ops.convert_to_numpy(model(inputs)), atol=1e-5)
    with pytest.raises(ValueError, match="must begin with the"):
        resize_vocabulary(larger, old)


def test_spare_rows_are_not_those_of_new_tokens():
    old = make_tokenizer()
    tokenizer = extend_vocabulary(old, corpus(), 10)
    backbone = BertBackbone(tokenizer.vocabulary_size(), **SIZES)
    model = MaskedLM(backbone, MaskedLMPreprocessor(old, 16))
    larger = resize_vocabulary(model, tokenizer)
    table, before = (
        ops.convert_to_numpy(m.backbone.token_embedding.embeddings)
        for m in (larger, model)
    )
    size = old.vocabulary_size()
    pieces = [old.token_to_id("cat"), old.token_to_id("##s")]
    np.testing.assert_allclose(table[size], before[pieces].mean(0), rtol=1e-6)
    np.testing.assert_array_equal(table[:size], before[:size])


@pytest.mark.slow
@pytest.mark.any_backend
def test_adapts_and_fine_tunes(tmp_path):
    preset, output = str(tmp_path / "preset"), str(tmp_path / "adapted")
    model = MaskedLM(make_backbone(), MaskedLMPreprocessor(make_tokenizer(), 16))
    model.save_to_preset(preset)
    texts = [text.decode() for text in corpus().as_numpy_iterator()]
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    settings = {"new_words": 5, "epochs": 3, "batch_size": 4, "sequence_length": 16}
    model = adapt_domain.command(
        None,
        files=[str(tmp_path / "text.txt")],
        preset=preset,
        output=output,
        learning_rate=1e-2,
        **settings,
    )
    losses = model.history.history["loss"]
    assert losses[-1] < losses[0]
    classifier = TextClassifier.from_preset(output, num_classes=2)
    assert classifier.preprocessor.tokenizer.get_vocabulary()[-2:] == [
        "cats",
        "sitting",
    ]
    np.testing.assert_array_equal(
        ops.convert_to_numpy(classifier.backbone.token_embedding.embeddings),
        ops.convert_to_numpy(model.backbone.token_embedding.embeddings),
    )
