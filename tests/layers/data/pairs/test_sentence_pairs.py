import collections

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bertfam.layers import PairSegments
from keras_bertfam.layers.data.documents.reading import CONTINUES

CLS, SEP = 101, 102
GOLDEN = [[200] * 3, [201] * 2, [202] * 4]  # a, b, c


def numbers(strings):
    """A tokenizer of texts that are ids already."""
    return tf.strings.to_number(tf.strings.split(strings), tf.int32)


def as_dataset(documents):
    texts = ["\n".join(" ".join(map(str, s)) for s in d) for d in documents]
    return tf.data.Dataset.from_tensor_slices(tf.constant(texts, tf.string))


def pair(documents, length, cls=PairSegments, **kwargs):
    dataset = as_dataset(documents)
    kwargs = {"break_lines": False, **kwargs}
    rows = dataset.apply(cls(numbers, length, CLS, SEP, **kwargs))
    batch = next(iter(rows.batch(10**6)), None)
    return None if batch is None else {k: v.numpy() for k, v in batch.items()}


def segments(rows, separators=1):
    """The two segments of each row, whose layout is checked."""
    out = []
    for ids, kinds, mask in zip(
        rows["token_ids"], rows["segment_ids"], rows["padding_mask"], strict=True
    ):
        count = mask.sum()
        assert mask[:count].all() and not ids[count:].any() and not kinds[count:].any()
        split = count - kinds.sum()
        assert not kinds[:split].any() and kinds[split:count].all()
        a, b = ids[:split].tolist(), ids[split:count].tolist()
        ends = [SEP] * (separators if b else 1)
        assert a[0] == CLS and a[-len(ends) :] == ends and (not b or b[-1] == SEP)
        a, b = a[1 : -len(ends)], b[:-1]
        assert a and SEP not in a + b and CLS not in a + b
        out.append((a, b))
    return out


def many(documents, length=16, seed=0, **kwargs):
    """(segments, label, weight) of the rows of documents in a single window."""
    kwargs = {"short_sequence_rate": 0.0, "documents_at_once": 10**6, **kwargs}
    rows = pair(documents, length, seed=seed, **kwargs)
    labels, weights = rows["sentence_label"], rows["sentence_weight"]
    return list(zip(segments(rows), labels.tolist(), weights.tolist(), strict=True))


def copies(document, count):
    """The document with 1000 more in each copy's tokens than in the one before."""
    return [[[t + 1000 * i for t in s] for s in document] for i in range(count)]


def assert_uniform(observed, expected=None):
    """By chi-square; a fixed seed makes this no game of chance."""
    assert scipy.stats.chisquare(observed, expected).pvalue > 0.01, observed


@pytest.mark.slow
def test_nsp_golden():
    a, b, c = GOLDEN
    rows = many(copies(GOLDEN, 4000))
    assert {weight for _, _, weight in rows} == {1.0}
    # The row of a document's begin; others follow where B was random.
    first = [(s, label) for s, label, _ in rows if s[0][0] % 1000 == 200]
    assert len(first) == 4000
    assert_uniform(np.bincount([label for _, label in first]))
    follows = collections.Counter(
        tuple(tuple(t % 1000 for t in part) for part in s) for s, x in first if not x
    )
    assert set(follows) == {(tuple(a), tuple(b + c)), (tuple(a + b), tuple(c))}
    assert_uniform(list(follows.values()))
    # target_b is 13 - 3 or 13 - 5 tokens: all from a uniform sentence on.
    drawn = collections.Counter()
    for (own, other), label in first:
        other = [t % 1000 for t in other]
        if label:
            drawn[len(own), "".join(str(t - 200) for t in other)] += 1
    whole = {k: n for k, n in drawn.items() if k[0] == 3}
    assert set(whole) == {(3, "000112222"), (3, "112222"), (3, "2222")}
    assert_uniform(list(whole.values()))
    cut = {k: n for k, n in drawn.items() if k[0] == 5}
    # 5 + 9 tokens lose one of B, off either end.
    assert set(cut) == {
        (5, "00011222"), (5, "00112222"), (5, "112222"), (5, "2222"),
    }  # fmt: skip
    front, back = cut[5, "00112222"], cut[5, "00011222"]
    assert_uniform([front, back])
    assert_uniform([front + back, cut[5, "112222"], cut[5, "2222"]])


