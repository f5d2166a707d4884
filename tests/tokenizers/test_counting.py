import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer, extend_vocabulary
from keras_bertfam.tokenizers.counting import count_tokens
from tests.tiny_fine_tuning import make_tokenizer


def test_counts():
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    texts = ["a b a", "", "x a"] * 50  # more than one batch
    documents = tf.data.Dataset.from_tensor_slices(texts)
    assert count_tokens(tokenizer, documents).tolist() == [0, 50, 0, 0, 0, 150, 50]


def test_extend_vocabulary():
    texts = ["the Cats sitting on the mat", "a cats sitting by red cats", "once"]
    corpus = tf.data.Dataset.from_tensor_slices(texts)
    tokenizer = make_tokenizer()
    before = tokenizer.get_vocabulary()
    longer = extend_vocabulary(tokenizer, corpus, 10)
    assert longer.get_vocabulary() == [*before, "cats", "sitting"]
    assert longer.lowercase
    assert [int(k) for k in longer("Cats mat")][0] == len(before)
    shorter = extend_vocabulary(tokenizer, corpus, 1)
    assert shorter.get_vocabulary() == [*before, "cats"]
    with pytest.raises(ValueError, match="`count` must be an int of at least 0"):
        extend_vocabulary(tokenizer, corpus, -1)
