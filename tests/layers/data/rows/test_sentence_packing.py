import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bertfam.layers.data.limited_parts import batches_of_texts
from keras_bertfam.layers.data.rows.sentence_packing import (
    PackSentences,
    not_empty,
)

CLS, SEP = 101, 102


def numbers(strings):
    """A tokenizer of texts that are ids already."""
    return tf.strings.to_number(tf.strings.split(strings), tf.int32)


def pack(documents, length, **kwargs):
    texts = ["\n".join(" ".join(map(str, s)) for s in d) for d in documents]
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(texts, tf.string))
    kwargs = {"break_lines": False, **kwargs}
    blocks = dataset.apply(PackSentences(numbers, length, CLS, SEP, **kwargs))
    return [{k: v.numpy() for k, v in b.items()} for b in blocks]


def contents(blocks):
    out = []
    for block in blocks:
        row = block["token_ids"][block["padding_mask"]]
        assert row[0] == CLS and row[-1] == SEP
        assert not block["token_ids"][~block["padding_mask"]].any()
        out.append(row[1:-1].tolist())
    return out


GOLDEN = [[[200] * 3, [201] * 4], [[202] * 5, [203] * 2]]


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 256])
def test_full_sentences_golden(at_once):
    blocks = pack(GOLDEN, 11, sequence_ids=True, documents_at_once=at_once)
    assert [len(c) for c in contents(blocks)] == [8, 7]
    assert contents(blocks)[0][-1] == SEP
    assert blocks[0]["sequence_ids"].tolist() == [1] * 10 + [0]


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 256])
def test_doc_sentences_golden(at_once):
    blocks = pack(GOLDEN, 11, cross_documents=False, documents_at_once=at_once)
    assert contents(blocks) == [sum(d, []) for d in GOLDEN]


def test_sequence_ids_number_the_documents_of_a_row():
    (block,) = pack([[[200]], [[201, 202]], [[203]]], 10, sequence_ids=True)
    assert block["token_ids"].tolist() == [
        CLS, 200, SEP, 201, 202, SEP, 203, SEP, 0, 0,
    ]  # fmt: skip
    assert block["sequence_ids"].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 0, 0]


@pytest.mark.slow
def test_long_sentences_are_cut_and_ends_are_marked():
    blocks = pack([[list(range(200, 210))]], 6, sentence_end_id=7)
    assert contents(blocks) == [
        [200, 201, 202, 203], [204, 205, 206, 207], [208, 209, 7],
    ]  # fmt: skip


@pytest.mark.slow
def test_nothing_gives_nothing():
    assert pack([[]], 6) == []


def test_not_empty():
    dataset = tf.data.Dataset.range(3).batch(2)
    assert [list(x) for x in not_empty(dataset, "none")] == [[0, 1], [2]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="none at all"):
        list(not_empty(dataset.filter(lambda x: False), "none at all"))


def test_short_length():
    for ids in ((CLS, SEP), (CLS,), ()):
        least = 1 + len(ids)
        message = f"`sequence_length` must be at least {least}.*{least - 1}"
        with pytest.raises(ValueError, match=message):
            PackSentences(numbers, least - 1, *ids)


@pytest.mark.slow
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("start, end", [(None, SEP), (CLS, None), (None, None)])
def test_blocks_without_start_or_end(start, end, cross):
    texts = ["200 201 202 203 204\n205", "206"]
    dataset = tf.data.Dataset.from_tensor_slices(texts)
    pack = PackSentences(
        numbers, 4, start, end, cross_documents=cross, sequence_ids=True
    )
    got = [
        block["token_ids"][block["padding_mask"]].numpy().tolist()
        for block in dataset.apply(pack)
    ]
    budget = 4 - (start is not None) - (end is not None)
    units = [list(range(200, 205))[i : i + budget] for i in range(0, 5, budget)]
    units += [[205], None, [206]] if not cross else [[205]]
    units += ([[end]] if end else []) + [[206]] if cross else []
    rows = [[]]
    for unit in units:
        if unit is None or len(rows[-1] + unit) > budget:
            rows.append([])
        rows[-1] += unit or []
    special = [[start] if start else [], [end] if end else []]
    assert got == [special[0] + row + special[1] for row in rows]
    owners = [block["sequence_ids"].numpy() for block in dataset.apply(pack)]
    for numbered, row in zip(owners, got, strict=True):
        assert numbered[0] == 1 and (numbered > 0).sum() == len(row)


sentences = st.lists(st.integers(200, 299), min_size=1, max_size=9)
corpora = st.lists(st.lists(sentences, max_size=4), min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(corpora, st.booleans(), st.sampled_from([1, 2, 256]))
def test_packing_is_greedy_and_loses_nothing(corpus, cross, at_once):
    budget = 5
    got = contents(
        pack(corpus, budget + 2, cross_documents=cross, documents_at_once=at_once)
    )
    expected, row, open_document = [], [], None
    for number, document in enumerate(d for d in corpus if d):
        units = [s[i : i + budget] for s in document for i in range(0, len(s), budget)]
        if open_document is not None and cross:
            units.insert(0, [SEP])
        for unit in units:
            ended = not cross and open_document != number
            if row and (ended or len(row) + len(unit) > budget):
                expected.append(row)
                row = []
            row = row + unit
            open_document = number
    assert got == expected + ([row] if row else [])
    lost = np.concatenate([[0]] + [s for d in corpus for s in d])
    kept = [t for block in got for t in block if t != SEP]
    assert kept == lost[1:].astype(int).tolist()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([300_000] * 7, [3, 1, 3]),
        ([3_000_000, 10, 100_000, 2_000_000, 10], [1, 2, 1, 1]),
        ([10] * 6, [4, 2]),
        ([], []),
    ],
)
def test_texts_are_tokenized_a_mebibyte_at_a_time(sizes, expected):
    """Of up to 4 texts that come together, those that have more as a whole go apart."""
    texts = [str(i).ljust(size, "x") for i, size in enumerate(sizes)]
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(texts, tf.string))
    batches = [batch.numpy() for batch in batches_of_texts(dataset, 4)]
    assert [len(batch) for batch in batches] == expected
    assert [text.decode() for batch in batches for text in batch] == texts
