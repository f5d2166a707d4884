"""Tables that are more than runs of pre-training: requests, kills, tiny runs."""

import dataclasses
import json
import os
import re
import types

import numpy as np
import pytest
from typer.testing import CliRunner

from keras_bertfam.cli.app import app
from keras_bertfam.cli.reproduce import (
    compute,
    open_questions,
    studies,
    word_search,
)
from keras_bertfam.cli.reproduce.results import Results
from keras_bertfam.cli.reproduce.studies import Request
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.presets.working_folders import working_folder
from tests import tiny_passages

WORDS = "anna bob carl dora emil fred gina hans ida jack kurt lena".split()


def article(number):
    """An article of two paragraphs, each with a question, as SQuAD has them."""
    paragraphs = []
    for k in range(2):
        name, friend = (WORDS[(number + j + 3 * k) % len(WORDS)] for j in (0, 1))
        name, friend = name.title(), friend.title()
        context = (
            f"In 18{number:02}{k} there was {name} of {friend}. She knew {friend} "
            f"well. Nobody else saw the house of {name}."
        )
        answer = {"text": friend, "answer_start": context.index(friend)}
        question = {"id": f"{number}-{k}", "question": f"Who knew {name}?"}
        question["answers"] = [answer]
        paragraphs.append({"context": context, "qas": [question]})
    return {"title": f"a{number}", "paragraphs": paragraphs}


@pytest.fixture
def squad(tmp_path):
    (tmp_path / "squad").mkdir()
    content = {"version": "1.1", "data": [*map(article, range(8))]}
    (tmp_path / "squad" / "dev-v1.1.json").write_text(json.dumps(content))
    return str(tmp_path)


@pytest.fixture
def nq(tmp_path):
    """Questions and patterns of other sets, and passages in DPR's format."""
    (tmp_path / "nq").mkdir()
    (tmp_path / "trec").mkdir()
    for part in ("train", "dev", "test"):
        (tmp_path / "nq" / f"nq-{part}.qa.csv").write_text("who is it\t['Anna']\n")
        (tmp_path / "trec" / f"curatedtrec-{part}.qa.csv").write_text(
            "who is it\t['An+a', '(']\n"
        )
    table = tmp_path / "passages.tsv"
    table.write_text("id\ttext\ttitle\n1\tIt is Anna.\tEmma\n2\tNo.\t\n")
    return str(tmp_path), str(table)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "must be a folder that has some of ['squad']"),
        (["--data", "DATA"], "must be a folder that has some of ['nq_open', 'web_q"),
        (["--rows", "BERT"], "`--rows` must be some of ['BM25', 'ICT', 'ORQA', 'RE"),
        (["--seeds", "0"], "`--seeds` must be at least 1"),
        (["--scale", "paper"], "`--scale` must be a positive number for this table"),
        (["--held-out", "a.txt"], "must be left out for this table"),
        (["--set", "step=3"], "expected no other keys than"),
        (["--set", "limit=0"], "`limit` must be positive"),
        (["--set", "limit=many"], "`limit` must be of type int"),
        (["--set", "precision=int8"], "`precision` must be one of"),
        (["--set", "normalization=row"], "`normalization` must be one of"),
    ],
)
def test_what_is_asked_wrongly(arguments, message, squad, tmp_path):
    labelled = ["--labelled", squad] if arguments and "DATA" not in arguments else []
    (tmp_path / "passages.txt").write_text("a")
    arguments = [
        str(tmp_path / "passages.txt") if a == "DATA" else a for a in arguments
    ]
    result = CliRunner().invoke(
        app,
        ["reproduce", "realm", "--output", str(tmp_path / "o"), *labelled, *arguments],
    )
    said = " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())
    assert result.exit_code == 2 and message in said, said


