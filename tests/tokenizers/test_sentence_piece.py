import gc
import pickle
import sys
import unicodedata

import keras
import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam.layers import AlbertTokenizer, XLNetTokenizer
from tests.tiny_sentence_piece import train_sentence_piece


@pytest.fixture(scope="module")
def model():
    return train_sentence_piece(["a cat sat on a mat"] * 9, vocab_size=30)


@pytest.mark.parametrize(
    "drop_kernels",
    [lambda: keras.utils.set_random_seed(1), lambda: keras.utils.clear_session()],
)
def test_a_seed_may_be_set_after_the_tokenizer_was_made(drop_kernels, model):
    """TensorFlow drops its kernels then, and a model that has no name with them."""
    tokenizer = XLNetTokenizer(model)
    encode = tf.function(lambda texts: tokenizer(texts))
    expected = encode(tf.constant(["a mat"])).to_list()
    batches = tf.data.Dataset.from_tensors(["a mat"]).map(tokenizer)
    drop_kernels()
    assert encode(tf.constant(["a mat"])).to_list() == expected
    assert [[int(number) for number in row] for row in tokenizer(["a mat"])] == expected
    assert next(iter(batches)).to_list() == expected
    assert tokenizer.detokenize(expected)[0] == "a mat"


def test_tokenizers_of_one_model_and_copies(model):
    tokenizer, again = XLNetTokenizer(model), XLNetTokenizer(model)
    other = XLNetTokenizer(train_sentence_piece(["on a cat"] * 9, vocab_size=20))
    del again
    gc.collect()
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.proto == model != other.proto
    for each in (tokenizer, copy, other):
        assert each.detokenize(each(["on a cat"]))[0] == "on a cat"
    assert [*copy(["a mat"])[0]] == [*tokenizer(["a mat"])[0]]


def test_what_is_not_public_in_tensorflow_text(model, monkeypatch):
    """What keeps a model relies on these; without them only a seed may not be set."""
    cls = tf_text.SentencepieceTokenizer
    module = sys.modules[cls.__module__]
    assert callable(module.gen_sentencepiece_tokenizer.sentencepiece_op)
    assert hasattr(cls(model)._model_resource, "resource_handle")
    expected = XLNetTokenizer(model)(["a mat"])

    class Moved(cls):
        """Of a module that hasn't got the op."""

    monkeypatch.setattr(tf_text, "SentencepieceTokenizer", Moved)
    assert [*XLNetTokenizer(model)(["a mat"])[0]] == [*expected[0]]


@pytest.mark.parametrize("cls", [AlbertTokenizer, XLNetTokenizer])
def test_accents_are_what_has_a_combining_class(cls):
    """As the original code says: `not unicodedata.combining(char)` after NFKD."""
    assigned = [
        c for c in map(chr, range(0xA0, 0x30000)) if unicodedata.category(c) != "Cn"
    ]
    characters = [c for c in assigned if unicodedata.category(c) not in ("Cs", "Co")]
    texts = [f"a{c}b" for c in characters if c not in "\x85\u2028\u2029"]
    tokenizer = cls(keep_accents=False, lowercase=False)
    cleaned = tokenizer.clean_texts(tf.constant(texts)).numpy()
    wrong = []
    for text, found in zip(texts, cleaned, strict=True):
        plain = unicodedata.normalize("NFKD", text)
        expected = "".join(c for c in plain if not unicodedata.combining(c))
        if found.decode() != expected:
            wrong.append(text)
    assert not wrong
