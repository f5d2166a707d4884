import pytest
import tensorflow as tf

from keras_bertfam.layers import (
    BertTokenizer,
    count_tokens,
    extend_vocabulary,
    train_word_piece,
)
from keras_bertfam.tokenizers.word_piece import SPECIAL_TOKENS
from tests.tiny_fine_tuning import make_tokenizer


def test_training():
    documents = tf.data.Dataset.from_tensor_slices(["Un café là", "un chat là"] * 20)
    tokenizer = train_word_piece(documents, 60)
    assert tokenizer.get_vocabulary()[:5] == [*SPECIAL_TOKENS]
    assert 1 not in tokenizer("UN CAFE là").numpy()


def test_vocabularies_are_learnt_from_the_same_characters():
    documents = tf.data.Dataset.from_tensor_slices(["Fuß ½…\u00a0SOFT\u00adLY"] * 20)
    tokenizer = train_word_piece(documents, 60)
    ids = tokenizer(["fuß ½… softly"]).to_list()[0]
    assert 1 not in ids
    assert ids == tokenizer(["Fuß ½…\u00a0SOFT\u00adLY"]).to_list()[0]
    assert {"½", "…", "##ß"} <= {*tokenizer.get_vocabulary()}
    assert "\u00a0" not in "".join(tokenizer.get_vocabulary())


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
    with pytest.raises(ValueError, match="must not be negative"):
        extend_vocabulary(tokenizer, corpus, -1)
