import tensorflow as tf

from keras_bertfam.layers.data.first_batch import FirstBatch


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
