import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.tasks import CrossEncoderPreprocessor
from keras_bertfam.tasks.finetuning.cross_encoder_preprocessor import GAP
from tests import tiny_fine_tuning as tiny

QUERIES = ["the cat", "a dog"]
LISTS = [["the cat sat on the mat", "a tree"], ["red", "a dog ran in"]]


def words(ids):
    vocabulary = tiny.make_tokenizer().get_vocabulary()
    return " ".join(vocabulary[i] for i in np.asarray(ids) if i)


@pytest.mark.slow
def test_rows_of_lists_and_of_single_passages():
    preprocessor = CrossEncoderPreprocessor(tiny.make_tokenizer(), 24)
    x, y = preprocessor((QUERIES, LISTS), [[1, 0], [0, 1]])
    assert x["token_ids"].shape[:2] == (2, 2) and y.dtype == "float32"
    assert words(x["token_ids"][0, 1]) == "[CLS] the cat [SEP] a tree [SEP]"
    assert words(x["token_ids"][1, 1]) == "[CLS] a dog [SEP] a dog ran in [SEP]"
    assert x["segment_ids"][0, 1].numpy()[:7].tolist() == [0] * 4 + [1] * 3
    columns = preprocessor((QUERIES, *map(list, zip(*LISTS, strict=True))), None)
    np.testing.assert_array_equal(columns["token_ids"], x["token_ids"])
    single = preprocessor((QUERIES, [texts[1] for texts in LISTS]), None)
    assert single["token_ids"].shape[:2] == (2, 1)
    assert words(single["token_ids"][1, 0]) == words(x["token_ids"][1, 1])
    one, label = preprocessor((QUERIES[0], LISTS[0]), [1, 0])
    assert one["token_ids"].shape == (2, 24) and label.numpy().tolist() == [1, 0]
    assert words(one["token_ids"][1]) == words(x["token_ids"][0, 1])


@pytest.mark.slow
def test_the_longer_text_loses_its_end():
    preprocessor = CrossEncoderPreprocessor(tiny.make_tokenizer(), 9)
    ids = preprocessor((QUERIES, LISTS), None)["token_ids"]
    assert words(ids[0, 0]) == "[CLS] the cat [SEP] the cat sat on [SEP]"


@pytest.mark.slow
def test_batches_of_a_dataset():
    preprocessor = CrossEncoderPreprocessor(tiny.make_tokenizer(), 24)
    given = ((QUERIES, [["a tree", "red"], ["red", ""]]), [[1.0, 0.0], [0.5, 3.0]])
    elements = tf.data.Dataset.from_tensor_slices(given)
    for data in (given, elements):
        x, y, weights = next(iter(preprocessor.dataset(data, 2)))
        assert x["token_ids"].shape[:2] == (2, 2)
        assert sorted(y.numpy().tolist()) == [[0.5, np.float32(GAP)], [1.0, 0.0]]
        assert weights.numpy().tolist() == [1.0, 1.0]
