"""Streams with few masks, and words of scripts without spaces."""

import itertools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.layers import (
    GivenSpans,
    KnowledgeMasking,
    PermuteTokens,
    read_tokens,
)
from keras_bertfam.layers.corruption.word_strategies import SalientSpans
from keras_bertfam.layers.data.documents.marked_spans import (
    SegmentedTokenizer,
    with_spans,
)
from keras_bertfam.tokenizers import (
    BertTokenizer,
    train_sentence_piece,
)
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer
from tests import tiny_corpus
from tests.layers.corruption.masked_batches import PIECE, SEP, START, masker
from tests.tiny_masked_lm import SPECIALS
from tests.tiny_masked_lm import WORDS as CORPUS_WORDS

ROW = np.array([[SEP, *[START, PIECE, START] * 13]] * 4, "int32")  # 40 tokens, 24 asked
WORDS = ["กิน", "มา", "ไป", "แดด", "แมว", "ตา", "ปลา"]
LETTERS = sorted({*"".join(WORDS)})


def warned(layer, spans, batches):
    """What is said while a stream of batches is masked."""
    data = tf.data.Dataset.from_tensors({"span_ids": spans}).repeat(batches)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in data.map(lambda rows: layer(ROW, seed=[0, 1], **rows)):
            pass
    return [str(each.message) for each in caught]


def spans_of(first):
    """A span in each of the first rows, and none in the others."""
    return np.array([[0, 1, 1, *[0] * 37] if k < first else [0] * 40 for k in range(4)])


def test_a_stream_with_few_masks_says_so_once():
    few = warned(masker(GivenSpans(only_spans=True)), spans_of(1), 20)
    assert few == [
        "Batches have fewer than half of the masks that the rate asks for: strategy="
        "'given_spans' selected 10 of 120 tokens in them. The cause can be that spans "
        'are rare or words have many tokens. `strategy="tokens"` masks single tokens '
        "in any text."
    ]


def test_batches_without_a_mask_are_told_of():
    found = warned(masker(GivenSpans(only_spans=True)), spans_of(0), 10)
    assert [text[:24] for text in found] == [
        "A batch has no masked to",
        "Batches have fewer than ",
        "A batch has no masked to",
    ]
    assert "strategy='given_spans' selected none, but the rate asks for 24." in found[0]
    assert "Such batches so far: 10." in found[2]


@pytest.mark.parametrize("strategy", ["tokens", "words", GivenSpans(), SalientSpans()])
def test_others_say_nothing(strategy):
    assert warned(masker(strategy), spans_of(4), 20) == []


def test_rows_too_short_for_xlnet():
    layer = PermuteTokens(100, [SEP], mask_selection_length=2)
    data = tf.data.Dataset.from_tensors([[START, SEP] + [0] * 10]).repeat(2)
    with pytest.warns(
        UserWarning,
        match="no masked token.*PermuteTokens selected none, but the rate asks for 0",
    ):
        list(data.map(layer))


@keras.saving.register_keras_serializable("tests")
def thai(text):
    """Where words of a list begin and end."""
    at = 0
    while at < len(text):
        yield at
        known = [word for word in WORDS if text.startswith(word, at)]
        at += len(known[0]) if known else 1


def thai_lines():
    rng = np.random.default_rng(0)
    lines = ["".join(rng.choice(WORDS, 12)) for _ in range(60)]
    return tf.data.Dataset.from_tensor_slices(lines)


KINDS = {
    "WordPiece": lambda: BertTokenizer(
        [*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS)], lowercase=False
    ),
    "SentencePiece": lambda: train_sentence_piece(thai_lines(), 40, keep_accents=True),
}


@pytest.fixture(scope="module")
def tokenizer():
    return KINDS["WordPiece"]()


