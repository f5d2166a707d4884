import keras
import tensorflow as tf

from keras_bertfam.layers import XLNetTokenizer
from tests.tiny_sentence_piece import train_sentence_piece


def test_a_seed_may_be_set_after_the_tokenizer_was_made():
    """TensorFlow drops its kernels then, and a model that has no name with them."""
    model = train_sentence_piece(["a cat sat on a mat"] * 9, vocab_size=30)
    tokenizer = XLNetTokenizer(model)
    encode = tf.function(lambda texts: tokenizer(texts))
    expected = encode(tf.constant(["a mat"])).to_list()
    keras.utils.set_random_seed(1)
    assert encode(tf.constant(["a mat"])).to_list() == expected
    assert [[int(number) for number in row] for row in tokenizer(["a mat"])] == expected
