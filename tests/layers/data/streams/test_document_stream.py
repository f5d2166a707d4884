"""Documents as one stream: nothing lost, and rows that are full."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.layers.data.streams.document_stream import PackStream

WORDS = [f"w{i}" for i in range(40)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
END = 3


def documents(count=50, seed=0):
    rng = np.random.default_rng(seed)
    texts = [rng.choice(WORDS, rng.integers(1, 30)) for _ in range(count)]
    return [[5 + int(word[1:]) for word in text] for text in texts], [
        " ".join(text) for text in texts
    ]


@pytest.mark.slow
@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("at_once", [7, 256])
def test_nothing_is_lost(end, at_once):
    ids, texts = documents()
    texts[3:3] = ["", " \n "]
    pack = PackStream(BertTokenizer(VOCABULARY), 16, end, documents_at_once=at_once)
    rows = [*tf.data.Dataset.from_tensor_slices(texts).apply(pack)]
    expected = sum((text + [end] * (end is not None) for text in ids), [])
    stream = np.concatenate([row["token_ids"] for row in rows])
    inside = np.concatenate([row["padding_mask"] for row in rows])
    assert stream[inside].tolist() == expected
    assert inside[:-16].all() and len(stream) - len(expected) < 16
    owner = np.repeat(np.arange(50), [len(x) + (end is not None) for x in ids])
    for number, row in enumerate(rows):
        of = owner[16 * number : 16 * number + 16]
        assert row["sequence_ids"].numpy()[: len(of)].tolist() == (
            (of - of[0] + 1).tolist()
        )
        assert not row["sequence_ids"].numpy()[len(of) :].any()


@pytest.mark.slow
def test_lines_of_a_document_are_one_sequence():
    pack = PackStream(BertTokenizer(VOCABULARY), 8, END)
    data = tf.data.Dataset.from_tensor_slices(["w0\nw1. W2", "w3"])
    (row,) = data.apply(pack)
    assert row["sequence_ids"].numpy().tolist() == [1, 1, 1, 1, 1, 2, 2, 0]
    assert not [*tf.data.Dataset.from_tensor_slices([""]).apply(pack)]
    with pytest.raises(ValueError, match="`row_length` must be at least 1.*0"):
        PackStream(BertTokenizer(VOCABULARY), 0)