def masked_parts(preprocessor):
    """The texts of runs of neighbouring masks."""
    tokenizer, found = preprocessor.tokenizer, []
    for x, ids, weights in preprocessor.dataset(thai_lines(), 8, training=False):
        rows = (each.numpy() for each in (x["mask_positions"], ids, weights))
        for places, row, kept in zip(*rows, strict=True):
            pairs = zip(places[kept > 0].tolist(), row[kept > 0].tolist(), strict=True)
            runs = itertools.groupby(
                enumerate(pairs), lambda pair: pair[1][0] - pair[0]
            )
            found += [[token for _, (_, token) in run] for _, run in runs]
    if isinstance(tokenizer, BertTokenizer):
        pieces = np.array(tokenizer.get_vocabulary())
        return ["".join(pieces[run]).replace("##", "") for run in found]
    ragged = tf.ragged.constant(found, tf.int32)
    texts = np.asarray(as_graph_layer(tokenizer).detokenize(ragged))
    texts = [x.decode(errors="replace") if isinstance(x, bytes) else x for x in texts]
    return [text.strip() for text in texts if text.strip()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "segmenter", "kind"),
    [
        ("words", thai, "WordPiece"),
        pytest.param("words", None, "WordPiece", marks=pytest.mark.slow),
        pytest.param("ngrams", thai, "WordPiece", marks=pytest.mark.slow),
        pytest.param("words", thai, "SentencePiece", marks=pytest.mark.slow),
    ],
)
def test_words_by_a_segmenter_are_masked_whole(strategy, segmenter, kind):
    preprocessor = tasks.MaskedLMPreprocessor(
        KINDS[kind](), 64, strategy=strategy, segmenter=segmenter, seed=1
    )
    sizes = range(1, 5)
    words = itertools.chain(*(itertools.product(WORDS, repeat=n) for n in sizes))
    share = np.isin(masked_parts(preprocessor), [*map("".join, words)]).mean()
    assert share > 0.9 if segmenter else share < 0.3


def test_a_token_of_two_words_is_of_the_first():
    tokenizer = BertTokenizer([*SPECIALS, "a", "##bc", "##d", "e"])
    segmented = SegmentedTokenizer(
        tokenizer, lambda text: [2, 4] if len(text) > 1 else []
    )
    rows = {"token_ids": segmented(tf.constant(["abcd e", "e"])).to_tensor()}
    spans = with_spans(rows, tokenizer.vocabulary_size())["span_ids"]
    assert spans.numpy().tolist() == [[1, 1, 2, 3], [1, 0, 0, 0]]


@pytest.mark.slow
def test_a_segmenter_is_saved_by_its_name(tokenizer):
    preprocessor = tasks.MaskedLMPreprocessor(tokenizer, 16, segmenter=thai)
    config = preprocessor.get_config()
    assert config["segmenter"] == "tests>thai"
    assert type(preprocessor).from_config(config).segmenter is thai
    text = WORDS[0] + WORDS[1]
    plain = tasks.MaskedLMPreprocessor(tokenizer, 16).encode(text)["token_ids"]
    assert (
        preprocessor.encode(text)["token_ids"].numpy().tolist()
        == plain.numpy().tolist()
    )


@pytest.mark.slow
def test_segmenters_that_make_no_sense(tokenizer):
    def make(segmenter, **settings):
        return tasks.MaskedLMPreprocessor(
            tokenizer, 16, segmenter=segmenter, **settings
        )

    with pytest.raises(ValueError, match="`segmenter` must be a function or .*'icu'"):
        make("icu")
    with pytest.raises(ValueError, match="`segmenter` must be a function of .*: 7"):
        make(7)
    with pytest.raises(ValueError, match="`segmenter` must be `None` with a strategy"):
        make(thai, strategy=KnowledgeMasking())
    with pytest.raises(Exception, match="places from 0 to 3 .*Received: .0, 3, 9"):
        make(lambda text: [9])(["กิน"])


@pytest.mark.slow
def test_a_prepared_corpus_has_no_text_to_segment(tmp_path):
    words = BertTokenizer([*SPECIALS, ".", "##s", *CORPUS_WORDS], lowercase=True)
    folder = tiny_corpus.prepare(tmp_path / "prepared", words)
    with pytest.raises(ValueError, match="`segmenter` must be `None` with a prepared"):
        tasks.MaskedLMPreprocessor(words, 16, segmenter=thai).dataset(
            read_tokens(folder), 8
        )
    with pytest.raises(ValueError, match="`segmenter` must be `None` with a prepared"):
        tasks.MaskedLMPreprocessor(words, 16, segmenter=thai).grain_dataset(
            read_tokens(folder), 8
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dataset", "grain_dataset"])
@pytest.mark.parametrize(
    "strategy", ["salient_spans", KnowledgeMasking("phrase"), KnowledgeMasking()]
)
def test_a_prepared_corpus_has_no_marks(method, strategy, tmp_path):
    words = BertTokenizer([*SPECIALS, ".", "##s", *CORPUS_WORDS], lowercase=True)
    corpus = read_tokens(tiny_corpus.prepare(tmp_path / "prepared", words))
    preprocessor = tasks.MaskedLMPreprocessor(words, 16, strategy=strategy)
    with pytest.raises(ValueError, match="`strategy` must not read marks of the text"):
        getattr(preprocessor, method)(corpus, 8)
