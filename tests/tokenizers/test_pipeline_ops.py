import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.presets.tokenizer_presets import has_vocabulary
from keras_bertfam.tokenizers import merging
from keras_bertfam.tokenizers.pipeline_ops import (
    as_graph_layer,
    token_strings,
    tokenize,
    tokenize_with_masks,
    word_prefix,
)
from tests.tiny_masked_lm import SPECIALS


def byte_pair_tokenizer():
    tokens = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        *"amt",
        "Ġ",
        "Ġm",
        "at",
        "Ã",
        "©",
        "Ã©",
    ]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return keras_hub.tokenizers.RobertaTokenizer(vocabulary, ["Ġ m", "a t", "Ã ©"])


def test_what_only_byte_level_tokenizers_have():
    tokenizer = byte_pair_tokenizer()
    word_piece = BertTokenizer([*SPECIALS, "at", "##m"])
    assert (word_prefix(tokenizer), word_prefix(word_piece)) == (" ", "")
    assert token_strings(tokenizer)[5:] == [
        "a",
        "m",
        "t",
        " ",
        " m",
        "at",
        "�",
        "�",
        "é",
    ]
    assert token_strings(word_piece) == [*SPECIALS, "at", "##m"]


def ids(tokenizer, texts):
    """In a graph: in eager mode KerasHub's tokenizers give lists."""
    graph = tf.function(lambda x: tokenize_with_masks(as_graph_layer(tokenizer), x))
    return graph(tf.constant(texts)).to_list()


@pytest.mark.slow
def test_masks_in_texts():
    tokenizer = byte_pair_tokenizer()
    texts = ["at <mask> m", "<mask>", ""]
    assert ids(tokenizer, texts) == [[10, 4, 9], [4], []]
    without = keras_hub.tokenizers.GPT2Tokenizer(
        {"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3}, ["a b"]
    )
    assert ids(without, ["abab", ""]) == [[3, 3], []]
    assert has_vocabulary(tokenizer) and not has_vocabulary(BertTokenizer())


@pytest.mark.slow
def test_text_goes_on_after_a_zero_byte():
    tokenizer = as_graph_layer(byte_pair_tokenizer())
    encode = tf.function(lambda texts: tokenize(tokenizer, texts))
    ids = encode(tf.constant(["at\0at", "at at"])).to_list()
    assert ids[0] == ids[1] and len(ids[0]) == 3


@pytest.mark.slow
def test_eager_calls_run_the_graph_that_was_traced_once(monkeypatch):
    tokenizer = as_graph_layer(as_graph_layer(byte_pair_tokenizer()))
    loops, merge = [], merging._merge

    def count(tokenizer, letters):
        loops.append(letters)
        return merge(tokenizer, letters)

    monkeypatch.setattr(merging, "_merge", count)
    texts = ["at mat", "", "mat\0at", "tam"]
    expected = ids(tokenizer, texts)
    for given in (texts, tuple(texts), np.array(texts), tf.constant(texts)):
        assert tokenizer(given).to_list() == expected
    for text, row in zip(texts, expected, strict=True):
        assert keras.ops.convert_to_numpy(tokenizer(text)).tolist() == row
    assert len(loops) == 2  # one by `ids`
    assert tokenizer([["at"]]).to_list() == [[[10]]]
    tokenizer.set_vocabulary_and_merges(
        {token: 30 - number for token, number in tokenizer.vocabulary.items()},
        tokenizer.merges,
    )
    assert (expected[0][0], tokenizer(["at"]).to_list()) == (10, [[20]])
