import json

import numpy as np
import pytest

from keras_bertfam import tasks
from keras_bertfam.retrieval import (
    Index,
    SearchData,
    evaluate_search,
    mine_negatives,
)
from tests import tiny_fine_tuning as tiny

pytest.importorskip("ir_measures")

PASSAGES = {"p1": "a cat sat", "p2": ("the dog", "a dog ran"), "p3": "a tree"}
PASSAGES |= {"q2": "red", "p5": "a cat sat", "p6": " "}  # the first again, and nothing
QUERIES = {"q1": "the cat", "q2": "a dog"}
RELEVANCE = {"q1": {"p1": 2, "p3": 1}, "q2": {"p2": 1, "p1": 0}}
DATA = SearchData(PASSAGES, QUERIES, RELEVANCE)


def fixed(queries, k):
    """A search that is no model's."""
    found = {
        "the cat": [("p2", 9.0), ("p1", 8.0), ("q2", 7.5), ("p3", 7.0)],
        "a dog": [("q2", 5.0), ("p2", 4.0)],
    }
    return [found[query][:k] for query in queries]


def test_measures_by_hand():
    found = evaluate_search(DATA, fixed, measures=["nDCG@3", "nDCG", "RR", "R@2", "AP"])
    ideal = 2 + 1 / np.log2(3)
    first = 2 / np.log2(3)
    assert found["nDCG@3"] == pytest.approx((first / ideal + 1) / 2)
    assert found["nDCG"] == pytest.approx(((first + 1 / np.log2(5)) / ideal + 1) / 2)
    assert found["RR"] == pytest.approx((1 / 2 + 1) / 2)  # a query isn't its own answer
    assert found["R@2"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["AP"] == pytest.approx(((1 / 2 + 2 / 4) / 2 + 1) / 2)
    # That it is found doesn't take the place of another passage.
    assert evaluate_search(DATA, fixed, k=1, measures=["R@1"])["R@1"] == 0.5
    # A query for which nothing is found counts as well.
    one = evaluate_search(DATA, lambda *args: [[("p1", 1.0)], []], measures=["P@1"])
    assert one["P@1"] == 0.5


class Ranker:
    """Prefers short passages, all of which are certain; notes what it was asked."""

    def rank(self, queries, passages, batch_size):
        self.asked = passages
        return [
            sorted(
                ((k, 1.0) for k in range(len(texts))), key=lambda p: len(texts[p[0]])
            )
            for texts in passages
        ]


def test_the_best_are_ranked_again():
    ranker = Ranker()
    names = ["RR", "nDCG@3", "R@4"]
    found = evaluate_search(DATA, fixed, reranker=ranker, rerank=2, measures=names)
    assert ranker.asked == [["the dog a dog ran", "a cat sat"], ["the dog a dog ran"]]
    ideal = 2 + 1 / np.log2(3)
    assert found["RR"] == 1
    assert found["nDCG@3"] == pytest.approx((2 / ideal + 1) / 2)
    assert found["R@4"] == 1  # those behind are there as before


@pytest.mark.slow
@pytest.mark.any_backend
def test_encoders_indices_and_cross_encoders():
    pytest.importorskip("faiss")
    tokenizer = tiny.make_tokenizer()
    backbone = tiny.make_backbone(num_layers=1, initializer_range=1.0)
    embedder = tasks.TextEmbedder(
        backbone, tasks.TextEmbedderPreprocessor(tokenizer, 16)
    )
    found = evaluate_search(DATA, embedder, measures=["nDCG@5", "R@5"])
    assert found["R@5"] == 1
    passages = [text for text in PASSAGES.values() if text != " "]
    index = Index.build(passages, embedder, duplicates="skip")
    same = evaluate_search(DATA, index, measures=["nDCG@5", "R@5"])
    assert same == found
    index.add([index.vectors([0])[0] * 9], ["a mat"])
    with pytest.raises(ValueError, match="must be an index of `data.passages`.*a mat"):
        evaluate_search(DATA, index)
    ranker = tasks.CrossEncoder(backbone, tasks.CrossEncoderPreprocessor(tokenizer, 16))
    again = evaluate_search(DATA, embedder, reranker=ranker, measures=["R@5"])
    assert again["R@5"] == 1


@pytest.mark.slow
@pytest.mark.any_backend
def test_passages_with_blank_parts_and_long_queries():
    pytest.importorskip("faiss")
    backbone = tiny.make_backbone(num_layers=1, initializer_range=1.0)
    preprocessor = tasks.TextEmbedderPreprocessor(tiny.make_tokenizer(), 8)
    embedder = tasks.TextEmbedder(backbone, preprocessor)
    passages = {"1": ("a cat", " "), "2": ("", "a dog"), "3": "a dog", "4": (" ", "")}
    passages |= {"5": "the cat sat"}
    queries = {"a": "the cat " * 9, "b": "a dog"}
    data = SearchData(passages, queries, {"a": {"1": 1, "5": 1}, "b": {"2": 1, "3": 1}})
    with pytest.raises(ValueError, match="must fit into rows of 8 tokens"):
        evaluate_search(data, embedder)
    found = evaluate_search(data, embedder, measures=["R@5"], too_long="cut")
    assert found["R@5"] == 1
    index = Index.build(["a cat", "a dog", "the cat sat"], embedder)
    asked = ([queries["a"], "a dog"], ["the cat sat", "a dog"])
    with pytest.raises(ValueError, match="must fit into rows of 8 tokens"):
        mine_negatives(index, *asked)
    mined = mine_negatives(index, *asked, too_long="cut")
    assert mined[0] == asked[0]
    for name in ("passages", "queries"):
        ids = {"passages": {"1": "a"}, "queries": {"q": "b"}}
        ids[name] = {1: "a"}
        with pytest.raises(ValueError, match=f"`{name}` must have strings as ids"):
            SearchData(**ids, relevance={})


def write(folder, qrels="query-id\tcorpus-id\tscore\nq1\tp1\t2\nq2\tp1\t0\n", **files):
    (folder / "qrels").mkdir()
    rows = [{"_id": "p1", "title": "", "text": "a cat"}]
    rows.append({"_id": "p2", "title": "Dogs", "text": "a dog", "metadata": {}})
    queries = [{"_id": "q1", "text": "who purrs?"}, {"_id": "q2", "text": "who barks?"}]
    for name, lines in {"corpus": rows, "queries": queries, **files}.items():
        text = "\n".join(map(json.dumps, lines)) + "\n"
        (folder / f"{name}.jsonl").write_text(text)
    (folder / "qrels" / "test.tsv").write_text(qrels)


def test_a_folder_of_beir(tmp_path):
    write(tmp_path)
    data = SearchData.from_beir(tmp_path)
    assert data.passages == {"p1": "a cat", "p2": ("Dogs", "a dog")}
    # Without a relevant passage there is nothing to find.
    assert data.queries == {"q1": "who purrs?"} and data.relevance == {"q1": {"p1": 2}}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"qrels": "q1\tp1\t2\n"}, "first line of .*test.tsv must name"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\tp1\n"}, "Line 2 of .*test.tsv"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\tp1\t.5\n"}, "a whole number"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\tp7\t1\n"}, "Received: 'p7'"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq7\tp1\t1\n"}, "Received: 'q7'"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, "at least one query"),
        (
            {"qrels": "query-id\tcorpus-id\tscore\nq1\tp1\t1\nq1\tp1\t0\n"},
            "have one grade",
        ),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\tp1\t--1\n"}, "a whole number"),
        ({"corpus": [{"_id": "p1", "text": "a"}] * 2}, "Received twice: 'p1'"),
        (
            {"corpus": [{"_id": "p1", "text": "a", "title": ["b"]}]},
            "one, title",
        ),
        ({"corpus": [{"_id": "p1"}]}, "Line 1 of .*corpus.jsonl must have the strings"),
        ({"queries": [{"_id": 3, "text": "a"}]}, "Line 1 of .*queries.jsonl"),
    ],
)
def test_damaged_folders(tmp_path, files, message):
    write(tmp_path, **files)
    with pytest.raises(ValueError, match=message):
        SearchData.from_beir(tmp_path)
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(ValueError, match="must have .*corpus.jsonl"):
        SearchData.from_beir(tmp_path)


