"""Rows of random lengths, empty ones included, against what TensorFlow makes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam import ragged

SHAPES = ([3, 0, 1], [0, 0], [2], [])


def rows_of(lengths, seed=0, dtype=tf.int64):
    values = np.random.default_rng(seed).integers(0, 9, sum(lengths))
    return tf.RaggedTensor.from_row_lengths(
        tf.constant(values, tf.int32), tf.constant(lengths, dtype)
    )


def check(found, expected):
    assert found.to_list() == expected.to_list()
    assert found.dtype == expected.dtype


@pytest.fixture(params=SHAPES, ids=str)
def rows(request):
    return rows_of(request.param)


def test_rows_by_lengths_and_by_numbers(rows):
    check(ragged.from_lengths(rows.values, rows.row_lengths()), rows)
    numbers = ragged.row_ids(rows)
    np.testing.assert_array_equal(numbers, rows.value_rowids())
    check(ragged.from_row_ids(rows.values, numbers, rows.nrows()), rows)


def test_what_is_kept(rows):
    chosen = rows.values % 2 == 0
    expected = tf.ragged.boolean_mask(rows, rows.with_values(chosen))
    check(ragged.keep_in_rows(rows, chosen), expected)
    np.testing.assert_array_equal(ragged.keep(rows.values, chosen), expected.values)
    matrix = tf.reshape(tf.range(24), [2, 3, 4])
    of_matrix = tf.constant([[True, False, True], [False, False, False]])
    check(
        ragged.keep_in_matrix(matrix, of_matrix),
        tf.ragged.boolean_mask(matrix, of_matrix),
    )
    with pytest.raises(ValueError, match="incompatible"):
        ragged.keep_in_matrix(matrix, of_matrix[:, :2])


def test_heads(rows):
    sizes = [2, 0, 5][: rows.nrows()]
    expected = [row[:size] for row, size in zip(rows.to_list(), sizes, strict=True)]
    assert ragged.head(rows, tf.constant(sizes, tf.int32)).to_list() == expected
    expected = [
        row[len(row) - min(len(row), size) :]
        for row, size in zip(rows.to_list(), sizes, strict=True)
    ]
    assert ragged.tail(rows, tf.constant(sizes, tf.int32)).to_list() == expected


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize("lengths", SHAPES, ids=str)
def test_rows_beside_each_other(lengths, dtype):
    rows = rows_of(lengths, dtype=dtype)
    others = rows_of(lengths[::-1], 1, dtype)
    dense = tf.fill([len(lengths), 2], 7)
    none = dense[:, :0]
    for parts in ([rows, others], [dense, rows, none, others], [rows]):
        check(ragged.concat(parts), tf.concat(parts, 1))


@pytest.mark.parametrize("lengths", SHAPES, ids=str)
def test_empty_rows_are_filled(lengths):
    rows = rows_of(lengths)
    empty = tf.constant([n == 0 for n in lengths], tf.bool)
    values = tf.range(10, 10 + lengths.count(0))
    own = tf.RaggedTensor.from_row_lengths(values, tf.cast(empty, tf.int64))
    check(ragged.fill_rows(rows, empty, values), tf.concat([rows, own], 1))


def test_rows_of_rows(rows):
    outer = tf.RaggedTensor.from_row_lengths(rows, [rows.nrows(), 0])
    check(ragged.merge_inner(outer), outer.merge_dims(1, 2))
    longest = max([0, *map(len, rows.to_list())])
    assert ragged.longest(rows) == ragged.longest(outer) == longest
    pairs = tf.concat([rows, rows], 0)
    expected = tf.RaggedTensor.from_uniform_row_length(pairs, 2)
    check(ragged.groups(pairs, 2), expected)


@pytest.mark.parametrize("kept", ["", "b+|c", "b"])
@pytest.mark.parametrize("texts", [["abbac", "", "bb", "ä b"], []])
def test_texts_in_pieces(texts, kept):
    texts = tf.constant(texts, tf.string)
    expected = tf_text.regex_split_with_offsets(texts, "b+|c", kept)
    for one, other in zip(ragged.split_at(texts, "b+|c", kept), expected, strict=True):
        check(one, other)


def test_few_operations_in_a_graph():
    """TensorFlow's checks were most of a pipeline's graph."""
    spec = tf.TensorSpec([None], tf.string)

    def operations(function):
        graph = tf.function(function, autograph=False).get_concrete_function(spec).graph
        return len(graph.get_operations())

    ours = operations(lambda texts: ragged.split_at(texts, "a", "a")[0])
    assert ours < operations(lambda texts: tf_text.regex_split(texts, "a", "a")) / 10
