import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.documents.marked_spans import (
    MarkedTokenizer,
    mark_dates,
    with_spans,
)
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.texts import split_units, units_of
from tests.tasks.generation import text_to_text_tokenizers as tokenizers

TEXTS = [
    "the ⟦big cat⟧ sat on ⟦the⟧ ⟦mat⟧.",
    "",
    "⟪a ⟦red dog⟧⟫ ran",
    "an open ⟦big dog ran",
    "ran⟧ on",
]


def dense_ids(tokenizer, texts):
    # In eager mode KerasHub's tokenizers return Python lists.
    return tf.function(lambda x: tokenize(tokenizer, x).to_tensor(0))(
        tf.constant(texts)
    )


def spans_of(tokenizer, kind, texts):
    dense = dense_ids(MarkedTokenizer(tokenizer, kind), texts)
    rows = with_spans({"token_ids": dense}, tokenizer.vocabulary_size())
    return rows["token_ids"].numpy(), rows["span_ids"].numpy()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["word_piece", "byte_pair", "t5"])
def test_tokens_are_those_of_the_bare_text_and_know_their_spans(kind):
    family = ["roberta"] if kind == "byte_pair" else []
    tokenizer = getattr(tokenizers, kind)(*family)
    ids, spans = spans_of(tokenizer, "entity", TEXTS)
    bare = [text.translate(dict.fromkeys(map(ord, "⟪⟫⟦⟧"))) for text in TEXTS]
    expected = dense_ids(tokenizer, bare).numpy()
    np.testing.assert_array_equal(ids, expected)
    texts = [[], [], []]
    for row, numbers in zip(ids[[0, 2, 3]], spans[[0, 2, 3]], strict=True):
        found = texts.pop(0)
        for number in range(1, numbers.max() + 1):
            text = tokenizer.detokenize(row[numbers == number].tolist())
            found.append(str(text if isinstance(text, str) else text.numpy().decode()))
        texts.append([text.strip() for text in found])
    assert texts == [["big cat", "the", "mat"], ["red dog"], []]
    assert not spans[[1, 4]].any()


@pytest.mark.slow
def test_no_kind_and_the_other_kind():
    tokenizer = tokenizers.word_piece()
    ids, spans = spans_of(tokenizer, "phrase", TEXTS[2:3])
    assert spans.tolist() == [[1, 1, 1, 0]]
    plain = tokenize(MarkedTokenizer(tokenizer, None), tf.constant(TEXTS[2:3]))
    assert plain.to_list() == ids.tolist()


def test_a_span_that_is_cut_and_neighbours():
    # Places 1 begin, places 2 go on; the first row begins within a span.
    places = np.array([[0, 2, 2, 0, 1, 2, 1, 1, 0]])
    rows = with_spans({"token_ids": tf.constant(places * 10 + 7, tf.int32)}, 10)
    assert rows["span_ids"].numpy().tolist() == [[0, 1, 1, 0, 2, 2, 3, 4, 0]]
    assert (rows["token_ids"].numpy() == 7).all()


def test_units_are_all_of_a_text():
    texts = ["don't\n中国ABC café 3.5", "", " x "]
    units = split_units(tf.constant(texts))
    assert [b"".join(row).decode() for row in units.to_list()] == texts
    first = ["don", "'", "t", "\n", "中", "国", "ABC", " ", "café", " ", "3", ".", "5"]
    assert units_of(texts)[0] == first


def test_errors():
    with pytest.raises(ValueError, match=r"`kind` must be one of .*Received.*'noun'"):
        MarkedTokenizer(tokenizers.word_piece(), "noun")


def test_any_number_of_dates_in_a_span():
    years = " ".join(map(str, range(1950, 1970)))
    marked = tf.constant([f"⟦Cups of {years}⟧ and 1980", "no date"])
    expected = [f"⟦Cups of {years}⟧ and ⟦1980⟧", "no date"]
    for function in (mark_dates, tf.function(lambda x: mark_dates(x))):
        assert [t.decode() for t in function(marked).numpy()] == expected
