import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.text_files.reading import WHITE_SPACE
from keras_bertfam.tokenizers import ElmoTokenizer, train_words

WORDS = ["<S>", "</S>", "<UNK>", "Ada", "wrote", "."]


def characters(word, size=8):
    """As bilm-tf makes them."""
    inner = {"<S>": [256], "</S>": [257]}.get(word, [*word.encode()][: size - 2])
    row = [258, *inner, 259]
    return [code + 1 for code in [*row, *[260] * (size - len(row))]]


def test_words_ids_and_characters(tmp_path):
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    tokenizer = ElmoTokenizer(tmp_path / "words.txt", max_characters=8)
    texts = ["<S> Ada wrote. </S>", "", "Ada's naïveté 中国"]
    words = tokenizer.split_words(texts)
    expected = ["<S> Ada wrote . </S>".split(), [], "Ada ' s naïveté 中 国".split()]
    assert [[w.decode() for w in row] for row in words.to_list()] == expected
    assert tokenizer.ids(words).to_list() == [[0, 3, 4, 5, 1], [], [3, 2, 2, 2, 2, 2]]
    found = tokenizer.characters(words.to_tensor()).numpy()
    for row, given in zip(found, expected, strict=True):
        for ids, word in zip(row[: len(given)], given, strict=True):
            assert ids.tolist() == characters(word)
        assert not row[len(given) :].any()
    spaces = ElmoTokenizer(split="spaces")
    assert spaces.split_words(["Ada wrote."]).to_list() == [[b"Ada", b"wrote."]]


def test_saving(tmp_path):
    tokenizer = ElmoTokenizer(WORDS, max_characters=9)
    tokenizer.save_assets(tmp_path)
    again = ElmoTokenizer.from_config(tokenizer.get_config())
    again.load_assets(tmp_path)
    assert again.get_vocabulary() == WORDS and again.max_characters == 9
    assert again.end_token_id == 1


def test_long_words():
    words = tf.constant(["abcdef", "abcdefg"])
    cut = ElmoTokenizer(max_characters=8).characters(words).numpy()
    np.testing.assert_array_equal(cut[0], cut[1])
    strict = ElmoTokenizer(max_characters=8, long_words="error")
    assert strict.characters(words[:1]).shape == (1, 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 6 bytes"):
        strict.characters(words)


@pytest.mark.slow
def test_training():
    texts = tf.data.Dataset.from_tensor_slices(["b a b.", "c b a", "<S> <S>"])
    tokenizer = train_words(texts, 6)
    assert tokenizer.get_vocabulary() == ["<S>", "</S>", "<UNK>", "b", "a", "."]
    with pytest.raises(ValueError, match="`vocabulary_size` must be at least 4"):
        train_words(texts, 3)
    with pytest.raises(ValueError, match="`documents` must have words"):
        train_words(tf.data.Dataset.from_tensor_slices([" "]))


def test_errors():
    with pytest.raises(ValueError, match="Missing: </S>"):
        ElmoTokenizer(["<S>", "<UNK>"])
    with pytest.raises(ValueError, match="not have a word twice.*Received: 'Ada'"):
        ElmoTokenizer([*WORDS, "Ada"])
    with pytest.raises(ValueError, match="or an empty word.*Received: ''"):
        ElmoTokenizer([*WORDS, ""])
    with pytest.raises(ValueError, match="`max_characters` must be at least 3"):
        ElmoTokenizer(max_characters=2)
    with pytest.raises(ValueError, match="`long_words` must be one of"):
        ElmoTokenizer(long_words="drop")


@pytest.mark.parametrize("space", WHITE_SPACE)
def test_all_white_space_parts_words(space):
    for split in ("words", "spaces"):
        words = ElmoTokenizer(split=split).split_words([f"a{space}b {space}", space])
        assert words.to_list() == [[b"a", b"b"], []]


@pytest.mark.parametrize("split", ["words", "spaces"])
def test_no_word_is_of_what_is_not_seen(split):
    unseen = ["\u200b", "\ufeff", "\u2028", "\x01\xad", "\xa0", "\u200d"]
    texts = tf.data.Dataset.from_tensor_slices([f"a {x} {x}" for x in unseen])
    assert train_words(texts, 99, split=split).get_vocabulary()[3:] == ["a"]
