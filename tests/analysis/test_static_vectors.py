"""Static vectors: files in each format, damaged ones, and what is trained."""

import gzip
import struct
import sys

import numpy as np
import pytest

from keras_bertfam.analysis import read_static_vectors, train_static_vectors

pytest.importorskip("gensim")
pytestmark = pytest.mark.any_backend
WORDS = ["the", "café", ". . .", "猫", "\u00a0"]
VECTORS = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")


def glove(words=WORDS, vectors=VECTORS):
    rows = zip(words, vectors.tolist(), strict=True)
    return "".join(f"{w} {' '.join(map(repr, v))}\n" for w, v in rows).encode()


def word2vec():
    return b"5 4\n" + glove()


def binary(words=WORDS[:2] + WORDS[3:]):
    rows = zip(words, VECTORS, strict=False)
    parts = (w.encode() + b" " + v.tobytes() + b"\n" for w, v in rows)
    return f"{len(words)} 4\n".encode() + b"".join(parts)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [glove, word2vec, binary])
def test_each_format(kind, packed, tmp_path):
    path = tmp_path / f"vectors{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(kind()) if packed else kind())
    words = WORDS if kind is not binary else WORDS[:2] + WORDS[3:]
    found = read_static_vectors(path)
    assert found.index_to_key == words
    np.testing.assert_array_equal(found.vectors, VECTORS[: len(words)])
    few = read_static_vectors(str(path), limit=2)
    assert few.index_to_key == words[:2]
    cosines = VECTORS[: len(words)] @ VECTORS[0]
    cosines /= np.linalg.norm(VECTORS[: len(words)], axis=1)
    nearest = 1 + int(cosines[1:].argmax())
    assert found.most_similar("the", topn=1)[0][0] == words[nearest]


def test_the_first_of_equal_words_counts(tmp_path):
    (tmp_path / "twice.txt").write_bytes(glove([*WORDS[:4], "the"]))
    found = read_static_vectors(tmp_path / "twice.txt")
    assert found.index_to_key == WORDS[:4]
    np.testing.assert_array_equal(found["the"], VECTORS[0])


@pytest.mark.parametrize("kind", [glove, word2vec, binary])
def test_words_that_are_cut_within_a_character(kind, tmp_path):
    cut = kind().replace("猫".encode(), "猫".encode()[:2])
    (tmp_path / "cut").write_bytes(cut + b"\n")
    found = read_static_vectors(tmp_path / "cut")
    assert found.index_to_key[2 if kind is binary else 3] == "\ufffd"


def test_fasttext_knows_words_by_their_parts(tmp_path):
    from gensim.models import FastText
    from gensim.models.fasttext import save_facebook_model

    texts = [["a", "cat", "sat"], ["a", "cats", "sits"]] * 5
    model = FastText(texts, vector_size=4, min_count=1, bucket=50, epochs=1, workers=1)
    path = str(tmp_path / "cc.bin")
    save_facebook_model(model, path)
    found = read_static_vectors(path)
    np.testing.assert_allclose(found["catsit"], model.wv["catsit"], atol=1e-6)
    with pytest.raises(ValueError, match="`limit` must be `None`"):
        read_static_vectors(path, limit=2)
    damaged = tmp_path / "damaged.bin"
    damaged.write_bytes((tmp_path / "cc.bin").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"damaged\.bin"):
        read_static_vectors(damaged)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"a text\n",
        b"<html>\n<body>\n",
        b"\x80\x04\x95pickled",
        b"5 4\n",
        word2vec()[:-40],
        binary()[:-10],
        glove() + b"short 1.0\n",
        glove() + b"odd 1 2 x 4\n",
        glove() + b"odd 1 2 nan 4\n",
        struct.pack("<i", 793712314),
    ],
)
def test_what_is_no_such_file(content, tmp_path):
    (tmp_path / "vectors.txt").write_bytes(content)
    with pytest.raises(ValueError, match=r"vectors\.txt"):
        read_static_vectors(tmp_path / "vectors.txt")


@pytest.mark.parametrize(
    "content",
    [glove(), gzip.compress(glove())[:60], gzip.compress(glove())[:-60]],
    ids=["plain", "beginning", "most"],  # gzip writes the time
)
def test_archives_that_are_damaged(content, tmp_path):
    (tmp_path / "vectors.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"vectors\.gz is damaged"):
        read_static_vectors(tmp_path / "vectors.gz")


def test_what_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim", None)
    with pytest.raises(ImportError, match=r"pip install keras-bertfam\[vectors\]"):
        read_static_vectors("vectors.txt")
    with pytest.raises(ImportError, match=r"pip install keras-bertfam\[vectors\]"):
        train_static_vectors(["a cat"])


def test_what_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_static_vectors("https://example.org/vectors.txt")
    (tmp_path / "a.txt").write_bytes(glove())
    with pytest.raises(ValueError, match="`limit` must be an int of at least 1"):
        read_static_vectors(tmp_path / "a.txt", limit=0)
    with pytest.raises(
        ValueError, match="some word at least 5 times.* at most 2 times"
    ):
        train_static_vectors(["a cat a"])
    with pytest.raises(ValueError, match="at most 0 times"):
        train_static_vectors([""])
    for name in ("window", "dim", "num_negatives"):
        with pytest.raises(ValueError, match=f"`{name}`"):
            train_static_vectors(["a cat"], **{name: 0})
    with pytest.raises(ValueError, match="`sentences` must be a list"):
        train_static_vectors("a cat")


def test_trained_vectors():
    rng = np.random.default_rng(0)
    goes_with = {"Tea": ["cup", "hot"], "coffee": ["cup", "hot"], "car": ["road"]}
    rows = [(w, str(rng.choice(goes_with[w]))) for w in rng.choice([*goes_with], 9000)]
    settings = {"dim": 8, "window": 1, "epochs": 20}
    found = train_static_vectors(rows, **settings)
    assert found.similarity("tea", "coffee") > 0.2 + found.similarity("tea", "car")
    again = train_static_vectors(rows, **settings)
    np.testing.assert_array_equal(found.vectors, again.vectors)
    other = train_static_vectors(rows, **settings, seed=1)
    assert np.any(found.vectors != other.vectors)
    assert "Tea" in train_static_vectors(rows, 8, epochs=1, match_case=True)


def test_the_end_of_a_long_text_counts():
    text = ["a", "b"] * 6000 + ["late"] * 6
    once, twice = (train_static_vectors([text], 8, epochs=k)["late"] for k in (1, 2))
    assert np.any(once != twice)
