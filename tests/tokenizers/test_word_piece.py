import json
import unicodedata

import keras
import pytest
import tensorflow as tf

from keras_bertfam.tokenizers import ElmoTokenizer
from keras_bertfam.tokenizers.pipeline_ops import word_start_table
from keras_bertfam.tokenizers.texts import check_lines
from keras_bertfam.tokenizers.word_piece import BertTokenizer

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe", "##s", "a", "!"]


def test_accents_case_and_bytes():
    tokenizer = BertTokenizer(VOCABULARY, lowercase=True)
    assert tokenizer(["Cafés a!", b"a\xff a", ""]).to_list() == [
        [5, 6, 7, 8], [1, 7], [],
    ]  # fmt: skip
    assert list(tokenizer("cafe A")) == [5, 7]
    assert list(BertTokenizer(VOCABULARY)("Cafe a")) == [1, 7]


@pytest.mark.slow
def test_words_of_too_many_characters():
    vocabulary = [*VOCABULARY, "##a", "я", "##я", "ก", "##ก"]
    words = ["a" * 200, "a" * 201, "я" * 200, "Ґ" + "я" * 200, "ก" * 200, "ก" * 201]
    words.append("a\u0301" * 200)  # counted after the clean-up
    tokenizer = BertTokenizer(vocabulary, True, max_input_chars_per_word=200)
    lengths = [len(x) for x in tokenizer(words).to_list()]
    assert lengths == [200, 1, 200, 1, 200, 1, 200]
    for word, size in zip(words, lengths, strict=True):
        assert len(tokenizer([word])[0]) == size
    for size in range(201):
        assert len(tokenizer("a" * size)) == size
    text = f"a {'ก' * 201} cafes! {'a' * 199}ґ {'a' * 999}"
    assert tokenizer([text, "a"]).to_list() == [[7, 1, 5, 6, 8, 1, 1], [7]]
    # Bytes that are no text hide nothing.
    assert tokenizer([b"\xff\n a" + b"a" * 200]).to_list() == [[1, 1]]
    assert list(tokenizer(text)) == [7, 1, 5, 6, 8, 1, 1]
    assert tokenizer(tf.constant([], tf.string)).to_list() == []
    usual = BertTokenizer(vocabulary, lowercase=True)
    assert [len(x) for x in usual(["a" * 100, "a" * 101]).to_list()] == [100, 1]
    strings = BertTokenizer(vocabulary, max_input_chars_per_word=2, dtype="string")
    assert strings(["aa aaa", ""]).to_list() == [[b"a", b"##a", b"[UNK]"], []]
    assert BertTokenizer(vocabulary, dtype="int64")(["a"]).dtype == "int64"
    ids, starts, ends = tokenizer.tokenize_with_offsets(tf.constant([text]))
    assert ids.to_list() == [[7, 1, 5, 6, 8, 1, 1]]
    bounds = zip(starts[0], ends[0], strict=True)
    found = [text.encode()[start:end].decode() for start, end in bounds]
    words = text.split()
    assert found == ["a", words[1], "cafe", "s", "!", *words[3:]]


def test_characters_that_become_several_make_a_word_too_long():
    vocabulary = [*VOCABULARY, *(f"{sign}{x}" for x in "가각" for sign in ("", "##"))]
    parts = unicodedata.normalize("NFD", "각")
    vocabulary += [f"{sign}{x}" for x in parts for sign in ("", "##")]
    tokenizer = BertTokenizer(vocabulary, lowercase=True)
    lengths = [tokenizer(["각" * n]).row_lengths()[0] for n in (33, 34)]
    assert lengths == [99, 1]


@pytest.mark.parametrize(
    "argument",
    [{"strip_accents": True}, {"split_on_cjk": False}, {"oov_token": "a"}],
)
def test_arguments_that_would_have_no_effect(argument):
    with pytest.raises(ValueError, match="must be .* or left out: `normalizer`"):
        BertTokenizer(VOCABULARY, **argument)
    config = BertTokenizer(VOCABULARY).get_config()  # an earlier version's
    assert not BertTokenizer.from_config({**config, **argument}).strip_accents


