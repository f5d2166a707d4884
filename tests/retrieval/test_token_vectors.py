import json

import numpy as np
import pytest

from keras_bertfam.presets import CheckpointError
from keras_bertfam.retrieval import Index, SearchData, evaluate_search, mine_negatives
from keras_bertfam.retrieval.token_vectors import best_matches
from keras_bertfam.tasks import PassageSearch
from tests import tiny_late_interaction as tiny

pytest.importorskip("faiss")
QUERY = np.array([[1, 0], [0.6, 0.8]])
PASSAGE = np.array([[0.8, 0.6], [0, 1], [-1, 0]])


def texts_of_vectors(count, seed, longest=6):
    rng = np.random.default_rng(seed)
    return [
        rng.normal(size=(rng.integers(1, longest + 1), 4)).astype("float32")
        for _ in range(count)
    ]


def test_best_matches():
    np.testing.assert_allclose(best_matches([QUERY], [PASSAGE]), [[1.76]])
    queries, passages = texts_of_vectors(5, 0), texts_of_vectors(9, 1)
    expected = [[(q @ p.T).max(1).sum() for p in passages] for q in queries]
    np.testing.assert_allclose(best_matches(queries, passages), expected, rtol=1e-5)
    assert best_matches(queries, []).shape == (5, 0)
    # Texts without tokens, in any place.
    none = np.zeros((0, 4), "float32")
    found = best_matches(
        [none, *queries], [none, passages[0], none, none, passages[1], none]
    )
    np.testing.assert_array_equal(found[1:, [0, 2, 3, 5]], -np.inf)
    np.testing.assert_allclose(found[1:, [1, 4]], np.array(expected)[:, :2], rtol=1e-5)
    np.testing.assert_array_equal(found[0, [1, 4]], 0)


