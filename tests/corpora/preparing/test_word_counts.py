import collections
import tempfile

import pytest
import tensorflow as tf

from keras_bertfam import tokenizers
from keras_bertfam.corpora.preparing import word_counts
from keras_bertfam.corpora.preparing.word_counts import count_words
from keras_bertfam.corpus import python_documentation
from tests.written_files import write

pytest.importorskip("apache_beam")
TEXTS = [" ".join(text.split()) for text in python_documentation()[:20]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    return write(folder, {f"{k}.txt": "\n\n".join(TEXTS[k::3]) for k in range(3)})


def test_words_are_counted(folder):
    counts = count_words(folder / "*.txt")
    expected = collections.Counter(word for text in TEXTS for word in text.split())
    assert counts == expected
    assert [*counts] == sorted(counts, key=lambda word: (-counts[word], word))
    few = count_words(folder / "*.txt", max_words=64)
    assert len(few) == 64
    assert few.items() <= counts.items()
    assert few["the"] == counts["the"]


def test_long_words_are_cut_and_errors_are_placed(folder, monkeypatch):
    write(folder / "more", {"a.txt": f"猫が{'が' * 30} が", "b.txt": b"\xe9"})
    monkeypatch.setattr(word_counts, "_LONGEST", 10)
    counts = count_words(folder / "more/a.txt")
    assert counts == {"が" * 10: 2, "猫が" + "が" * 8: 1, "が": 1, "がが": 1}
    with pytest.raises(ValueError, match=r"b.txt must be text in UTF-8, .* at byte 0"):
        count_words(folder / "more/*.txt")
    with pytest.raises(ValueError, match="`max_words` must be at least 1"):
        count_words(folder / "*.txt", max_words=0)


@pytest.mark.slow
def test_vocabularies_of_counts_are_those_of_the_text():
    counts = collections.Counter(word for text in TEXTS for word in text.split())
    documents = tf.data.Dataset.from_tensor_slices(TEXTS)
    for train in (
        lambda data: tokenizers.train_word_piece(data, 500),
        lambda data: tokenizers.train_sentence_piece(data, 300, "bpe", "xlnet"),
        lambda data: tokenizers.train_byte_pair(data, 500, family="gpt"),
    ):
        of_text, of_counts = train(documents), train({**counts})
        assert {*of_text.get_vocabulary()} == {*of_counts.get_vocabulary()}
    # The first pieces of a unigram model are of all words alike, however frequent.
    of_text, of_counts = (
        {*tokenizers.train_sentence_piece(data, 300).get_vocabulary()}
        for data in (documents, {**counts})
    )
    assert len(of_text & of_counts) > 200
    for wrong, error in (({"a": 0}, ValueError), ({1: 2}, TypeError)):
        with pytest.raises(error, match="`documents`, if a dict, must"):
            tokenizers.train_word_piece(wrong, 500)


def test_workers_meet_in_the_given_folder(folder, tmp_path, monkeypatch):
    made = []

    class Noted(tempfile.TemporaryDirectory):
        def __enter__(self):
            made.append(super().__enter__())
            return made[-1]

    monkeypatch.setattr(tempfile, "TemporaryDirectory", Noted)
    counts = count_words(folder / "*.txt", working_folder=tmp_path)
    assert counts == count_words(folder / "*.txt")
    assert made[0].startswith(str(tmp_path)) and not any(tmp_path.iterdir())
