import random
import warnings

import keras_hub
import pytest
import tensorflow as tf

from keras_bertfam.corpus import python_documentation
from keras_bertfam.layers import train_word_piece
from keras_bertfam.tokenizers.learning import learn_word_pieces
from keras_bertfam.tokenizers.steps import clean_texts
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.tokenizers.word_piece import SPECIAL_TOKENS

TEXTS = [
    "The quick sailors' cafe\u0301 was open; the unopened café #1 re-opened!\n",
    "Кошка сидела на ковре, кошки сидели.\u00a0Η γάτα κάθεται, οι γάτες κάθονται.",
    "吾輩は猫である。名前はまだ無い。 學而時習之，不亦說乎。",
    "$a^b~c|{d}`e\u2028f\u200bg\u00adh\x00i \U00020000\U0002ebf0\U0002f800\U0001f600x",
    "",
]


def as_keras_hub_learns(texts, size, lowercase):
    documents = tf.data.Dataset.from_tensor_slices(texts)
    return keras_hub.tokenizers.compute_word_piece_vocabulary(
        documents.map(lambda text: clean_texts(to_utf8(text), lowercase)),
        size,
        reserved_tokens=[*SPECIAL_TOKENS],
    )


def check_same(texts, size, lowercase=True):
    documents = tf.data.Dataset.from_tensor_slices(texts)
    tokenizer = train_word_piece(documents, size, lowercase, min_frequency=10)
    tokens = tokenizer.get_vocabulary()
    assert tokens == as_keras_hub_learns(texts, size, lowercase)
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize(("size", "lowercase"), [(1000, True), (1000, False)])
def test_learns_what_keras_hub_learns(size, lowercase):
    texts = [text.encode() for text in TEXTS] * 15 + [TEXTS[0].encode()] * 70
    tokens = check_same([*texts, b"\xff broken \xe2\x82"] * 2, size, lowercase)
    assert len(tokens) <= size and ("γατα" if lowercase else "γάτα") in tokens


@pytest.mark.parametrize("least", [1, 2, 3, 4, 9])
def test_no_token_is_rarer_than_asked_for(least):
    counts = {"alpha": 4, "gamma": 3, "delta": 2, "beta": 1}
    texts = [word for word, count in counts.items() for _ in range(count)]
    documents = tf.data.Dataset.from_tensor_slices(texts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are fewer
        tokens = train_word_piece(documents, 90, min_frequency=least).get_vocabulary()
    assert {*tokens} & {*counts} == {w for w, count in counts.items() if count >= least}


@pytest.mark.slow
def test_limits():
    """As many characters as the text is made of, and words of at most 50."""
    many = [chr(0x4E00 + number) for number in range(1100)]
    texts = ["".join(many), f"{'a' * 51} {'b' * 50}", " ".join(many[:-1]) * 20] * 6
    documents = tf.data.Dataset.from_tensor_slices(texts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are fewer
        tokens = {*train_word_piece(documents, 5000).get_vocabulary()}
    assert tokens.isdisjoint("a") and {*"b", *many[:-1]} <= tokens
    assert many[-1] not in tokens  # 6 of 138,624
    with pytest.raises(ValueError, match="one word of at most 50 .*Received: none."):
        train_word_piece(tf.data.Dataset.from_tensor_slices(["a" * 51]), 30)


def test_a_vocabulary_that_is_smaller_than_the_characters():
    words = ["abcdefghij", "klmnopqrst", "uvwxyz", *["the"] * 20, "zyx"]
    documents = tf.data.Dataset.from_tensor_slices([" ".join(words)] * 2)
    with pytest.warns(UserWarning, match="has room for 18 of the 26 characters"):
        tokenizer = train_word_piece(documents, 40)
    tokens = {*tokenizer.get_vocabulary()}
    assert len(tokens) <= 40
    # "h" and "e" are inside of words, "a" only begins one.
    assert {*"the", "##h", "##e", "a"} <= tokens and "##a" not in tokens


def test_many_rare_characters_leave_room_for_words():
    rare = [chr(number) for number in range(0x1400, 0x1400 + 1000)]
    counts = {f"{c}{d}": 1 for c, d in zip(rare, rare[::-1], strict=True)}
    words = [f"word{number}" for number in range(300)]
    counts |= {"the": 9_000_000} | dict.fromkeys(words, 9000)
    tokens = {*learn_word_pieces(counts, 900, SPECIAL_TOKENS, 1)}
    assert len(tokens) <= 900 and {"the", "word7"} <= tokens
    found = tokens & {*rare, *(f"##{c}" for c in rare)}
    assert 400 < len(found) < 450
    # What only begins words, as signs do, has one token.
    signs = {chr(number): 50 for number in range(0x4E00, 0x4E00 + 700)}
    tokens = learn_word_pieces(signs, 800, SPECIAL_TOKENS, 1)
    assert {*signs} <= {*tokens} and not any(t.startswith("##") for t in tokens)
    inside = {f"{sign}{sign}": 50 for sign in [*signs][:300]}
    tokens = learn_word_pieces(inside, 800, SPECIAL_TOKENS, 1)
    assert {f"##{sign[0]}" for sign in inside} <= {*tokens}


def test_single_characters_are_kept_where_others_are_cut():
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghij", k=6)) for _ in range(400)]
    tokens = learn_word_pieces(dict.fromkeys(words, 3), 100, SPECIAL_TOKENS, 2)
    assert len(tokens) == 100
    assert {*"abcdefghij", *(f"##{c}" for c in "abcdefghij")} <= {*tokens}


def test_frequencies():
    """As if a text were too long to be here."""
    counts = {"walking": 30_000_000, "walked": 20, "talking": 12, "talk": 9}
    tokens = learn_word_pieces(counts, 60, SPECIAL_TOKENS, min_frequency=10)
    assert tokens[:6] == [*SPECIAL_TOKENS, "a"]
    assert tokens.index("walking") < tokens.index("walked") < len(tokens)
    assert "talk" not in tokens


@pytest.mark.slow
def test_as_many_tokens_as_are_asked_for():
    texts = python_documentation()[::20]
    documents = tf.data.Dataset.from_tensor_slices(texts)
    for size in (300, 400, 550):
        found = train_word_piece(documents, size).vocabulary_size()
        assert 0.9 * size <= found <= size
    with pytest.warns(UserWarning, match="occur 2 times or more, for a vocabulary of"):
        train_word_piece(documents, 100_000)
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match="`min_frequency` must be an? .*int"):
            train_word_piece(documents, 300, min_frequency=wrong)


@pytest.mark.slow
def test_learns_what_keras_hub_learns_of_prose():
    check_same(python_documentation()[::4], 2000)
