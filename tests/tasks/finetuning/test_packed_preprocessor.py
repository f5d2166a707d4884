"""What packed rows hold: every example once, with its labels and weight."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.rows.batches import rows_for
from keras_bertfam.tasks import (
    MultipleChoicePreprocessor,
    SpanQuestionAnsweringPreprocessor,
    TextClassifierPreprocessor,
    TextRegressorPreprocessor,
)
from tests import tiny_fine_tuning as tiny

TEXTS = [" ".join(text.split()[:7]) for text in tiny.texts(60)[0]]
NUMBERS = np.arange(60, dtype="float32")
PAIRS = (TEXTS, TEXTS[::-1])


def make(cls=TextRegressorPreprocessor, **kwargs):
    return cls(tiny.make_tokenizer(), 24, packed=True, **kwargs)


def unpacked(x, y, weights):
    """The examples of a batch: ids, segments, label and weight of each."""
    parts = "token_ids", "segment_ids", "sequence_ids"
    for ids, segments, numbers, starts, labels, kept in zip(
        *(x[part] for part in parts), x["sequence_starts"], y, weights, strict=True
    ):
        for slot in np.flatnonzero(kept):
            begin = np.ravel(starts[slot])[0]
            length = (numbers == numbers[begin]).sum()
            assert (numbers[begin : begin + length] == numbers[begin]).all()
            row = slice(begin, begin + length)
            row = tuple(ids[row].tolist()), tuple(segments[row].tolist())
            yield *row, float(labels[slot]), float(kept[slot])


def row_of(tokenizer, first, second):
    """The ids and segments of a pair of texts that have no word of two pieces."""
    texts = ["[CLS]", *first.split(), "[SEP]"], [*second.split(), "[SEP]"]
    ids = tuple(tokenizer.token_to_id(token) for text in texts for token in text)
    return ids, (0,) * len(texts[0]) + (1,) * len(texts[1])


@pytest.mark.slow
def test_a_pass_has_each_example_once_in_batches_of_one_shape():
    preprocessor = make()
    data = preprocessor.dataset((PAIRS, NUMBERS, NUMBERS + 1), 16)
    rows = data.element_spec[1].shape[0]
    orders, counts = [], []
    for _ in range(2):
        batches = list(data.as_numpy_iterator())
        assert {batch[0]["token_ids"].shape for batch in batches} == {(rows, 24)}
        assert all(y.shape == w.shape == (rows, 4) for _, y, w in batches)
        counts += [(w > 0).sum() for _, _, w in batches[:-1]]
        orders.append([example for batch in batches for example in unpacked(*batch)])
    assert 12 <= np.mean(counts) <= 20
    expected = [
        (*row_of(preprocessor.tokenizer, *pair), float(y), y + 1.0)
        for y, pair in enumerate(zip(*PAIRS, strict=True))
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(expected)
    assert orders[0] != orders[1]
    # A pass depends on its number and the seed: a run goes on where it was.
    preprocessor.position.set(epoch=1, batch=2)
    rest = [
        example for batch in data.as_numpy_iterator() for example in unpacked(*batch)
    ]
    assert rest == orders[1][-len(rest) :] and 0 < len(rest) < 60


def test_rows_hold_about_so_many_sequences():
    lengths = tf.constant([30] * 40 + [10] * 40)
    assert rows_for(80, lengths, 40, None) == 40
    assert rows_for(10, lengths, 40, None) == 5
    assert rows_for(10, lengths, 40, 1) == 10
    assert rows_for(1, lengths, 400, None) == 1


@pytest.mark.slow
def test_a_batch_is_of_no_more_than_the_data():
    (x, _, weights), *more = make().dataset((TEXTS[:3], NUMBERS[:3]), 32)
    assert not more and len(x["token_ids"]) <= 3
    assert np.count_nonzero(weights) == 3


def test_who_packs():
    nothing = tf.data.Dataset.from_tensor_slices((TEXTS, NUMBERS)).filter(
        lambda x, y: y < 0
    )
    with pytest.raises(ValueError, match="`data` must have at least one example"):
        make().dataset(nothing)
    config = keras.saving.serialize_keras_object(make(TextClassifierPreprocessor))
    assert keras.saving.deserialize_keras_object(config).packed
    with pytest.raises(ValueError, match="`packed` must be `False` .*'xlnet'"):
        make(layout="xlnet")
    for cls in (MultipleChoicePreprocessor, SpanQuestionAnsweringPreprocessor):
        with pytest.raises(ValueError, match="packed"):
            cls(tiny.make_tokenizer(), packed=True)