@pytest.mark.any_backend
def test_killed_and_resumed(squad, tmp_path, monkeypatch):
    asked, output = [], str(tmp_path / "out")

    def score(self, row, seed):
        asked.append((row, seed))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return dict.fromkeys(self.table.columns, 10.0 * len(asked))

    monkeypatch.setattr(open_questions.OpenQuestions, "score", score)

    def run(**kwargs):
        request = Request(
            output, ["ICT", "REALM"], labelled=squad, report=str, **kwargs
        )
        return studies.run(studies.of("realm", request))

    with pytest.raises(KeyboardInterrupt):
        run()
    with open(os.path.join(output, "table.md"), encoding="utf-8") as file:
        assert "| REALM | 20 | 20 | 20 | 39.2 | 40.2 | 46.8 |" in file.read()
    scores = run()
    assert asked[2:] == [("ICT", 1), ("ICT", 1), ("REALM", 1)]
    assert [len(scores[row]) for row in open_questions.ROWS] == [0, 2, 0, 2, 0]
    assert run() == scores and len(asked) == 5
    with pytest.raises(
        ValueError, match="`pretraining_steps` must be 600, as in the results"
    ):
        run(scale=0.5)
    with working_folder(os.path.join(output, ".running"), output):
        with pytest.raises(ValueError, match="one run at a time"):
            run()


@pytest.mark.any_backend
def test_questions_of_squad(squad):
    request = Request("nowhere", labelled=squad)
    study = studies.of("realm", request)
    passages, questions = study._data()
    ((train, test),) = questions.values()
    assert len(passages) == 16 and len(train[0]) == len(test[0]) == 8
    assert not {*train[0]} & {*test[0]} or train[0] != test[0]
    assert train[1][0] == ["Bob"]


@pytest.mark.any_backend
def test_questions_and_passages_of_files(nq):
    folder, table = nq
    study = studies.of("realm", Request("nowhere", labelled=folder, data=[table]))
    assert [*study.places] == ["nq_open", "curated_trec"]
    passages, questions = study._data()
    assert passages == [("Emma", "It is Anna."), "No."]
    with pytest.warns(UserWarning, match="1 patterns match nothing"):
        found = open_questions.texts_of_patterns(questions["curated_trec"][0], passages)
    assert found == (["who is it"], [["Anna"]])
    assert study.table.columns[-1] == "curated_trec_exact_match"


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text\ttitle\n", "must begin with a line of id, text and title"),
        ("id\ttext\ttitle\n1\ta\n", "line 2: expected id, text and title"),
    ],
)
def test_damaged_tables_of_passages(text, message, tmp_path):
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        open_questions.read_passages([str(tmp_path / "a.tsv")])


@pytest.mark.any_backend
def test_bm25_is_that_of_another_library():
    bm25s = pytest.importorskip("bm25s")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 3 + k % 7)) for k in range(40)]
    queries = [" ".join(rng.choice(WORDS, 3, replace=False)) for _ in range(10)]
    theirs = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    theirs.index([text.split() for text in texts], show_progress=False)
    expected = np.array([theirs.get_scores(query.split()) for query in queries])
    found = word_search.WordIndex(texts).search(queries, 5)
    ordered = -np.sort(-expected, axis=1)[:, :5]
    scores = np.take_along_axis(expected, found, axis=1)
    np.testing.assert_allclose(scores, ordered, rtol=1e-5)
    assert (
        word_search.words_of("The Caf\u00e9's 3 \u00c4pfel")
        == "the cafe s 3 apfel".split()
    )


@pytest.mark.slow
@pytest.mark.any_backend
def test_words_in_the_place_of_a_retriever():
    search = tiny_passages.make_search()
    words = word_search.WordSearch(search.retriever, search.passages)
    texts = [*map(word_search.as_text, words.passages)][:3]
    query = search.retriever.preprocessor.encode_texts("query", texts)
    found, vectors = words.look_up(query, 2)
    expected = word_search.WordIndex([*map(word_search.as_text, words.passages)])
    np.testing.assert_array_equal(found, expected.search(texts, 2))
    assert vectors.shape == (3, 2, search.index.dim) and not vectors.any()


