import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.rows.sequence_packing import PackSequences


def sequences(lengths, at_once):
    """Batches of sequences of given lengths, whose tokens tell whose they are."""
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    ragged = [
        tf.RaggedTensor.from_row_lengths(values.astype("int32"), lengths)
        for values in (100 + numbers, np.arange(len(numbers)) % 1000)
    ]
    labels = tf.range(len(lengths), dtype=tf.float32)
    parts = {"token_ids": ragged[0], "other": ragged[1], "label": labels}
    starts = range(0, len(lengths), at_once)
    batches = [{name: x[i : i + at_once] for name, x in parts.items()} for i in starts]
    if not batches:
        return tf.data.Dataset.from_tensors(parts)
    data = tf.data.Dataset.from_tensors(batches[0])
    for batch in batches[1:]:
        data = data.concatenate(tf.data.Dataset.from_tensors(batch))
    return data


def pack(lengths, row_length, *args, at_once=1000, **kwargs):
    """All rows as arrays, `(rows, ...)`."""
    data = sequences(np.array(lengths, "int64"), at_once)
    rows = data.apply(PackSequences(row_length, *args, **kwargs))
    rows = [{name: x.numpy() for name, x in row.items()} for row in rows]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def check_whole(lengths, rows, pad=0):
    """Each sequence is there once, whole, and numbered within its row."""
    ids, inside = rows["token_ids"], rows["padding_mask"]
    assert (ids[~inside] == pad).all() and not rows["sequence_ids"][~inside].any()
    found, sizes = np.unique(ids[inside], return_counts=True)
    assert found.tolist() == [100 + i for i in range(len(lengths))]
    assert sizes.tolist() == list(lengths)
    order = np.argsort(ids[inside], kind="stable")
    others = rows["other"][inside][order]
    assert others.tolist() == (np.arange(sum(lengths)) % 1000).tolist()
    for row, number, filled in zip(ids, rows["sequence_ids"], inside, strict=True):
        assert (filled[:-1] >= filled[1:]).all()  # padding is on the right
        begins = np.flatnonzero(np.diff(row, prepend=0)[filled])
        assert (
            number[filled].tolist()
            == np.repeat(
                1 + np.arange(len(begins)), np.diff(begins, append=filled.sum())
            ).tolist()
        )


def uneven(count):
    """As long as SST-2's sentences: 13 tokens in the mean, 66 at most."""
    drawn = np.random.default_rng(0).gamma(1.5, 7.5, count)
    return np.clip(drawn.astype("int64") + 3, 3, 66)


@pytest.mark.slow
def test_uneven_sequences_fill_rows():
    lengths = uneven(30_000)
    rows = pack(lengths, 128)
    assert set(rows) == {"token_ids", "other", "sequence_ids", "padding_mask"}
    check_whole(lengths, rows)
    assert rows["padding_mask"].mean() > 0.99
    again = pack(lengths, 128)
    assert all((again[name] == value).all() for name, value in rows.items())


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [7, 500])
def test_slots_of_the_sequences_of_a_row(at_once):
    lengths = uneven(500)
    rows = pack(lengths, 70, 4, pad_token_id=9, buffer_size=50, at_once=at_once)
    check_whole(lengths, rows, pad=9)
    there = rows["sequence_mask"]
    assert there.shape[1] == 4 and there.sum() == 500
    assert (there.sum(1) == rows["sequence_ids"].max(1)).all()
    first = np.take_along_axis(rows["token_ids"], rows["sequence_starts"], 1)
    assert (first[there] == 100 + rows["label"][there]).all()
    number = np.take_along_axis(rows["sequence_ids"], rows["sequence_starts"], 1)
    assert (number[there] == np.nonzero(there)[1] + 1).all()
    for name in ("label", "sequence_starts"):
        assert not rows[name][~there].any()


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, None])
def test_no_more_wait_than_the_buffer_has(most):
    """Also where the most sequences of a row leave it nearly empty."""
    lengths = [1] * 60 + [6] * 60 + [1, 9] * 30
    rows = pack(lengths, 10, most, buffer_size=8, at_once=20)
    check_whole(lengths, rows)
    newest, gone = -1, 0
    for ids in rows["token_ids"]:
        numbers = np.unique(ids[ids > 0]) - 100
        for batch in range(newest // 20 + 1, numbers.max() // 20 + 1):
            assert gone >= 20 * batch - 8
        newest, gone = max(newest, numbers.max()), gone + len(numbers)


@pytest.mark.slow
def test_few_sequences_and_none():
    check_whole([3], pack([3], 5))
    check_whole([5, 5], pack([5, 5], 5, buffer_size=1, at_once=1))
    with_gaps = sequences(np.array([2, 2]), 1).concatenate(
        sequences(np.zeros(0, "int64"), 1)
    )
    (row,) = with_gaps.apply(PackSequences(5))
    assert row["token_ids"].numpy().tolist() == [100, 100, 101, 101, 0]
    assert not list(with_gaps.skip(2).apply(PackSequences(5, 2)))


@pytest.mark.parametrize("length", [6, 0])
def test_a_sequence_that_no_row_can_have(length):
    message = f"must have 1 to 5 tokens.*Received one of length:.*{length}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        pack([3, length], 5)


def test_arguments():
    for name in ("row_length", "max_sequences", "buffer_size"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1.*: 0."):
            PackSequences(**{"row_length": 8, name: 0})
    for data in (tf.zeros([2, 3]), {"token_ids": tf.zeros([2, 3])}):
        with pytest.raises(ValueError, match="dicts with ragged tensors. Received"):
            tf.data.Dataset.from_tensors(data).apply(PackSequences(8))
