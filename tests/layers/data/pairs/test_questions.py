"""Questions beside windows of contexts, and where answers are in passages."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.pairs.questions import (
    answer_spans,
    as_answers,
    as_characters,
    make_windows,
    span_targets,
)
from keras_bertfam.layers.data.pairs.segments import layouts
from keras_bertfam.tokenizers import BertTokenizer
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets


class Ids:
    start_token_id, end_token_id = 101, 102


def released_windows(question, context, length, stride):
    """The windows of the released BERT: (start, size), and each token's best."""
    room = length - len(question) - 3
    spans, at = [], 0
    while True:
        size = min(len(context) - at, room)
        spans.append((at, size))
        if at + size == len(context):
            break
        at += min(size, stride)
    best = []
    for token in range(len(context)):
        scores = [
            min(token - at, at + size - 1 - token) + 0.01 * size
            if at <= token < at + size
            else -1
            for at, size in spans
        ]
        best.append(int(np.argmax(scores)))
    return spans, best


@pytest.mark.parametrize("layout", ["bert", "roberta", "xlnet"])
@pytest.mark.parametrize("length,stride", [(16, 4), (12, 5), (20, 30), (11, 1)])
def test_windows_are_those_of_the_released_bert(layout, length, stride):
    rng = np.random.default_rng(length)
    questions = [[7] * int(n) for n in rng.integers(0, 6, 12)]
    contexts = [list(range(200, 200 + int(n))) for n in rng.integers(0, 40, 12)]
    layout = layouts()[layout]
    windows = make_windows(
        tf.ragged.constant(questions, tf.int32, ragged_rank=1),
        tf.ragged.constant(contexts, tf.int32, ragged_rank=1),
        Ids,
        layout,
        length,
        stride,
    )
    rows = iter(
        zip(*(windows[k].to_list() for k in ("token_ids", "span_mask")), strict=True)
    )
    starts = iter(windows["start_mask"].to_list())
    numbers = {k: v.numpy() for k, v in windows.items() if isinstance(v, tf.Tensor)}
    seen = 0
    for example, (question, context) in enumerate(
        zip(questions, contexts, strict=True)
    ):
        extra = layout.separators - 1
        spans, best = released_windows(question, context, length - extra, stride)
        for number, (at, size) in enumerate(spans):
            ids, mask = next(rows)
            part = context[at : at + size]
            sep = [102] * layout.separators
            if layout.start_last:
                expected = [*part, *sep, *question, 102, 101]
            else:
                expected = [101, *question, *sep, *part, 102]
            assert ids == expected
            assert [i for i, m in zip(ids, mask, strict=True) if m] == part
            here = [200 + t for t in range(at, at + size) if best[t] == number]
            begins = next(starts)
            assert [i for i, m in zip(ids, begins, strict=True) if m] == here
            assert numbers["example"][seen] == example
            assert numbers["first"][seen] == at
            assert numbers["size"][seen] == size
            assert ids[numbers["cls_position"][seen]] == 101
            seen += 1
    assert seen == len(numbers["example"])


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
        (["a cat", []], r"none of them empty. Received: \[\], for question 1"),
        (["a cat", [" "]], "none of them empty. .* for question 1"),
        ([{"answer_start": 1}, "b"], "Received: .*answer_start.*, for question 0"),
        (["a cat", 3], "Received: 3, for question 1"),
    ):
        with pytest.raises(ValueError, match=message):
            as_answers(y, 2)
