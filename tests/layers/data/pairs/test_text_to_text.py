"""Inputs and targets that share rows: nothing lost, in step, and little padding."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.pairs.text_to_text import pack_together


def make(sizes, seed=0):
    """Sequences whose parts can be told: tokens from 1 on, and weights beside."""
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(1, 1000, n).tolist() for n, _ in sizes]
    targets = [rng.integers(1, 1000, n).tolist() for _, n in sizes]
    first = tf.ragged.constant(inputs, tf.int32, 1)
    second = tf.ragged.constant(targets, tf.int32, 1)
    weights = tf.ones_like(second.flat_values, tf.float32)
    sides = {
        "encoder": {"encoder_token_ids": first},
        "decoder": {
            "decoder_token_ids": second,
            "weights": second.with_flat_values(weights),
        },
    }
    return inputs, targets, sides


def taken_apart(rows, word):
    """The sequences of all rows, in order, each a tuple of ids."""
    found = []
    ids, numbers = rows[f"{word}_token_ids"], rows[f"{word}_sequence_ids"]
    for row, of in zip(ids.numpy(), numbers.numpy(), strict=True):
        found.append([tuple(row[of == n].tolist()) for n in range(1, of.max() + 1)])
        assert (np.diff(of[of > 0]) >= 0).all() and (row[of == 0] == 7).all()
    return found


def test_pairs_stay_together():
    rng = np.random.default_rng(1)
    sizes = [(rng.integers(1, 60), rng.integers(1, 12)) for _ in range(900)]
    inputs, targets, sequences = make(sizes)
    lengths = {"encoder": 64, "decoder": 16}
    rows = pack_together(sequences, lengths, pad_token_id=7)
    assert rows["encoder_token_ids"].shape[1] == 64
    assert rows["weights"].shape[1] == 16
    first, second = (taken_apart(rows, word) for word in lengths)
    assert [*map(len, first)] == [*map(len, second)]
    found = sorted(zip(sum(first, []), sum(second, []), strict=True))
    expected = zip(map(tuple, inputs), map(tuple, targets), strict=True)
    assert found == sorted(expected)
    inside = rows["decoder_sequence_ids"].numpy() > 0
    assert (rows["weights"].numpy() == inside).all()


def test_rows_of_one_kind_are_full():
    """Where inputs and targets are in proportion, almost nothing is padding."""
    rng = np.random.default_rng(1)
    _, _, sequences = make([(4 * n, n) for n in rng.integers(1, 9, 2000)])
    rows = pack_together(sequences, {"encoder": 64, "decoder": 16})
    assert (rows["encoder_sequence_ids"].numpy() > 0).mean() > 0.98
    assert (rows["decoder_sequence_ids"].numpy() > 0).mean() > 0.98


def test_what_is_too_long_or_empty():
    lengths = {"encoder": 8, "decoder": 4}
    rows = pack_together(make([(8, 4), (8, 1), (1, 4)])[2], lengths)
    assert rows["encoder_token_ids"].shape == (3, 8)
    for sizes in ((9, 1), (1, 5)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must fit into rows"):
            pack_together(make([(2, 2), sizes])[2], lengths)
    rows = pack_together(make([])[2], lengths)
    assert rows["decoder_sequence_ids"].shape == (0, 4)
