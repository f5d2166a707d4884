import numpy as np
import pytest
from sklearn.decomposition import PCA

from keras_bertfam.analysis import embed_words, word_vectors
from keras_bertfam.analysis.occurrences import WordVectors
from keras_bertfam.analysis.word_states import words_of
from tests import tiny_fine_tuning as tiny

SENTENCES = ["the cat sat", ["a", "dog"], "a cat and the cat", "mat"]


@pytest.fixture(scope="module")
def backbone():
    return tiny.make_backbone()


def known():
    """Two senses of `play`, in two directions."""
    vectors = np.array([[1, 0.1], [0, 2], [3, 0], [0, 1], [1, 1]], "float32")
    texts = [f"s{k} play end".split() for k in range(4)] + [["other"]]
    places = np.array([*((k, 1) for k in range(4)), (4, 0)])
    return WordVectors([*["play"] * 4, "other"], vectors, texts, places)


@pytest.mark.slow
@pytest.mark.any_backend
def test_vectors_are_those_of_the_sentences(backbone):
    arguments = {"layers": (-2, -1), "combine": "sum", "pool": "first"}
    arguments["tokenizer"] = tiny.make_tokenizer()
    found = word_vectors(backbone, SENTENCES, ["cat", "dog"], **arguments)
    assert found.words == ["cat", "dog", "cat", "cat"]
    assert found.places.tolist() == [[0, 1], [1, 1], [2, 1], [2, 4]]
    all_of_them = [
        vectors for _, vectors in embed_words(backbone, SENTENCES, **arguments)
    ]
    for vector, (row, place) in zip(found.vectors, found.places, strict=True):
        np.testing.assert_allclose(vector, all_of_them[row][place], atol=1e-5)
    static = found.static_vectors()
    assert list(static) == ["cat", "dog"]
    np.testing.assert_allclose(
        static["cat"], found.vectors[[0, 2, 3]].mean(0), atol=1e-6
    )
    assert found.context(3) == "a cat and the [cat]"
    assert len(word_vectors(backbone, SENTENCES, **arguments)) == 11
    with pytest.warns(UserWarning, match="in the sentences: 'hen'"):
        assert len(word_vectors(backbone, SENTENCES, ["hen"], **arguments)) == 0


@pytest.mark.any_backend
def test_words_beside_punctuation_and_in_other_cases(backbone):
    texts = ["a cat.", "(cat) sat", "Cat, the cat-like", "the cat's mat", "“cat”"]
    tokenizer = tiny.make_tokenizer()
    found = word_vectors(backbone, texts, ["cat"], tokenizer=tokenizer)
    assert found.words == ["cat", "cat", "Cat", "cat"]
    assert found.context(0) == "a [cat] ." and found.context(3) == "“ [cat] ”"
    assert len(found.nearest_contexts("cat", 2)) == 3
    strict = word_vectors(
        backbone, texts, ["cat"], match_case=True, tokenizer=tokenizer
    )
    assert strict.words == ["cat", "cat", "cat"]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 3-fold; no.", ["It's", "3-fold", ";", "no", "."]),
        ("हिन्दी में।", ["हिन्दी", "में", "।"]),
        ("a_b  £5 …", ["a_b", "£", "5", "…"]),
        ("", []),
    ],
)
def test_one_splitting(text, words):
    assert words_of([text, ["a.", "b"]]) == [words, ["a.", "b"]]


@pytest.mark.any_backend
def test_nearest_contexts():
    found = known()
    nearest = found.nearest_contexts("play", count=2)
    assert [text for _, text in nearest] == ["s2 [play] end", "[other]"]
    assert nearest[0][0] == pytest.approx(1 / np.hypot(1, 0.1))
    assert found.nearest_contexts("play", 1)[0] == (pytest.approx(1), "s3 [play] end")
    assert len(found.nearest_contexts("play", 1, count=9)) == 4
    with pytest.raises(ValueError, match="`word` must be one that occurs.*'hen'"):
        found.nearest_contexts("hen")
    with pytest.raises(ValueError, match="`occurrence` must be from 0 to 3"):
        found.nearest_contexts("play", 4)


@pytest.mark.any_backend
def test_projection_is_that_of_scikit_learn(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(20, 6)).astype("float32")
    places = np.array([[k, 0] for k in range(20)])
    texts = [[f"$w{k % 3}"] for k in range(20)]
    found = WordVectors([word for [word] in texts], vectors, texts, places)
    points, theirs = found.projection(), PCA(2).fit_transform(vectors)
    signs = np.sign((points * theirs).sum(0))
    np.testing.assert_allclose(points, theirs * signs, atol=1e-4)
    found.plot(tmp_path / "words.png")
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.any_backend
def test_few_occurrences():
    one = WordVectors(["a"], np.ones((1, 3), "float32"), [["a"]], np.array([[0, 0]]))
    assert one.projection().tolist() == [[0, 0]] and one.nearest_contexts("a") == []
    none = WordVectors([], np.zeros((0, 0), "float32"), [], np.zeros((0, 2), int))
    assert none.static_vectors() == {}
    with pytest.raises(ValueError, match="`plot` needs"):
        none.plot()


@pytest.mark.any_backend
def test_words_are_a_list(backbone):
    with pytest.raises(ValueError, match="`words` must be several strings.*'cat'"):
        word_vectors(backbone, SENTENCES, "cat", tokenizer=tiny.make_tokenizer())
