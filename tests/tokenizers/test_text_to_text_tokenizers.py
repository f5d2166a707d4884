"""The tokenizers of text-to-text families: sentinels, masks, special tokens."""

import keras
import keras_hub
import pytest
import tensorflow as tf

from keras_bertfam.tokenizers import (
    BartTokenizer,
    GPTTokenizer,
    T5Tokenizer,
    train_byte_pair,
    train_sentence_piece,
)
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.t5 import sentinel_ids

TEXTS = ["a bat sat on the mat. Café ünïque", "the dog, the cat & 3,000 mats"] * 3


@pytest.fixture(scope="module")
def documents():
    return tf.data.Dataset.from_tensor_slices(TEXTS)


def pieces(tokenizer, text):
    ids = tf.function(lambda x: tokenize(tokenizer, x))(tf.constant([text]))
    return [tokenizer.id_to_token(i) for i in ids.to_list()[0]]


def test_t5s_sentinels_come_after_the_pieces_and_the_first_is_last(documents):
    tokenizer = train_sentence_piece(documents, 60, family="t5")
    vocabulary = tokenizer.get_vocabulary()
    assert vocabulary[:3] == ["<pad>", "</s>", "<unk>"]
    assert vocabulary[-100:] == [f"<extra_id_{k}>" for k in range(99, -1, -1)]
    assert sentinel_ids(tokenizer) == [*range(len(vocabulary) - 1, -1, -1)][:100]
    assert (tokenizer.pad_token_id, tokenizer.end_token_id) == (0, 1)
    assert tokenizer.start_token_id is None
    # No vocabulary has them twice.
    proto = tokenizer.proto
    assert T5Tokenizer(proto).proto == proto
    assert T5Tokenizer(proto, sentinels=7).vocabulary_size() == len(vocabulary)


def test_sentinels_that_were_trained(documents, tmp_path):
    tokenizer = train_sentence_piece(documents, 60, family="t5", sentinels=9)
    assert sentinel_ids(tokenizer) == [*range(3, 12)]
    assert tokenizer.vocabulary_size() <= 60
    copy = keras.layers.deserialize(keras.layers.serialize(tokenizer))
    tokenizer.save_assets(tmp_path)
    copy.load_assets(tmp_path)
    assert copy.proto == tokenizer.proto and copy.sentinels == 100
    assert T5Tokenizer(sentinels=5).get_config()["sentinels"] == 5
    with pytest.raises(ValueError, match="`sentinels` must not be negative.*-1"):
        T5Tokenizer(sentinels=-1)


def test_sentinels_in_texts(documents):
    tokenizer = train_sentence_piece(documents, 60, family="t5")
    expected = ["<extra_id_0>", "▁sat", "<extra_id_1>"]
    found = pieces(tokenizer, "<extra_id_0> sat  <extra_id_1>")
    assert "".join(found) == "".join(expected) and found[0] == expected[0]
    assert "".join(pieces(tokenizer, "Café, 3,000\0mats")) == "▁Café,▁3,000▁mats"


def test_barts_has_a_mask(documents):
    tokenizer = train_byte_pair(documents, 300, family="bart")
    assert isinstance(tokenizer, BartTokenizer)
    assert isinstance(tokenizer, keras_hub.tokenizers.BartTokenizer)
    roberta = train_byte_pair(documents, 300)
    assert tokenizer.vocabulary == roberta.vocabulary
    assert (tokenizer.start_token_id, tokenizer.end_token_id) == (0, 2)
    assert tokenizer.mask_token_id == tokenizer.vocabulary_size() - 1


def test_gpt2s_has_one_special_token(documents):
    tokenizer = train_byte_pair(documents, 300, family="gpt2")
    assert isinstance(tokenizer, keras_hub.tokenizers.GPT2Tokenizer)
    last = tokenizer.vocabulary_size() - 1
    assert tokenizer.start_token_id == tokenizer.end_token_id == last
    with pytest.raises(ValueError, match="`family` must be one of.*'gpt2'.*'t5'"):
        train_byte_pair(documents, 300, family="t5")


@pytest.mark.slow
def test_gpts_words_end_with_a_sign(documents, tmp_path):
    tokenizer = train_byte_pair(documents, 90, family="gpt")
    assert isinstance(tokenizer, GPTTokenizer) and tokenizer.unk_token_id == 0
    assert tokenizer.start_token_id is tokenizer.end_token_id is None
    graph = tf.function(lambda x: tokenize(tokenizer, x))
    texts = ["The DOG,  sat\non 3,000 mats.", "", "ünïque β"]
    ids = graph(tf.constant(texts))
    assert "the</w>" in tokenizer.vocabulary
    assert ids.to_list()[0].count(tokenizer.token_to_id("the</w>")) == 1
    decoded = ["the dog , sat on 3 , 000 mats .", "", "unique <unk>"]
    assert [x.decode() for x in tokenizer.detokenize(ids).numpy()] == decoded
    assert tokenizer.detokenize(ids[0]) == decoded[0].encode()
    assert tokenizer(texts[0]).numpy().tolist() == ids.to_list()[0]
    copy = GPTTokenizer.from_config(tokenizer.get_config())
    tokenizer.save_assets(tmp_path)
    copy.load_assets(tmp_path)
    again = tf.function(lambda x: tokenize(copy, x))(tf.constant(texts))
    assert again.to_list() == ids.to_list()
