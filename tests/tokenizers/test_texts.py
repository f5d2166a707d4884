import gzip
import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import read_documents
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.tokenizers.training_texts import read_texts

FIRST = (0x41, 0xC1, 0xC2, 0xDF, *range(0xE0, 0xF0))
OTHERS = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
LOST = "\ufffd".encode()


def all_sorts_of_bytes():
    pairs = itertools.product(range(256), repeat=2)
    triples = itertools.product(FIRST, range(256), OTHERS)
    fours = itertools.product(range(0xF0, 256), range(256), OTHERS, OTHERS)
    return [bytes(x) for x in itertools.chain(pairs, triples, fours)]


def test_bytes_that_are_no_text_are_rewritten():
    strings = all_sorts_of_bytes()
    rewritten = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8").numpy()
    assert np.array_equal(to_utf8(tf.constant(strings)), rewritten)
    assert LOST in rewritten[0xFF] and rewritten[0x4142] == b"AB"
    # Alone, each is judged by itself.
    dataset = tf.data.Dataset.from_tensor_slices(strings[::11]).map(to_utf8)
    assert list(dataset.as_numpy_iterator()) == list(rewritten[::11])


def test_any_shape():
    assert to_utf8("a").numpy() == b"a" and to_utf8(b"a\xff").numpy() == b"a" + LOST
    assert to_utf8(tf.constant([], tf.string)).shape == (0,)
    ragged = tf.ragged.constant([["a"], [], [b"\xff", "é"]])
    assert to_utf8(ragged).to_list() == [[b"a"], [], [LOST, "é".encode()]]


def lines_of(path):
    return [line.decode() for line in read_texts([str(path)]).as_numpy_iterator()]


def test_files_with_a_mark_and_compressed_ones(tmp_path):
    text = "\ufeffa cat\r\nsat \u2028\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.txt", "b.txt.gz"):
        assert lines_of(tmp_path / name) == ["a cat", "sat \u2028"]
        documents = [*read_documents(str(tmp_path / name)).as_numpy_iterator()]
        assert [x.decode() for x in documents] == ["a cat\nsat \u2028"]


@pytest.mark.parametrize("blank", ["", " ", "\t", "\xa0", "\u3000 ", "\u2028"])
def test_lines_of_white_space_stand_between_documents(tmp_path, blank):
    path = tmp_path / "a.txt"
    path.write_text(f"one\ntwo\n{blank}\nthree\n", encoding="utf-8")
    documents = [*read_documents(str(path)).as_numpy_iterator()]
    assert documents == [b"one\ntwo", b"three"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("na\xefve".encode("latin-1"), "has byte 0xef at byte 2"),
        ("text".encode("utf-16"), "begins as UTF-16"),
        (gzip.compress(b"text"), "begins as gzip without"),
        (b"\x28\xb5\x2f\xfdxx", "begins as Zstandard"),
        (b"a one.\rLine two.", "has lines that end with a carriage"),
    ],
    ids=["Latin-1", "UTF-16", "gzip", "Zstandard", "carriage returns"],
)
def test_what_is_no_text_is_refused_by_name(tmp_path, content, problem):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for read in (lines_of, read_documents):
        with pytest.raises(ValueError, match=f"a.txt', which {problem}"):
            read(str(path))


def test_what_only_says_that_it_is_compressed(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"text")
    with pytest.raises(ValueError, match="which isn't gzip"):
        lines_of(tmp_path / "a.gz")


def test_a_character_cut_by_what_is_looked_at(tmp_path):
    text = "a" * (2**16 - 1) + "é"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert lines_of(tmp_path / "a.txt") == [text]


def test_a_file_of_two_patterns_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    patterns = [str(tmp_path / "*.txt"), str(tmp_path / "a*")]
    assert [*read_documents(patterns).as_numpy_iterator()] == [b"one"]