@pytest.mark.slow("release")  # trains a model of each row
def test_every_row_of_realm(squad, tmp_path):
    output = str(tmp_path / "out")
    small = {
        "vocabulary_size": 200,
        "passage_length": 40,
        "query_length": 12,
        "num_passages": 1,
        "batch_size": 4,
        "text_batch_size": 2,
        "limit": 4,
    }
    request = Request(output, seeds=1, scale=0.01, labelled=squad, changes=small)
    scores = studies.run(studies.of("realm", request))
    for row, (found,) in scores.items():
        assert 0 <= found["squad_exact_match"] <= 100
        recalls = found["squad_recall_1"], found["squad_recall_5"]
        if row.startswith("T5"):
            assert recalls == (None, None)
        else:
            assert 0 <= recalls[0] <= recalls[1] <= 100
    assert {"bert-0", "ict-0", "realm-0", "t5-0", "table.md"} <= {*os.listdir(output)}


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["electra-compute", "--sizes", "0"], "`--sizes` must be shares in (0, 1]"),
        (["electra-compute", "--labelled", "."], "`--labelled` must be left out"),
        (["electra-compute", "--held-out", "a.txt"], "`--held-out` must be left out"),
        (["electra-compute", "--set", "step=3"], "must be one of"),
        (["electra-compute", "--set", "files=[a]"], "there is `--data`"),
        (["electra-compute", "--set", "epochs=3"], "there is `--scale`, as each run"),
        (["roberta-1", "--sizes", "0.5"], "`--sizes` must be left out except for the"),
        (["realm", "--sizes", "0.5"], "must be a folder that has some of"),
    ],
)
def test_sizes_that_are_asked_wrongly(arguments, message, tmp_path):
    arguments += ["--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    said = " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())
    assert result.exit_code == 2 and message in said, said


@pytest.mark.any_backend
def test_operations_of_a_step():
    """Of one block, counted by its products."""
    run = PretrainingRun(sequence_length=20, batch_size=2)
    width, inner, table, size = 8, 24, 4, 50
    backbone = types.SimpleNamespace(
        num_layers=1,
        hidden_dim=width,
        intermediate_dim=inner,
        embedding_dim=table,
        vocabulary_size=size,
    )
    masked = 3
    row = 20 * 2 * table * width  # to the width of the states
    row += 2 * 20 * 2 * width * width  # keys and values
    row += masked * (2 * 2 * width * width)  # queries and outputs
    row += masked * 2 * 2 * 20 * width  # scores, and what they weigh
    row += masked * 2 * 2 * width * inner
    row += masked * 2 * (width * table + table * size)
    assert compute.step_operations(backbone, run) == 3 * 2 * row
    assert compute.step_operations(backbone, run, 1.0) > 2 * compute.step_operations(
        backbone, run
    )
    smaller, larger = (compute.step_operations(backbone, run, s) for s in (0.25, 0.5))
    assert smaller < larger


@pytest.mark.slow
@pytest.mark.any_backend
def test_scores_by_operations(tmp_path):
    pytest.importorskip("matplotlib")
    output = str(tmp_path / "out")
    small = {"vocabulary_size": 300, "batch_size": 2, "sequence_length": 16}
    request = Request(output, ["BERT", "ELECTRA, generator 0.5"], 1, 0.01, sizes=[0.5])
    request = dataclasses.replace(request, changes=small)
    scores = studies.run(studies.of("electra-compute", request))
    for (found,) in scores.values():
        costs = [cost for cost, _ in found["curve"]]
        assert len(costs) == compute.POINTS and costs == sorted(costs)
        assert costs[-1] == pytest.approx(4 * costs[0]) == found["operations"]
        assert all(0 <= score <= 1 for _, score in found["curve"])
    assert scores["BERT"][0]["operations"] < found["operations"]
    assert {"table.md", "table.png"} <= {*os.listdir(output)}
    assert studies.run(studies.of("electra-compute", request)) == scores


@pytest.mark.any_backend
def test_what_was_begun_is_gone_on_with_by_the_same_settings(tmp_path):
    known = Results(str(tmp_path))
    known.begin("a", 0, {"steps": 5})
    again = Results(str(tmp_path))
    assert again.seeds("a") == [0] and again.find("a", 0) is None
    assert again.scores(["a"]) == {"a": []}
    with pytest.raises(ValueError, match="`steps` must be 5, as in the results"):
        again.check("a", 0, {"steps": 6})
    again.add("a", 0, {"steps": 5}, {"x": 1.0})
    assert Results(str(tmp_path)).find("a", 0) == {"x": 1.0}
