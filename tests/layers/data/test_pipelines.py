import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.layers.data.pipelines import PARALLEL, FirstBatch, ready_to_iterate
from keras_bertfam.tasks import MaskedLMPreprocessor, TextClassifierPreprocessor

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]


def pretraining(tokenizer):
    documents = tf.data.Dataset.from_tensor_slices(["a b a b a b"])
    return MaskedLMPreprocessor(tokenizer, 8).dataset(documents, batch_size=1)


def fine_tuning(tokenizer):
    return TextClassifierPreprocessor(tokenizer, 8).dataset((["a", "b"], [0, 1]), 1)


def prediction(tokenizer):
    return TextClassifierPreprocessor(tokenizer, 8).inputs(["a", "b"])[0]


@pytest.mark.parametrize("make", [pretraining, fine_tuning, prediction])
def test_options_of_the_datasets_of_preprocessors(make):
    options = make(BertTokenizer(TOKENS)).options()
    # An iterator that ends waits for the thread that tunes.
    assert options.autotune.enabled is False
    # Workers share batches, not files.
    policy = options.experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.DATA


def test_parallel_maps_keep_the_order():
    dataset = ready_to_iterate(tf.data.Dataset.range(100).map(abs, **PARALLEL))
    assert [*dataset.as_numpy_iterator()] == [*range(100)]


def test_each_iteration_begins_where_it_is_said():
    first = FirstBatch()
    batches = tf.data.Dataset.range(6).batch(2)
    data = first.of(batches.map(lambda x: (x, x[:1])).repeat())
    assert data.element_spec == batches.map(lambda x: (x, x[:1])).element_spec
    for start, expected in ((0, 0), (4, 2), (1, 2), (3, 0)):
        first.set(start)
        (found,) = data.take(1).as_numpy_iterator()
        assert found[0].tolist() == [expected, expected + 1]
        assert found[1].tolist() == [expected]