def test_what_is_refused():
    with pytest.raises(ValueError, match="a grade above 0"):
        SearchData(PASSAGES, QUERIES, {"q1": {"p1": 0}})
    for arguments, message in [
        ({"measures": ["nDCG@ten"]}, "`measures` must be names"),
        ({"k": 0}, "`k` must be"),
        ({"search": lambda queries, k: [[]]}, "Received: 1 for 2"),
        ({"search": lambda queries, k: [[("p9", 1.0)]] * 2}, "Received: 'p9'"),
    ]:
        with pytest.raises(ValueError, match=message):
            evaluate_search(**{"data": DATA, "search": fixed, **arguments})


@pytest.mark.parametrize(
    ("passages", "grade", "message"),
    [
        ({"a": 3}, 1, "`passages` must be strings.* 3, for 'a'"),
        ({"a": "x"}, 0.5, "ints as grades.* 0.5, for the query 'q'"),
    ],
)
def test_what_data_must_be(passages, grade, message):
    with pytest.raises(ValueError, match=message):
        SearchData(passages, {"q": "y"}, {"q": {"a": grade}})


def test_a_passage_counts_once():
    data = SearchData({"a": "x"}, {"q": "y"}, {"q": {"a": 1}})
    with pytest.raises(ValueError, match="each passage once.* 'q'"):
        evaluate_search(data, lambda queries, k: [[("a", 2.0), ("a", -1.0)]])