def test_fixed_length_and_strings():
    tokenizer = BertTokenizer(VOCABULARY, sequence_length=3)
    assert tokenizer(["a", "a a a a"]).numpy().tolist() == [[7, 0, 0], [7, 7, 7]]
    assert tokenizer("a").numpy().tolist() == [7, 0, 0]
    assert list(BertTokenizer(VOCABULARY, dtype="string")("cafes").numpy()) == [
        b"cafe", b"##s",
    ]  # fmt: skip


def test_what_no_file_could_hold():
    for token in ("x\ny", "x\r"):
        with pytest.raises(ValueError, match="`vocabulary` must have tokens without"):
            BertTokenizer([*VOCABULARY[:5], token, "z"])
    with pytest.raises(ValueError, match="`vocabulary` must not end with an empty"):
        check_lines(["a", ""])
    with pytest.raises(ValueError, match="`vocabulary` must have tokens without"):
        ElmoTokenizer(["<S>", "</S>", "<UNK>", "x\r"])


@pytest.mark.parametrize(
    "given",
    [{"added_tokens": ["<e>"]}, {"normalizer": [{"type": "NFC"}]}],
    ids=lambda given: [*given][0],
)
def test_what_is_done_to_texts_but_not_to_words(given):
    with pytest.raises(ValueError, match=f"`{[*given][0]}` must be left out with `spl"):
        BertTokenizer([*VOCABULARY[:5], "a"], split=False, **given)


def test_private_characters_are_left_out():
    tokens = [*VOCABULARY[:5], "ab"]
    tokenizer = BertTokenizer(tokens, lowercase=True)
    assert tokenizer("a\ue000b\uf8ff").numpy().tolist() == [len(tokens) - 1]


def test_round_trips(tmp_path):
    tokenizer = BertTokenizer(VOCABULARY, lowercase=True)
    tokenizer.save_to_preset(str(tmp_path))
    copy = keras.layers.deserialize(keras.layers.serialize(tokenizer))
    copy.load_preset_assets(str(tmp_path))
    assert copy("Cafés").numpy().tolist() == [5, 6]
    assert copy.get_config() == tokenizer.get_config()


def test_saved_model(tmp_path):
    module = tf.Module()
    module.tokenizer = BertTokenizer(VOCABULARY, lowercase=True)
    module.serve = tf.function(
        lambda x: module.tokenizer(x).to_tensor(),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert loaded.serve(tf.constant(["Cafés"])).numpy().tolist() == [[5, 6]]


@pytest.mark.parametrize(
    "vocabulary, message",
    [(VOCABULARY + ["a"], "twice.*'a' 2"), (VOCABULARY[1:], r"\[PAD\]")],
)
def test_vocabulary_errors(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        BertTokenizer(vocabulary)


def test_word_starts():
    table = word_start_table(BertTokenizer(VOCABULARY))
    assert table == [True] * 6 + [False, True, True]


@pytest.mark.data
def test_squad_questions(data_dir):
    fixtures = data_dir / "fixtures" / "tokenization"
    questions = json.loads((fixtures / "question_tokens.json").read_text())
    expected = json.loads((fixtures / "tokenized_questions.json").read_text())
    path = str(data_dir / "tokenizers" / "bert_uncased" / "vocab.txt")
    tokenizer = BertTokenizer(path, lowercase=True)
    assert tokenizer([q["original"] for q in questions]).to_list() == expected


@pytest.mark.data
@pytest.mark.parametrize(
    "name, lowercase, expected",
    [
        ("bert_uncased", True, [7592, 1010, 2026, 3899, 2003, 10140]),
        ("bert_cased", False, [8667, 117, 1139, 3676, 1110, 10509]),
    ],
)
def test_published_vocabularies(data_dir, name, lowercase, expected):
    path = str(data_dir / "tokenizers" / name / "vocab.txt")
    tokenizer = BertTokenizer(path, lowercase=lowercase)
    assert list(tokenizer("Hello, my dog is cute")) == expected


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_file_has_a_token_in_each_line(tmp_path, start, line_end, end):
    tokens = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "\xa0", "a", "\u2028", "b"]
    path = tmp_path / "vocab.txt"
    text = start + line_end.join(tokens) + end.replace("\n", line_end)
    path.write_bytes(text.encode())
    tokenizer = BertTokenizer(str(path))
    assert list(tokenizer.get_vocabulary()) == tokens
    assert tokenizer(["a b"]).to_list() == [[6, 8]]
