"""Strategies of marked spans: ERNIE's stages, REALM's salient spans, and dates."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import (
    BertTokenizer,
    KnowledgeMasking,
    MaskTokens,
    SalientSpans,
    mark_dates,
)
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


SPANS = np.array([[0, 1, 1, 0, 2, 3, 3, 3, 3, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]])


def masked(rows=2000, **kwargs):
    layer = MaskTokens(
        100,
        mask_token_id=4,
        mask_selection_length=3,
        mask_token_rate=1.0,
        random_token_rate=0.0,
        strategy=SalientSpans(**kwargs),
    )
    ids = np.tile(np.arange(10, 20), (2 * rows, 1))
    return layer(ids, seed=[3, 4], span_ids=np.tile(SPANS, (rows, 1)))


def test_each_span_that_fits_is_equally_likely():
    out = masked()
    places, counts = out["mask_positions"].numpy(), out["mask_weights"].numpy().sum(1)
    assert (counts[1::2] == 0).all()  # without a span
    chosen = [tuple(p[: int(n)]) for p, n in zip(places, counts, strict=True)][::2]
    # The third is longer than a row has slots.
    assert {*chosen} == {(1, 2), (4,)}
    share = np.mean([span == (4,) for span in chosen])
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(len(chosen))
    ids = out["token_ids"].numpy()[::2]
    assert ((ids == 4).sum(1) == counts[::2]).all()
    only = masked(50, max_length=1)["mask_weights"].numpy().sum(1)
    assert (only[::2] == 1).all()


def test_config_and_bad_input():
    strategy = SalientSpans(max_length=4)
    assert SalientSpans.from_config(strategy.get_config()).max_length == 4
    with pytest.raises(ValueError, match="`max_length` must be at least 1"):
        SalientSpans(0)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("On 12 March 1887 it began.", "On ⟦12 March 1887⟧ it began."),
        ("From March 3rd, 1999, on", "From ⟦March 3rd, 1999⟧, on"),
        ("in Dec. 1941 and 1945", "in ⟦Dec. 1941⟧ and ⟦1945⟧"),
        ("the 1920s, 2024-02-29", "the ⟦1920s⟧, ⟦2024-02-29⟧"),
        ("⟦Expo 1967⟧ and 1968", "⟦Expo 1967⟧ and ⟦1968⟧"),
        ("⟦the 1914 to 1918 war⟧", "⟦the 1914 to 1918 war⟧"),
        ("maybe 300 men, 12345, March on", "maybe 300 men, 12345, March on"),
        ("", ""),
    ],
)
def test_dates(text, expected):
    assert mark_dates(text).numpy().decode() == expected
    assert mark_dates(tf.constant([text]))[0].numpy().decode() == expected


def test_dates_as_phrases():
    assert mark_dates("in 1887", "phrase").numpy().decode() == "in ⟪1887⟫"
    with pytest.raises(ValueError, match="`kind` must be one of"):
        mark_dates("in 1887", "date")