@pytest.mark.parametrize("kind", ["exact", "ivf", "hnsw"])
def test_search(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_bertfam.retrieval.token_vectors._TOKENS", 50)
    monkeypatch.setattr("keras_bertfam.retrieval.token_vectors._QUERIES", 3)
    passages, queries = texts_of_vectors(60, 0), texts_of_vectors(8, 1)
    settings = {} if kind == "exact" else {"token_hits": 500}
    index = Index(4, kind, token_vectors=True, **settings)
    names = [f"passage {number}" for number in range(60)]
    index.add(passages[:40], names[:40])
    assert index.add(passages[40:], names[40:]).tolist() == [*range(40, 60)]
    scores, ids = index.search(queries, 60)
    expected = best_matches(queries, passages)
    order = np.argsort(-expected, axis=1, kind="stable")
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(
        scores, np.take_along_axis(expected, order, 1), rtol=1e-5
    )
    index.save(tmp_path / "index")
    again = Index.load(tmp_path / "index")
    assert again.token_vectors and again.settings == index.settings
    np.testing.assert_array_equal(again.search(queries, 5)[1], order[:, :5])
    for found, number in zip(again.vectors([3, 59]), (3, 59), strict=True):
        np.testing.assert_array_equal(found, passages[number])
    if kind != "exact":  # few of many: those that have the nearest tokens
        few = Index(4, kind, token_vectors=True, token_hits=1)
        few.add(passages, names)
        scores, ids = few.search(queries[:1], 30)
        found = ids[0][ids[0] >= 0]
        nearest = [
            max(range(60), key=lambda k: (passages[k] @ t).max()) for t in queries[0]
        ]
        assert {*found} == {*nearest} and np.isneginf(scores[0, len(found) :]).all()


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_fewer_bits(kind, tmp_path):
    passages, queries = texts_of_vectors(60, 0), texts_of_vectors(8, 1)
    settings = {} if kind == "exact" else {"token_hits": 500}
    index = Index(4, kind, token_vectors=True, bits=8, **settings)
    index.add(passages, [f"passage {number}" for number in range(60)])
    stored = index.vectors(range(60))
    scores, ids = index.search(queries, 60)
    expected = best_matches(queries, stored)
    order = np.argsort(-expected, axis=1, kind="stable")
    np.testing.assert_allclose(
        scores, np.take_along_axis(expected, order, 1), rtol=1e-5
    )
    for one, other in zip(stored, passages, strict=True):
        np.testing.assert_allclose(one, other, atol=0.03)
    index.save(tmp_path / "index")
    again = Index.load(tmp_path / "index")
    np.testing.assert_array_equal(again.search(queries, 60)[0], scores)


def test_errors():
    index = Index(2, token_vectors=True)
    with pytest.raises(ValueError, match=r"a token or more.*\(0, 2\), for text 1"):
        index.add([PASSAGE, np.zeros((0, 2))], ["a", "b"])
    with pytest.raises(ValueError, match="equally many. Received: 1 and 2"):
        index.add([PASSAGE], ["a", "b"])
    with pytest.raises(ValueError, match=r"a list of an array.*\(3, 1\), for text 0"):
        index.add([PASSAGE[:, :1]], ["a"])
    with pytest.raises(ValueError, match=r"a list of an array.*\(2,\), for text 0"):
        index.search(PASSAGE[:1], 1)
    with pytest.raises(ValueError, match="must fit the encoder's vectors"):
        Index(6, encoder=tiny.make_model(compiled=False))
    assert len(index) == 0
    with pytest.raises(ValueError, match="mustn't be 'inverted'"):
        Index(2, "inverted", token_vectors=True)
    with pytest.raises(ValueError, match="token_hits"):
        Index(2, "ivf", token_hits=3)
    with pytest.raises(ValueError, match="token_hits"):
        Index(2, token_vectors=True, token_hits=3)


def test_a_damaged_index_is_refused(tmp_path):
    index = Index(2, token_vectors=True)
    index.add([PASSAGE, QUERY], ["a", "b"])
    folder = tmp_path / "index"
    index.save(folder)
    manifest = json.loads((folder / "manifest.json").read_text())

    def forge(content):
        import hashlib

        (folder / "tokens.npy").write_bytes(content)
        facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        files = {**manifest["files"], "tokens.npy": facts}
        (folder / "manifest.json").write_text(json.dumps({**manifest, "files": files}))

    def saved(array):
        np.save(tmp_path / "a.npy", array, allow_pickle=True)
        return (tmp_path / "a.npy").read_bytes()

    for sizes in ([3, 3], [5], [6, -1], [0, 5], [[3, 2]], [2.5, 2.5], [2**62, 2**62]):
        forge(saved(np.array(sizes)))
        with pytest.raises(CheckpointError, match="tokens.npy|as many vectors"):
            Index.load(folder)
    for content in (b"", b"odd", saved(np.array(["a", None], object))):
        forge(content)
        with pytest.raises(CheckpointError, match="must be an array"):
            Index.load(folder)
    forge(saved(np.array([3, 2])))
    assert len(Index.load(folder)) == 2
    (folder / "tokens.npy").write_bytes(saved(np.array([2, 3])))
    with pytest.raises(CheckpointError, match="must be the file"):
        Index.load(folder)


@pytest.mark.slow
@pytest.mark.any_backend
def test_of_a_model(tmp_path):
    pytest.importorskip("ir_measures")
    model = tiny.make_model(compiled=False)
    passages = [
        "the cat sat on the mat",
        "a dog",
        ("red", "a hat and a blue mat"),
        "tree",
    ]
    index = Index.build(passages, model, batch_size=2)
    assert index.token_vectors and len(index) == 4
    found = index.find(["the cat", "a red mat"], 4)
    for row, query in zip(found, ["the cat", "a red mat"], strict=True):
        ranked = model.rank(query, passages)
        assert [hit.id for hit in row] == [place for place, _ in ranked]
    index.save(tmp_path / "index")
    assert Index.load(tmp_path / "index", model).find(["the cat"], 2) == [found[0][:2]]
    with pytest.raises(ValueError, match="must have one vector for each text"):
        PassageSearch(model, index)
    titled = SearchData({"1": passages[2], "2": "red"}, {"a": "hat"}, {"a": {"1": 1}})
    asked = []

    class Ranker:
        encode = None

        def rank(self, queries, texts, batch_size):
            asked.extend(texts)
            return model.rank(queries, texts, batch_size=batch_size)

    evaluate_search(titled, model, reranker=Ranker())
    assert {*asked[0]} == {passages[2], "red"}  # with its title apart
    data = SearchData(
        {"1": passages[0], "2": "a dog"},
        {"a": "the cat", "b": "dog"},
        {"a": {"1": 1}, "b": {"2": 1}},
    )
    alone = evaluate_search(data, model)
    assert evaluate_search(data, model, reranker=model) == alone
    rows = mine_negatives(index, ["the cat"], [passages[0]], depth=4)
    assert rows[2][0] in ("a dog", "red a hat and a blue mat", "tree")
    with pytest.raises(ValueError, match="must have 1 negatives"):
        mine_negatives(index, ["the cat"], [passages[0]], depth=4, margin=99)
