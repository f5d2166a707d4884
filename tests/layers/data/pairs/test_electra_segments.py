import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bertfam.layers import ElectraSegments
from keras_bertfam.layers.data.pairs.electra_segments import _in_first

CLS, SEP = 101, 102


def numbers(strings):
    """A tokenizer of texts that are ids already."""
    return tf.strings.to_number(tf.strings.split(strings), tf.int32)


def build(documents, length, **kwargs):
    """The two segments of each row, whose layout is checked."""
    texts = ["\n".join(" ".join(map(str, s)) for s in d) for d in documents]
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(texts, tf.string))
    kwargs = {"break_lines": False, "documents_at_once": 10**6, **kwargs}
    rows = dataset.apply(ElectraSegments(numbers, length, CLS, SEP, **kwargs))
    out = []
    for row in rows.as_numpy_iterator():
        assert set(row) == {"token_ids", "segment_ids", "padding_mask"}
        ids, kinds = row["token_ids"], row["segment_ids"]
        count = row["padding_mask"].sum()
        assert row["padding_mask"][:count].all() and not ids[count:].any()
        a = ids[: count - kinds.sum()].tolist()
        b = ids[kinds == 1].tolist()
        assert a[0] == CLS and a[-1] == SEP and (not b or b[-1] == SEP)
        out.append((a[1:-1], b[:-1]))
    return out


def chi_square(observed, expected):
    assert scipy.stats.chisquare(observed, expected).pvalue > 0.01, observed


def test_full_rows():
    kwargs = {"single_segment_rate": 0.0, "random_length_rate": 0.0}
    # 16 is reached with the third sentence; A stays below (16 - 3) // 2.
    document = [[200] * 5, [201] * 4, [202] * 8, [203] * 2]
    rows = build([document] * 400, 16, **kwargs)
    assert all(row == ([203, 203], []) for row in rows[1::2])
    whole = {tuple(map(tuple, row)) for row in rows[::2]}
    # Once a coin lets the sentence that exceeds the limit into A.
    assert whole == {
        ((200,) * 5, (201,) * 4 + (202,) * 4),
        ((200,) * 5 + (201,) * 4, (202,) * 4),
    }
    tossed = sum(len(a) == 9 for a, _ in rows[::2])
    chi_square([tossed, 400 - tossed], [200, 200])


def test_a_short_sentence_after_a_long_one_goes_to_the_first():
    kwargs = {"single_segment_rate": 0.0, "random_length_rate": 0.0}
    rows = build([[[200] * 3, [201] * 9, [202] * 2, [203] * 3]] * 40, 16, **kwargs)
    kept = {tuple(map(tuple, row)) for row in rows}
    assert ((200,) * 3 + (202,) * 2, (201,) * 8) in kept
    assert ((200,) * 3 + (201,) * 9, (202,)) in kept and len(kept) == 2


@pytest.mark.slow
def test_rates():
    count = 6000
    rows = build([[[200] * 4, [201] * 4, [202] * 4]] * count, 12)
    single = sum(not b for _, b in rows if len(_) > 4)
    rows = build([[[1], [2], [3], [4], [5], [6], [7], [8], [9]]] * count, 9)
    # Rows that begin a document: as long as the target, less what is cut off.
    first = [len(a + b) for a, b in rows if a[0] == 1]
    assert len(first) == count
    full = sum(n >= 6 for n in first)
    short = 0.05 / 5  # targets 5, 6, 7, 8 and 9 with 0.05
    assert full / count > 0.98
    chi_square(
        [first.count(5), count - first.count(5)], [short * count, (1 - short) * count]
    )
    chi_square([single, count - single], [0.1 * count, 0.9 * count])


def reference(lengths, limit, extra):
    """Which sentences of one row go to its first segment, one after the other."""
    first, second, out = 0, 0, []
    for size in lengths:
        to_first = first == 0 or first + size < limit
        to_first = to_first or (second == 0 and first < limit and extra)
        first, second = (first + size, second) if to_first else (first, second + size)
        out.append(to_first)
    return out


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 12), min_size=1, max_size=8),
            st.integers(0, 20),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_sentences_are_placed_one_after_the_other(rows):
    lengths = sum((row[0] for row in rows), [])
    ends = np.cumsum([len(row[0]) for row in rows]).astype("int32")
    begin = ends - np.array([len(row[0]) for row in rows], "int32")
    got = _in_first(
        tf.constant(lengths, tf.int32),
        tf.constant(begin, tf.int32),
        tf.constant(ends, tf.int32),
        tf.constant([row[1] for row in rows], tf.int32),
        tf.constant([row[2] for row in rows], tf.bool),
    )
    assert got.numpy().tolist() == sum((reference(*row) for row in rows), [])


@pytest.mark.slow
def test_extreme_documents():
    assert build([[], [[]]], 8) == []
    (row,) = build([[[200 + i for i in range(50)]]], 8)
    assert row == ([200 + i for i in range(6)], [])
    # Nothing crosses a document's end, in windows of any size.
    documents = [[[200 + i] * (i + 1)] * 3 for i in range(9)]
    rows = build(documents, 9, documents_at_once=2)
    assert all(len(set(a + b)) == 1 for a, b in rows)
    assert {a[0] for a, _ in rows} == set(range(200, 209))
    assert build(documents, 9, documents_at_once=2) == rows
    assert build(documents, 9, documents_at_once=2, seed=3) != rows


@pytest.mark.parametrize("name", ["single_segment_rate", "random_length_rate"])
def test_errors(name):
    with pytest.raises(ValueError, match=f"`{name}`.*-0.5"):
        ElectraSegments(numbers, 16, CLS, SEP, **{name: -0.5})
