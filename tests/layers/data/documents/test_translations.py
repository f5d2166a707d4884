"""Texts with their languages: how they are joined, read and taken apart."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import mark_languages, read_translations, train_word_piece
from keras_bertfam.layers.data.documents.translations import split_languages
from keras_bertfam.tokenizers.counting import count_tokens
from keras_bertfam.tokenizers.texts import without_languages


def decoded(values):
    return [value.decode() for value in np.asarray(values).tolist()]


def taken_apart(documents):
    texts, languages, document = split_languages(tf.constant(documents))
    return [*zip(decoded(texts), decoded(languages), document.numpy(), strict=True)]


def test_texts_and_their_languages_are_taken_apart():
    pair = mark_languages({"en": ["a cat", ""], "de": ["eine\x1eKatze", "Hund"]})
    alone = mark_languages({"is": "\0köttur"})  # a piece of a document
    assert alone.numpy()[:1] == b"\0"
    assert taken_apart([*pair.numpy(), alone.numpy(), "none", ""]) == [
        ("a cat", "en", 0),
        ("eine Katze", "de", 0),
        ("", "en", 1),
        ("Hund", "de", 1),
        (" köttur", "is", 2),
        ("none", "", 3),
        ("", "", 4),
    ]


def test_marks_in_plain_texts_are_no_languages():
    """Only what begins with a language has one; all else is kept whole."""
    plain = ["first\x1esecond\x1ethird", "a\x1eb", "\0c\x1ed\x1ee", "\x1ef"]
    assert decoded(without_languages(tf.constant(plain))) == plain
    spaced = [text.replace("\x1e", " ") for text in plain]
    found = taken_apart(plain)
    assert found == [(text, "", number) for number, text in enumerate(spaced)]
    marked = mark_languages({"en": "a", "de": "b"}).numpy().decode()
    both = decoded(without_languages(tf.constant([marked, plain[0]])))
    assert both == ["a\n\nb", plain[0]]


def test_carriage_returns_end_no_lines_between_line_feeds(tmp_path):
    (tmp_path / "a.de").write_bytes(b"eins\nzwei \r halb\ndrei\nvier\n")
    (tmp_path / "a.is").write_bytes(b"einn\ntveir\n\rthrir\nfjo \r rir\n")
    files = {"de": f"{tmp_path}/a.de", "is": f"{tmp_path}/a.is"}
    found = taken_apart([*read_translations(files).as_numpy_iterator()])
    assert [text.split()[0] for text, _, _ in found] == (
        "eins einn zwei tveir drei thrir vier fjo".split()
    )


def test_as_many_files_are_compared_one_by_one(tmp_path):
    for name, text in (("a.de", "1\n2\n"), ("b.de", "3\n"), ("a.is", "1\n"),
                       ("b.is", "2\n3\n")):  # fmt: skip
        (tmp_path / name).write_text(text)
    files = {name: f"{tmp_path}/*.{name}" for name in ("de", "is")}
    with pytest.raises(tf.errors.InvalidArgumentError, match="1 in .*a.is', fewer"):
        list(read_translations(files))


def test_lines_of_two_files(tmp_path):
    """Those with a blank counterpart are left out, as line ends of any system are."""
    (tmp_path / "a.de").write_bytes(b"eins\r\n\r\n zwei \r\ndrei")
    (tmp_path / "b.de").write_bytes(b"vier\n")
    (tmp_path / "all.is").write_bytes("einn\nautt\ntveir\n\nfjórir\n".encode())
    files = {"de": f"{tmp_path}/*.de", "is": [f"{tmp_path}/all.is"]}
    found = taken_apart([*read_translations(files).as_numpy_iterator()])
    assert found == [
        ("eins", "de", 0),
        ("einn", "is", 0),
        ("zwei", "de", 1),
        ("tveir", "is", 1),
        ("vier", "de", 2),
        ("fjórir", "is", 2),
    ]
    (tmp_path / "all.is").write_bytes(b"einn\nautt\ntveir\n")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="files of 'is' must have as many lines"
    ):
        list(read_translations(files))


def test_languages_are_no_part_of_what_is_learned():
    texts = {"xq": ["a cat", "a cat"], "yq": ["ein tier", "ein tier"]}
    documents = tf.data.Dataset.from_tensor_slices(mark_languages(texts))
    tokenizer = train_word_piece(documents, 100)
    vocabulary = tokenizer.get_vocabulary()
    assert {"cat", "tier"} <= {*vocabulary}
    assert not any("q" in token for token in vocabulary)
    counts = count_tokens(tokenizer, documents)
    assert counts[vocabulary.index("tier")] == counts[vocabulary.index("cat")] == 2
    assert counts.sum() == 8


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (mark_languages, {}, "`texts` must have names of languages"),
        (mark_languages, {"": ["a"]}, "`texts` must have names of languages"),
        (mark_languages, {"a\x1e": ["a"]}, "`texts` must have names of languages"),
        (mark_languages, ["a"], "`texts` must have names of languages"),
        (mark_languages, dict.fromkeys("abc", ["a"]), "one language, or of two"),
        (read_translations, {"de": "x"}, "`files` must be of two languages"),
        (read_translations, "x", "`files` must have names of languages"),
    ],
)
def test_errors(function, given, message):
    with pytest.raises(ValueError, match=message):
        function(given)