@pytest.mark.slow
def test_nsp_goes_on_with_the_replaced_sentences():
    rows = many(copies(GOLDEN, 300))
    used = collections.Counter()
    for (a, b), label, _ in rows:
        used.update(a if label else a + b)
    # Each sentence is once in an A or in a B that follows.
    assert used == collections.Counter(sum(sum(copies(GOLDEN, 300), []), []))


@pytest.mark.slow
def test_positives_are_half_of_what_can_be_positive():
    rng = np.random.default_rng(0)
    documents = [
        [[1000 * i + j] * rng.integers(1, 5) for j in range(6)] for i in range(600)
    ]
    rows = many(documents, length=14)
    labels = np.array([label for _, label, _ in rows])
    same = [a[0] // 1000 == b[0] // 1000 for (a, b), _, _ in rows]
    assert same == (labels == 0).tolist()
    # A row that begins with a document's last sentence has but one of it.
    single = np.array([a[0] % 1000 == 5 for (a, _), _, _ in rows])
    assert labels[single].all() and single.any()
    assert_uniform(np.bincount(labels[~single]))
    assert 0.55 < labels.mean() < 0.75  # documents of two chunks


@pytest.mark.slow
def test_structural_objective():
    """A third of the chunks each: the next, the previous and a random segment."""
    rows = many(copies(GOLDEN, 3000), objective="structural")
    assert {weight for _, _, weight in rows} == {1.0}
    # The row of a document's begin: its chunk is all of it.
    first = [
        ((a, b), label)
        for (a, b), label, _ in rows
        if 200 in (a[0] % 1000, b[0] % 1000 if label == 1 else None)
    ]
    assert_uniform(np.bincount([label for _, label in first]))
    for (a, b), label in first:
        same = a[0] // 1000 == b[0] // 1000
        assert same == (label < 2)
        if same:
            assert (a[-1] < b[0]) == (label == 0)
            whole = a + b if label == 0 else b + a
            assert [t % 1000 for t in whole] == sum(GOLDEN, [])


@pytest.mark.slow
def test_partners_are_uniform_and_from_other_documents():
    sizes = [1, 2, 6000, 3, 4]
    documents = [[[10_000 * i + j] for j in range(n)] for i, n in enumerate(sizes)]
    rows = many(documents, 6, pairing="sentences")
    assert all(
        (a[0] // 10_000 != b[0] // 10_000) == (label == 1) for (a, b), label, _ in rows
    )
    chosen = collections.Counter(
        b[0] for (a, b), label, _ in rows if label and a[0] // 10_000 == 2
    )
    total = sum(chosen.values())
    assert total > 1500
    expected = {
        10_000 * i + j: total / 4 / sizes[i]
        for i in (0, 1, 3, 4)
        for j in range(sizes[i])
    }
    assert set(chosen) == set(expected)
    assert_uniform([chosen[k] for k in expected], list(expected.values()))


@pytest.mark.slow
def test_partners_may_come_from_the_previous_window():
    documents = [[[200 + i]] for i in range(9)]
    rows = pair(documents, 6, documents_at_once=2, seed=1)
    pairs = [(a[0], b[0]) for a, b in segments(rows)]
    assert [a for a, _ in pairs] == list(range(200, 209))
    windows = [((a - 200) // 2, (b - 200) // 2) for a, b in pairs]
    assert all(b in (a, a - 1) or (a, b) == (0, 0) for a, b in windows)
    assert windows[-1][1] == windows[-1][0] - 1  # the last window has one document
    # Windows of one document wait for another.
    pairs = [(a[0], b[0]) for a, b in segments(pair(documents, 6, documents_at_once=1))]
    assert [a for a, _ in pairs] == list(range(200, 209))
    assert all(a != b and abs(a - b) <= 2 for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_no_partners_are_pieces_of_the_same_document(at_once):
    # Of ten pieces each, and three documents of one.
    sizes = [10, 1, 10, 1, 1, 10]
    texts = [
        "\n".join(f"{'' if j else CONTINUES * (i > 0)}{1000 * d + i}" for j in range(3))
        for d, size in enumerate(sizes)
        for i in range(size)
    ]
    builder = PairSegments(
        numbers, 16, CLS, SEP, break_lines=False, documents_at_once=at_once
    )
    rows = tf.data.Dataset.from_tensor_slices(texts).apply(builder).batch(10**6)
    (batch,) = ({k: v.numpy() for k, v in batch.items()} for batch in rows)
    pairs = [(a[0], b[0]) for a, b in segments(batch)]
    negative = batch["sentence_label"] == 1
    assert negative.sum() > 20
    same = np.array([a // 1000 == b // 1000 for a, b in pairs])
    assert not same[negative].any() and same[~negative].all()
    # In a single window, all pieces but those of A are partners.
    partners = {b for (a, b), label in zip(pairs, negative, strict=True) if label}
    assert len(partners) > (12 if at_once == 100 else 4)


@pytest.mark.slow
def test_a_random_segment_needs_another_document():
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least two documents"):
        pair([[[200]], []], 8)
    pieces = tf.data.Dataset.from_tensor_slices(["200", f"{CONTINUES}201"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least two documents"):
        list(pieces.apply(PairSegments(numbers, 8, CLS, SEP)))
    assert pair([[[200]]], 8, objective="sop") is not None


@pytest.mark.slow
def test_sop_golden():
    rows = many([[[1, 2, 3], [4, 5]]] * 4000 + [[[300]]] * 5, objective="sop")
    golden = collections.Counter(
        (*map(tuple, s), label) for s, label, weight in rows if weight
    )
    assert set(golden) == {((1, 2, 3), (4, 5), 0), ((4, 5), (1, 2, 3), 1)}
    assert_uniform(list(golden.values()))
    alone = [(*map(tuple, s), label) for s, label, weight in rows if not weight]
    assert alone == [((300,), (), 0)] * 5


@pytest.mark.slow
def test_sop_swaps_before_it_truncates():
    # Of equally long segments B, after the swap, loses the odd token.
    rows = many([[[200] * 9, [201] * 9]] * 50, objective="sop")
    assert {(a[0], len(a), len(b)) for (a, b), _, _ in rows} == {
        (200, 7, 6), (201, 7, 6),
    }  # fmt: skip


@pytest.mark.slow
def test_sop_with_the_negatives_of_the_released_code():
    documents = [[[300] * 20], *copies(GOLDEN, 3)]
    rows = many(documents, objective="sop", single_sentence="random")
    (alone,) = [(s, label, w) for s, label, w in rows if s[0][0] == 300]
    assert alone[0][1] and alone[1:] == (1, 1.0)
    assert all(w == 1 for _, _, w in rows)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_short_sequences(rate):
    budget, count = 9, 4000
    documents = copies([[j] for j in range(budget)], count)
    rows = many(documents, budget + 3, objective="sop", short_sequence_rate=rate)
    # The first row of each document is as long as its target.
    sizes = [len(a + b) for (a, b), _, _ in rows if any(t % 1000 == 0 for t in a + b)]
    expected = np.full(budget - 1, rate * count / (budget - 1))
    expected[-1] += (1 - rate) * count
    assert_uniform(np.bincount(sizes)[2:], expected)


@pytest.mark.slow
def test_sentence_pairs():
    rows = many(copies([[200], [201], [202], [203]], 2000), 32, pairing="sentences")
    assert all(len(a) == len(b) == 1 for (a, b), _, _ in rows)
    assert all(b[0] == a[0] + 1 for (a, b), label, _ in rows if not label)
    assert_uniform(np.bincount([x for (a, _), x, _ in rows if a[0] % 1000 == 200]))


@pytest.mark.slow
def test_two_separators():
    rows = pair([[[200], [201]]], 12, separators=2, objective="sop")
    assert sorted(rows["token_ids"][0][[1, 4]]) == [200, 201]
    assert rows["token_ids"][0][[0, 2, 3, 5]].tolist() == [CLS, SEP, SEP, SEP]
    assert rows["segment_ids"][0].tolist() == [0, 0, 0, 0, 1, 1] + [0] * 6


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_the_same_at_any_parallelism(objective):
    rng = np.random.default_rng(0)
    documents = [
        [[int(i)] * n for n, i in enumerate(rng.integers(200, 300, 9), 1)]
        for _ in range(40)
    ]
    kwargs = {"documents_at_once": 4, "objective": objective, "break_lines": False}
    builder = PairSegments(numbers, 16, CLS, SEP, seed=5, **kwargs)
    dataset = as_dataset(documents).apply(builder)
    expected = [row["token_ids"].numpy().tolist() for row in dataset]
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    again = dataset.with_options(options)
    assert [row["token_ids"].numpy().tolist() for row in again] == expected
    builder.seed = 6
    other = as_dataset(documents).apply(builder)
    assert [row["token_ids"].numpy().tolist() for row in other] != expected


sentences = st.lists(st.integers(200, 299), min_size=1, max_size=30)
corpora = st.lists(st.lists(sentences, max_size=4), max_size=6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "pairing", "at_once"),
    [("nsp", "segments", 1), ("sop", "segments", 4), ("nsp", "sentences", 4)],
)
def test_extreme_documents(objective, pairing, at_once):
    corpus = []

    def texts():
        for document in corpus:
            yield "\n".join(" ".join(map(str, s)) for s in document)

    source = tf.data.Dataset.from_generator(
        texts, output_signature=tf.TensorSpec([], tf.string)
    )
    builder = PairSegments(
        numbers, 9, CLS, SEP, objective, pairing, break_lines=False,
        documents_at_once=at_once,
    )  # fmt: skip
    rows = source.apply(builder).batch(10**6)  # traced once for all examples

    @settings(max_examples=12, deadline=None)
    @given(corpora)
    def check(documents):
        corpus[:] = [*documents, [[150]], [[151]]]  # two that aren't empty
        (batch,) = rows
        check_rows({k: v.numpy() for k, v in batch.items()}, corpus, objective)

    check()


def check_rows(rows, corpus, objective):
    texts = [sum(document, []) for document in corpus]

    def contains(text, part):
        return any(text[i : i + len(part)] == part for i in range(len(text)))

    for (a, b), label, weight in zip(
        segments(rows), rows["sentence_label"], rows["sentence_weight"], strict=True
    ):
        assert 1 <= len(a) + len(b) <= 6
        assert weight == (1.0 if b else 0.0)
        assert objective == "sop" or b
        assert b or not label
        assert any(contains(t, a) for t in texts)
        assert not b or any(contains(t, b) for t in texts)
    assert [a for a, _ in segments(rows)].count([151]) == 1


@pytest.mark.slow
def test_nothing_gives_nothing():
    assert pair([[]], 9) is None
    assert pair([[], [[]]], 9, objective="sop") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "pos"}, "`objective`.*'pos'"),
        ({"pairing": "words"}, "`pairing`.*'words'"),
        ({"single_sentence": "drop"}, "`single_sentence`.*'drop'"),
        ({"short_sequence_rate": 2}, "`short_sequence_rate`.*2"),
        ({"separators": 0}, "`separators`.*0"),
        ({"documents_at_once": 0}, "`documents_at_once`.*0"),
        ({"sequence_length": 4}, "`sequence_length` must be at least 5.*4"),
    ],
)
def test_errors(arguments, message):
    arguments = {"sequence_length": 16, **arguments}
    with pytest.raises(ValueError, match=message):
        PairSegments(numbers, start_token_id=CLS, end_token_id=SEP, **arguments)
