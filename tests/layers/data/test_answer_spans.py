"""Where answers are in passages: words, case, tokens that are cut off, characters."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.answer_spans import (
    answer_spans,
    as_answers,
    as_characters,
    span_targets,
)
from keras_bertfam.tokenizers import BertTokenizer
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] in the cat ##s é . $ 5 19 ##90"
TOKENIZER = BertTokenizer(TOKENS.split(), lowercase=True)


def spans(passage, *answers, most=5, kept=None):
    _, starts, ends = tokenize_with_offsets(TOKENIZER, tf.constant([passage]))
    bounds = np.stack([starts[0], ends[0]], 1)[:kept]
    answers = [answer.encode() for answer in answers]
    return answer_spans(passage.encode(), bounds, answers, most)


def test_whole_words_in_any_case():
    assert spans("In 1990 the CAT. Cats.", "cat") == [(4, 4)]  # and not of "Cats"
    assert spans("In 1990 the CAT. Cats.", "the  Cat", "1990", "dog") == [
        (3, 4),
        (1, 2),
    ]
    assert spans("cats in cats", "cats") == [(0, 1), (3, 4)]
    assert spans("$5 $5", "$5") == [(0, 1), (2, 3)]
    assert spans("the .cat.", ".cat", ".") == [(1, 2), (1, 1), (3, 3)]


def test_what_is_too_long_or_cut_off():
    passage = "é in the cats"
    assert spans(passage, "in the cats") == [(1, 4)]
    assert spans(passage, "in the cats", most=3) == []
    assert spans(passage, "in the cats", "in the", kept=4) == [(1, 2)]
    assert spans(passage, "in the cats", "in the", kept=2) == []


def test_targets_of_rows():
    rows = ["the cat", "in cat", "é cat cat", "the"]
    _, starts, ends = tokenize_with_offsets(TOKENIZER, tf.constant(rows))
    targets = span_targets(
        np.array([row.encode() for row in rows], object),
        np.stack([starts.flat_values, ends.flat_values], 1),
        starts.row_splits.numpy(),
        np.array([2, 2, 3, 3]),
        np.array([b"cat", b"the", b"cat cat"], object),
        np.array([0, 1, 3]),
        (2, 6, 2),
    )
    assert targets.shape == (2, 2, 6, 2)
    assert np.argwhere(targets).tolist() == [
        [0, 0, 3, 0],
        [0, 1, 3, 0],
        [1, 0, 4, 1],
        [1, 1, 3, 0],
    ]


def test_bytes_as_characters():
    passage = "aé€b".encode()
    assert as_characters(passage, 1, 3) == (1, 2)
    assert as_characters(passage, 2, 4) == (1, 3)  # within characters: all of these
    assert as_characters(passage, 6, 7) == (3, 4)
    assert as_characters(passage, 7, 7) == (4, 4)


def test_forms_of_answers():
    expected = [[b"a cat"], [b"one", b"1"]]
    for y in (
        ["a cat", ["one", "1"]],
        [["a cat"], ("one", "1")],
        [{"text": ["a cat"], "answer_start": [0]}, {"text": ["one", "1"]}],
    ):
        assert as_answers(y, 2).to_list() == expected
    assert as_answers("a cat", 1).to_list() == expected[:1]
    assert as_answers(tf.ragged.constant(expected), 2).to_list() == expected
    assert as_answers(tf.constant(["a cat"]), 1).to_list() == expected[:1]
    for y, message in (
        (["a cat"], "of the answers to 2 questions. Received: .*'a cat'"),
        (None, "of the answers to 2 questions. Received: None"),
        (["a cat", []], r"none is empty. Received: \[\], of question 1"),
        (["a cat", [" "]], "none is empty. .* of question 1"),
        ([{"answer_start": 1}, "b"], "Received: .*answer_start.*, of question 0"),
        (["a cat", 3], "Received: 3, of question 1"),
    ):
        with pytest.raises(ValueError, match=message):
            as_answers(y, 2)
