"""ERNIE's stages, from marked text to masks."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer, KnowledgeMasking
from keras_bertfam.tasks import (
    MaskedLMPreprocessor,
    MaskedLMSentencePairPreprocessor,
    ReplacedTokenDetectionPreprocessor,
    SpanBoundaryLMPreprocessor,
)
from tests.layers.corruption.masked_batches import masker, numpy_call

WORDS = "the dog sat big cat on ran near mat ##s".split()
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Words that are only in spans tell what a mask is of.
LINE = "the dog sat ⟦big cat⟧ on ⟪ran near ⟦mat⟧⟫ the dog on"
ENTITIES, PHRASES = [{"big", "cat"}, {"mat"}], [{"ran", "near", "mat"}]
TEXTS = tf.data.Dataset.from_tensor_slices(["\n".join([LINE] * 40)] * 3)


def word_piece():
    return BertTokenizer([*SPECIALS, *WORDS])


def masked_words(out, tokenizer):
    """For each row its words, those before masking, and which of them are masked."""
    x, ids, weights = out
    if isinstance(ids, dict):
        ids, weights = ids["masked_lm"], weights["masked_lm"]
    rows = x["token_ids"].numpy()
    hit = np.zeros(rows.shape, bool)
    row, slot = np.nonzero(weights.numpy())
    at = x["mask_positions"].numpy()[row, slot]
    rows[row, at], hit[row, at] = ids.numpy()[row, slot], True
    assert rows.max() < tokenizer.vocabulary_size()
    return np.array(tokenizer.get_vocabulary())[rows], hit


def units_hit(words, hit, units):
    """How many of the units' occurrences are masked wholly, and in part."""
    whole = part = 0
    for row, masks in zip(words.tolist(), hit.tolist(), strict=True):
        for unit in units:
            size = len(unit)
            for i in range(len(row) - size + 1):
                if {*row[i : i + size]} == unit:
                    whole += all(masks[i : i + size])
                    part += any(masks[i : i + size]) and not all(masks[i : i + size])
    return whole, part


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "units", "others"),
    [("entity", ENTITIES, PHRASES), ("phrase", PHRASES, ENTITIES[:1])],
)
def test_a_unit_is_masked_whole(stage, units, others):
    tokenizer = word_piece()
    preprocessor = MaskedLMPreprocessor(
        tokenizer, 48, 0.25, strategy=KnowledgeMasking(stage)
    )
    hits = [0, 0, 0, 0]
    for out in preprocessor.dataset(TEXTS, 4, training=False):
        words, hit = masked_words(out, tokenizer)
        assert not {"[UNK]", "[MASK]"} & {*words.ravel()}
        found = (*units_hit(words, hit, units), *units_hit(words, hit, others))
        hits = [a + b for a, b in zip(hits, found, strict=True)]
        outside = hit & ~np.isin(words, [*set().union(*units)])
        assert outside.any()  # words that are in no span take part
    whole, part, _, other_part = hits
    assert whole > 10 and part == 0 and other_part > 0


@pytest.mark.slow
def test_the_basic_stage_and_strings():
    tokenizer = word_piece()
    preprocessor = MaskedLMPreprocessor(
        tokenizer, 16, 0.3, strategy=KnowledgeMasking("basic")
    )
    bare = MaskedLMPreprocessor(tokenizer, 16, 0.3, strategy="words")
    text = LINE.translate(dict.fromkeys(map(ord, "⟪⟫⟦⟧")))
    first, second = preprocessor(LINE)[0], bare(text)[0]
    for name in second:
        np.testing.assert_array_equal(first[name], second[name])
    entity = MaskedLMPreprocessor(tokenizer, 16, 0.3, strategy="knowledge")
    encoded = entity.encode([LINE, "the [MASK]"])
    assert encoded.keys() == {"token_ids", "padding_mask"}
    np.testing.assert_array_equal(
        encoded["token_ids"][0], bare.encode(text)["token_ids"]
    )
    seen = set()
    for seed in range(30):
        words, hit = masked_words(entity([LINE], seed=[0, seed]), tokenizer)
        whole, part = units_hit(words, hit, ENTITIES)
        seen.add(whole)
        assert part == 0
    assert len(seen) > 1
    again = MaskedLMPreprocessor.from_config(entity.get_config())
    assert again.strategy.get_config() == {"stage": "entity"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls",
    [
        pytest.param(
            MaskedLMSentencePairPreprocessor,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ReplacedTokenDetectionPreprocessor,
            marks=pytest.mark.slow,
        ),
        SpanBoundaryLMPreprocessor,
    ],
)
def test_every_objective_that_masks(cls):
    tokenizer = word_piece()
    preprocessor = cls(tokenizer, 32, strategy="knowledge", mask_selection_rate=0.25)
    (out,) = preprocessor.dataset(TEXTS, 4, training=False).take(1)
    if isinstance(out, dict):
        out = (out, out["mask_ids"], out["mask_weights"])
    words, hit = masked_words(out, tokenizer)
    whole, part = units_hit(words, hit, ENTITIES)
    assert whole and not part


def test_errors():
    with pytest.raises(ValueError, match=r"`stage` must be one of .*'noun'"):
        KnowledgeMasking("noun")
    with pytest.raises(ValueError, match="`span_ids` must be given"):
        masker(KnowledgeMasking("phrase"))([[1, 20, 2]], seed=[0, 1])
    basic = numpy_call(masker(KnowledgeMasking("basic")), [[1, 20, 60, 2]], seed=[0, 1])
    assert basic["mask_weights"].sum() <= 2
