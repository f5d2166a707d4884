"""A model with an output table of its own gets rows in both."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import GPT2Backbone, T5Backbone
from keras_bertfam.presets.tokenizer_formats.piece_models import PieceModel
from keras_bertfam.tasks import (
    MaskedLMPreprocessor,
    TextClassifier,
    TextClassifierPreprocessor,
    TextToText,
    TextToTextPreprocessor,
    add_special_tokens,
    resize_vocabulary,
)
from keras_bertfam.tokenizers import T5Tokenizer
from tests.tasks.generation import text_to_text_tokenizers
from tests.tiny_preset import make

SIZES = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8)


def with_pieces(tokenizer, *pieces):
    """The tokenizer with more pieces after its own."""
    model = PieceModel()
    model.ParseFromString(tokenizer.proto)
    for piece in pieces:
        model.pieces.add(piece=piece, score=-1.0)
    return T5Tokenizer(model.SerializeToString())


@pytest.mark.parametrize("tied", [False, True])
def test_t5(tied):
    old = text_to_text_tokenizers.t5()
    size = old.vocabulary_size()
    # As published, with rows to spare.
    backbone = T5Backbone(size + 3, **SIZES, tie_embeddings=tied)
    model = TextToText(backbone, TextToTextPreprocessor(old, 16))
    tokenizer = with_pieces(old, "\u2581catmat", "\u2581dogsat", "bigred", "\u2581x")
    larger = resize_vocabulary(model, tokenizer)
    assert larger.backbone.vocabulary_size == size + 4
    ids = [int(k) for k in np.asarray(old("catmat")).reshape(-1)]
    assert len(ids) > 1
    data = {
        f"{side}_{name}": values
        for side in ("encoder", "decoder")
        for name, values in (
            ("token_ids", np.array([[5, 9, 7]])),
            ("padding_mask", np.ones((1, 3))),
        )
    }
    before, after = (ops.convert_to_numpy(m(data)) for m in (model, larger))
    np.testing.assert_allclose(after[..., :size], before[..., :size], atol=1e-5)
    # Logits are linear in the rows.
    mean = before[..., ids].mean(-1)
    np.testing.assert_allclose(after[..., size], mean, atol=1e-5)
    tables = [
        ops.convert_to_numpy(m.backbone.token_embedding.embeddings)
        for m in (model, larger)
    ]
    np.testing.assert_allclose(tables[1][size], tables[0][ids].mean(0), atol=1e-6)
    np.testing.assert_array_equal(tables[1][:size], tables[0][:size])


@pytest.mark.slow
def test_tokens_of_a_layout_stay_after_those_that_are_added():
    old = text_to_text_tokenizers.byte_pair("gpt2")
    size = old.vocabulary_size()
    backbone = GPT2Backbone(size, **SIZES, max_sequence_length=16)
    preprocessor = TextClassifierPreprocessor(old, sequence_length=8, layout="gpt")
    model = TextClassifier(backbone, 2, preprocessor)
    own = len(preprocessor.new_tokens)
    assert own == 3
    larger = add_special_tokens(model, ["<entity>", "</entity>"])
    ids = larger.preprocessor(["a <entity>b"])["token_ids"]
    assert size in np.asarray(ids) and np.asarray(ids).max() == size + 2 + own - 1
    tables = [
        ops.convert_to_numpy(m.backbone.token_embedding.embeddings)
        for m in (model, larger)
    ]
    assert len(tables[1]) == size + 2 + own
    np.testing.assert_array_equal(tables[1][-own:], tables[0][-own:])
    texts = ["a b", "b a"]
    expected = model.predict(texts, verbose=0)
    for found, was in zip(larger.predict(texts, verbose=0), expected, strict=True):
        np.testing.assert_allclose(found[1], was[1], atol=1e-5)


@pytest.mark.slow
def test_special_tokens_are_neither_masked_nor_drawn():
    model = make()
    larger = add_special_tokens(model, ["<entity>"])
    tokenizer = larger.preprocessor.tokenizer
    number = tokenizer.token_to_id("<entity>")
    assert number == larger.backbone.vocabulary_size - 1
    preprocessor = MaskedLMPreprocessor(
        tokenizer, 16, mask_selection_rate=0.8, mask_token_rate=0, random_token_rate=1
    )
    x, y, weights = preprocessor(["<entity> the cat <entity>"] * 200)
    x, y, weights = (np.asarray(v) for v in (x["token_ids"], y, weights))
    assert weights.sum() > 200  # words are
    assert not np.isin(y[weights > 0], number).any()
    assert ((x == number).sum(1) == 2).all()
