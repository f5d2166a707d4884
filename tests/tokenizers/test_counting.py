import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer, extend_vocabulary
from keras_bertfam.tokenizers.counting import count_tokens
from keras_bertfam.tokenizers.text_tokenizer import add_tokens
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
    # As the tokenizer cleans texts: here it keeps accents.
    step = {"type": "BertNormalizer", "lowercase": True, "strip_accents": False}
    step |= {"clean_text": True, "handle_chinese_chars": True}
    kept = BertTokenizer(
        before, normalizer=[step], pre_tokenizer=[{"type": "BertPreTokenizer"}]
    )
    books = tf.data.Dataset.from_tensor_slices(["Bücher", "die Bücher"])
    found = extend_vocabulary(kept, books, 10)
    assert found.get_vocabulary() == [*before, "bücher"]
    shorter = extend_vocabulary(tokenizer, corpus, 1)
    assert shorter.get_vocabulary() == [*before, "cats"]
    # In all scripts; each Chinese character is a word.
    words = ["हिन्दी", "கதை", "слово", "ñandú"]
    corpus = tf.data.Dataset.from_tensor_slices(
        [" ".join([*words, "你好吗", "x2"])] * 2
    )
    cased = BertTokenizer(before, sequence_length=9)
    found = extend_vocabulary(cased, corpus, 20)
    assert {*found.get_vocabulary()} - {*before} == {*words, *"你好吗"}
    kept = ("sequence_length", "lowercase", "max_input_chars_per_word")
    assert all(found.get_config()[k] == cased.get_config()[k] for k in kept)
    added = add_tokens(tokenizer, ["<entity>"])
    with pytest.raises(ValueError, match="`tokenizer` must have no added tokens"):
        extend_vocabulary(added, corpus, 1)
    with pytest.raises(ValueError, match="`count` must be an int of at least 0"):
        extend_vocabulary(tokenizer, corpus, -1)
