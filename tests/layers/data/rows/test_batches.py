import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bertfam.layers import BatchByTokens
from keras_bertfam.layers.data.rows.batches import full_batches
from keras_bertfam.tasks.losses import DiffusionBound

LENGTH = 512


def rows(lengths):
    """Rows that say their number, in a dataset whose lengths may change."""

    def elements():
        for number, length in enumerate(lengths):
            yield {
                "token_ids": np.full(LENGTH, number, np.int32),
                "padding_mask": np.arange(LENGTH) < length,
                "label": np.int32(number),
            }

    return tf.data.Dataset.from_generator(
        elements,
        output_signature={
            "token_ids": tf.TensorSpec([LENGTH], tf.int32),
            "padding_mask": tf.TensorSpec([LENGTH], tf.bool),
            "label": tf.TensorSpec([], tf.int32),
        },
    )


def sizes(batches):
    return [b["padding_mask"].numpy().sum(1).tolist() for b in batches]


def test_golden():
    dataset = rows([512, 300, 200, 512, 100])
    batches = list(dataset.apply(BatchByTokens(1024)))
    assert sizes(batches) == [[512, 300, 200], [512, 100]]
    assert [b["label"].numpy().tolist() for b in batches] == [[0, 1, 2], [3, 4]]
    assert batches[0]["token_ids"].shape == (3, LENGTH)
    dropped = dataset.apply(BatchByTokens(1024, drop_remainder=True))
    assert sizes(dropped) == [[512, 300, 200]]
    spec = dataset.apply(BatchByTokens(1024)).element_spec
    assert spec["token_ids"].shape.as_list() == [None, LENGTH]
    assert spec["label"].shape.as_list() == [None]


@pytest.mark.slow
def test_greedy_over_any_number_of_rows(monkeypatch):
    monkeypatch.setattr(BatchByTokens, "rows_at_once", 3)
    lengths, budget = [], 700
    batches = rows(lengths).apply(BatchByTokens(budget))  # traced once

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.integers(0, LENGTH), max_size=12))
    def check(drawn):
        lengths[:] = drawn
        expected = []
        for length in drawn:
            # A row without a token counts as one.
            used = sum(max(n, 1) for n in expected[-1]) if expected else budget
            if used + max(length, 1) > budget:
                expected.append([])
            expected[-1].append(length)
        assert sizes(batches) == expected

    check()


def test_errors():
    with pytest.raises(ValueError, match="`tokens_per_batch` must be .* 512.*511"):
        rows([1]).apply(BatchByTokens(511))
    with pytest.raises(ValueError, match="`padding_mask`.*int64"):
        tf.data.Dataset.range(3).apply(BatchByTokens(9))


def test_smaller_batches_are_filled_up_with_zeros():
    ids = np.arange(1, 11).reshape(5, 2)
    x = {"token_ids": ids, "padding_mask": ids > 0}
    batches = tf.data.Dataset.from_tensor_slices((x, ids, ids / 2)).batch(3)
    full = full_batches(batches, 3)
    assert full.element_spec[0]["token_ids"].shape == (3, 2)
    assert full.cardinality() == 2
    first, (x, y, weights) = full
    np.testing.assert_array_equal(first[1], ids[:3])
    np.testing.assert_array_equal(y, [*ids[3:], [0, 0]])
    np.testing.assert_array_equal(x["padding_mask"], [[1, 1], [1, 1], [0, 0]])
    np.testing.assert_array_equal(weights, [*ids[3:] / 2, [0, 0]])


def test_batches_of_inputs_alone():
    rows = tf.data.Dataset.from_tensor_slices({"token_ids": np.ones((5, 2))})
    *_, last = full_batches(rows.batch(4), 4)
    np.testing.assert_array_equal(last["token_ids"], [[1, 1], *[[0, 0]] * 3])


def test_rows_that_fill_up_add_nothing_to_the_bound_of_diffusion():
    y = np.array([[-1, 5, 6, -1]], "int32")
    weights = np.array([[0, 2, 0, 0]], "float32")
    batch = {"token_ids": np.ones((1, 4), "int32")}, y, weights
    ((_, more_y, more_weights),) = full_batches(
        tf.data.Dataset.from_tensors(batch), 8, label=-1
    )
    bounds = [
        DiffusionBound()(labels, np.zeros((len(labels), 4, 10)), given)
        for labels, given in ((y, weights), (more_y.numpy(), more_weights.numpy()))
    ]
    assert float(bounds[0]) == pytest.approx(float(bounds[1]))
    assert float(bounds[0]) == pytest.approx(np.log(10))
