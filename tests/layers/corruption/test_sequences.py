"""Rows of several sequences: no strategy crosses from one into the next."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import GeometricSpans, GivenSpans, NGrams, NGramWindows
from keras_bertfam.layers.corruption.mask_tokens import count_borders, set_apart
from tests.layers.corruption.masked_batches import (
    CLS,
    PIECE,
    SEP,
    START,
    masker,
    numpy_call,
    selected,
)

# Three sequences and padding; pieces at the borders would go on without them.
ROW = [CLS, START, PIECE, SEP, CLS, START, SEP, PIECE, PIECE, START, SEP, 0]
SEQUENCES = [1] * 4 + [2] * 3 + [3] * 4 + [0]


def test_borders_get_room():
    ids = tf.constant([[1, 1, 2, 0], [1, 2, 3, 3]])
    borders = count_borders(ids)
    assert borders.numpy().tolist() == [[0, 0, 1, 2], [0, 1, 2, 2]]
    apart = set_apart(tf.constant([[5, 6, 7, 9], [5, 6, 7, 8]]), borders, 9)
    assert apart.numpy().tolist() == [[5, 6, 9, 7, 9, 9], [5, 9, 6, 9, 7, 8]]
    assert set_apart(tf.zeros([0, 4], tf.int32), borders[:0], 0).shape == (0, 4)


def mask(strategy, **kwargs):
    """Masks 300 times the row, most of it, special tokens included."""
    spans = kwargs.pop("span_ids", None)
    layer = masker(
        strategy,
        unselectable_token_ids=[],
        mask_selection_rate=0.7,
        return_span_bounds=True,
        **{"mask_token_rate": 0.5, "random_token_rate": 0.0, **kwargs},
    )
    rows = {"sequence_ids": np.tile(SEQUENCES, (300, 1))}
    if spans is not None:
        rows["span_ids"] = np.tile(spans, (300, 1))
    return numpy_call(layer, np.tile(ROW, (300, 1)), seed=[0, 1], **rows)


@pytest.mark.parametrize(
    "strategy", [NGrams(8), GeometricSpans(0.05), GivenSpans(), NGramWindows(4, 1)]
)
def test_what_is_masked_ends_with_its_sequence(strategy):
    given = {"span_ids": [1] * 11 + [0]} if isinstance(strategy, GivenSpans) else {}
    out = mask(strategy, replacement_unit="span", **given)
    there = out["mask_weights"] > 0
    positions, bounds = out["mask_positions"], out["span_bounds"]
    owners = np.array(SEQUENCES)
    assert (np.take(ROW, positions) == out["mask_ids"])[there].all()
    for side in (0, 1):
        assert (owners[bounds[..., side]] == owners[positions])[there].all()
    assert (bounds[..., 0] <= positions)[there].all()
    assert (positions <= bounds[..., 1])[there].all()
    hits = selected(out, len(ROW))
    both = hits[:, :-1] & hits[:, 1:] & (owners[:-1] != owners[1:])
    assert both.any()  # neighbours that are no span
    # Their fates are their own; that of a span is one.
    masked = out["token_ids"] != ROW
    row, place = np.nonzero(both)
    assert (masked[row, place] != masked[row, place + 1]).any()
    for row, slot in zip(*np.nonzero(there), strict=True):
        first, last = bounds[row, slot]
        assert hits[row, first : last + 1].all()
        assert len(set(masked[row, first : last + 1])) == 1


def test_words_end_with_their_sequence():
    """The pieces after the second [SEP] are no part of a word that ends there."""
    hits = selected(mask("words"), len(ROW))
    assert (hits[:, 7] == hits[:, 8]).all() and (hits[:, 1] == hits[:, 2]).all()
    assert (hits[:, 6] != hits[:, 7]).any()


def test_a_row_of_one_sequence_is_masked_as_without_ids():
    layer = masker("words", mask_selection_rate=0.5)
    ids = np.array([ROW[:4], ROW[4:8]])
    ones = np.ones_like(ids)
    for row in (slice(None), 0):
        alone = numpy_call(layer, ids[row], seed=[0, 2])
        given = numpy_call(layer, ids[row], seed=[0, 2], sequence_ids=ones[row])
        for name, value in alone.items():
            assert (given[name] == value).all()


def test_sequence_ids_of_another_shape():
    with pytest.raises(ValueError, match="`sequence_ids` must have the shape"):
        masker("tokens")([ROW], sequence_ids=[SEQUENCES[:3]])