def scored(*pairs):
    return lambda queries, k: [list(pairs), [("p2", 1.0)]]


@pytest.mark.parametrize("scores", [(1e9 + 1, 1e9), (1.00000001, 1.0), (1.0, 1.0)])
def test_every_measure_has_the_same_order(scores):
    """`ir_measures` asks several libraries, some of which compute in 32 bits."""
    measures = ["RR", "RR@10", "AP", "P@1", "nDCG@1"]
    for best, other in (("p1", "q2"), ("q2", "p1")):
        data = SearchData(PASSAGES, QUERIES, {"q1": {best: 1}, "q2": {"p2": 1}})
        search = scored((best, scores[0]), (other, scores[1]))
        first = scores[0] > scores[1] or best == "q2"  # of equal ones the last id
        found = evaluate_search(data, search, measures=measures)
        right = 0.75 if not first else 1.0
        assert found["RR"] == found["RR@10"] == found["AP"] == right
        assert found["P@1"] == found["nDCG@1"] == (1.0 if first else 0.5)


def test_only_k_passages_count():
    data = SearchData({"p1": "a", "p2": "b"}, {"q1": "c"}, {"q1": {"p2": 1}})
    found = [("p1", 3.0), ("p2", 2.0)]
    assert evaluate_search(data, lambda *_: [found], k=1, measures=["R@1", "AP"]) == {
        "R@1": 0.0,
        "AP": 0.0,
    }
    with pytest.raises(ValueError, match="`k` must be at least 100.*Received: k=99"):
        evaluate_search(data, lambda *_: [found], k=99, measures=["R@100", "AP"])


def test_what_search_and_measures_must_be():
    with pytest.raises(ValueError, match="Received NaN for 'q1'"):
        evaluate_search(DATA, scored(("p1", float("nan"))))
    with pytest.raises(ValueError, match="`measures` must have at least one"):
        evaluate_search(DATA, fixed, measures=[])
