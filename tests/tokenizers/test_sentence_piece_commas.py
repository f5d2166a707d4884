"""The comma behind a number, against the rule of the original code in plain Python."""

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_bertfam.layers import XLNetTokenizer
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from tests.tiny_sentence_piece import train_sentence_piece

TEXTS = [
    "born in 1980, he had 12, not 1,980 or 7,5, here",
    "no number, here",
    "",
    "x7,5,",
    "1980,",
    "12,,12, 7 ,",
]


@pytest.fixture(scope="module")
def proto():
    texts = [*TEXTS, "1980 12 7 5 x 1 9 8 0 2"] * 20
    return train_sentence_piece(texts, ["1980,", "▁12,", "7,"], vocab_size=60)


def plain(model, text):
    """XLNet's rule."""
    pieces = []
    for piece in model.encode(text, out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            parts = model.encode(piece[:-1].replace("▁", ""), out_type=str)
            if piece[0] != "▁" and parts[0][0] == "▁":
                parts = parts[1:] if len(parts[0]) == 1 else [parts[0][1:], *parts[1:]]
            pieces += [*parts, ","]
        else:
            pieces.append(piece)
    return [model.piece_to_id(piece) for piece in pieces]


def test_equals_the_original_rule(proto):
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    tokenizer = XLNetTokenizer(proto)
    words = ["1980,", "12,", "7,", "x7,", "here", ",", "5,5,", "he"]
    rng = np.random.default_rng(0)
    texts = TEXTS + [" ".join(rng.choice(words, 6)) for _ in range(200)]
    got = tf.function(tokenizer)(tf.constant(texts)).to_list()
    assert got == [plain(model, text) for text in texts]
    assert got != [model.encode(text) for text in texts]
    assert tokenizer(texts[0]).numpy().tolist() == got[0]


def test_as_transformers_does_it(proto):
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    tokenizer = XLNetTokenizer(proto, split_number_commas=False)
    tokenizer = XLNetTokenizer.from_config({**tokenizer.get_config(), "proto": proto})
    assert [list(map(int, row)) for row in tokenizer(TEXTS)] == model.encode(TEXTS)


def test_strings(proto):
    tokens = XLNetTokenizer(proto, dtype="string")([TEXTS[0], "qq"]).to_list()
    assert [token for token in tokens[0] if token[-1:] == b","] == [b","] * 5
    assert b"".join(tokens[1]).decode().strip("▁") == "qq"


def test_offsets(proto):
    ids, starts, ends = tokenize_with_offsets(XLNetTokenizer(proto), tf.constant(TEXTS))
    found = [
        [text[begin:end] for begin, end in zip(*places, strict=True)]
        for text, *places in zip(TEXTS, starts.to_list(), ends.to_list(), strict=True)
    ]
    assert [list(map(len, (a, b))) for a, b in zip(ids.to_list(), found, strict=True)]
    for text, parts in zip(TEXTS, found, strict=True):
        assert "".join(parts) == text.replace(" ", "")
    assert found[4][-1] == "," and "".join(found[4][:-1]) == "1980"


def test_exported(proto, tmp_path):
    """Its tables go into a SavedModel."""
    module = tf.Module()
    module.tokenizer = XLNetTokenizer(proto)
    module.call = tf.function(
        lambda texts: module.tokenizer(texts).to_tensor(),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    texts = tf.constant(TEXTS[:2])
    np.testing.assert_array_equal(loaded.call(texts), module.call(texts))


@pytest.mark.parametrize("space", "\0\v\f\x1c\x1f\x85\u2028\u2029\xa0\u3000\t\n\r")
def test_white_space_of_any_kind(proto, space):
    tokenizer = XLNetTokenizer(proto)
    texts = [f"no{space}number{space}{space}here", "no number here"]
    ids, starts, _ = tokenize_with_offsets(tokenizer, tf.constant(texts))
    assert ids.to_list()[0] == ids.to_list()[1]
    # The places are those of the text that was given.
    number = texts[0].encode().index(b"number")
    assert number in starts.to_list()[0]
