"""Open questions from files of the originals' formats."""

import ast
import gzip
import json
import re

import pytest

from keras_bertfam.cli import finetuning, finetuning_heads, finetuning_text
from keras_bertfam.datasets import as_text_pairs, load_examples, open_questions
from keras_bertfam.datasets.task_data import TASKS

pytestmark = pytest.mark.any_backend

ORQA = [
    {"question": "who wrote emma", "answer": ["Jane Austen", "Austen"]},
    {"question": "when", "answer": ["1815"]},
]
# As Python's `csv` writes it, and as it stands there.
DPR = (
    "who wrote emma\t['Jane Austen', 'Austen']\n"
    '"who said ""no"""\t"[""O\'Neill"", \'a \\""b\\""\']"\n'
    "when\t['1815',]\n"
)
TRIVIA = {
    "Data": [
        {
            "Answer": {
                "Aliases": ["Sunset Blvd", "Sunset Boulevard"],
                "HumanAnswers": ["The Boulevard"],
                "MatchedWikiEntityName": "Sunset Boulevard",
                "NormalizedAliases": ["sunset blvd", "sunset boulevard"],
                "NormalizedMatchedWikiEntityName": "sunset boulevard",
                "NormalizedValue": "sunset boulevard",
                "Type": "WikipediaEntity",
                "Value": "Sunset Boulevard",
            },
            "EntityPages": [
                {"DocSource": "TagMe", "Filename": "A_B.txt", "Title": "A B"},
                {"DocSource": "Search", "Filename": "None.txt", "Title": "None"},
            ],
            "Question": "Which musical?",
            "QuestionId": "tc_33",
            "QuestionPartOfVerifiedEval": True,
            "QuestionSource": "http://www.example.com/",
            "SearchResults": [
                {
                    "Description": "...",
                    "DisplayUrl": "www.example.com",
                    "Filename": "35/35_995.txt",
                    "Rank": 0,
                    "Title": "Page",
                    "Url": "http://www.example.com/",
                }
            ],
        },
        {"Question": "Why?", "QuestionId": "tc_34"},
    ],
    "Domain": "Web",
    "VerifiedEval": False,
    "Version": 1.0,
}


def lines(records):
    return "".join(f"{json.dumps(record)}\n" for record in records)


def test_orqas_files(tmp_path):
    for part in ("train", "dev"):
        path = tmp_path / f"NaturalQuestions.resplit.{part}.jsonl"
        path.write_text(lines(ORQA))
    found = load_examples("nq_open", "validation", tmp_path)
    assert found.x == ["who wrote emma", "when"]
    assert found.y == [["Jane Austen", "Austen"], ["1815"]]
    assert found.task.metrics == ("open_exact_match",)
    assert as_text_pairs(found) == (
        ["nq question: who wrote emma", "nq question: when"],
        ["Jane Austen", "1815"],
    )
    path.write_text(lines({"question": each["question"]} for each in ORQA))
    assert load_examples("web_questions", data=path).y is None


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_dprs_files(ending, tmp_path):
    path = tmp_path / f"trivia-dev.qa.csv{ending}"
    path.write_bytes(gzip.compress(DPR.encode()) if ending else DPR.encode())
    (tmp_path / "trivia-train.qa.csv").write_text(DPR)
    found = load_examples("trivia_qa", "validation", tmp_path)
    assert found.x == ["who wrote emma", 'who said "no"', "when"]
    assert found.y == [["Jane Austen", "Austen"], ["O'Neill", 'a "b"'], ["1815"]]
    assert load_examples("trivia_qa", data=path, limit=1).x == found.x[:1]


def test_patterns_of_curated_trec(tmp_path):
    path = tmp_path / "curatedtrec-test.qa.csv"
    path.write_text("who\t['Scott\\s+Key', \"Key\\\\b\"]\n")
    found = load_examples("curated_trec", "test", tmp_path)
    assert found.y == [[r"Scott\s+Key", r"Key\b"]]
    assert found.task.metrics == ("pattern_match",)
    assert as_text_pairs(found) == (["curated_trec question: who"], None)


def test_lists_as_python_writes_them():
    for value in ([], ["a"], ["it's", 'a "b"', "c\\d", "\n\t\u00e9\x00", "]['"], [""]):
        assert open_questions.parse_list(repr(value)) == value
    for text in (
        "__import__('os').system('true')",
        "['a', f'{1}']",
        "['a'] + ['b']",
        "['a' 'b']",
        "[['a']]",
        "[1]",
        "('a',)",
        "['a'",
        "",
        "[" * 10_000,
        r"['\x']",
        r"['\N{nothing}']",
        "['" + "a" * 1_000_001 + "']",
        "['a\nb']",
    ):
        with pytest.raises(ValueError, match="expected a list of strings"):
            open_questions.parse_list(text)
    # Many strings without an end are refused at once.
    with pytest.raises(ValueError, match="expected a list of strings"):
        open_questions.parse_list("[" + "'a', " * 100_000 + "1]")
    assert ast.literal_eval("['a',]") == ["a"]


def test_trivia_qa(tmp_path):
    path = tmp_path / "unfiltered-web-dev.json"
    path.write_text(json.dumps({**TRIVIA, "Data": TRIVIA["Data"][:1]}, indent=4))
    found = load_examples("trivia_qa", "validation", path)
    assert found.x == ["Which musical?"] and found.ids == ["tc_33"]
    assert found.y == [["Sunset Boulevard", "Sunset Blvd", "The Boulevard"]]
    with pytest.raises(ValueError, match="must all have 'answer', or none of them"):
        path.write_text(json.dumps(TRIVIA))
        load_examples("trivia_qa", data=path)
    path.write_text(json.dumps({**TRIVIA, "VerifiedEval": True}))
    assert load_examples("trivia_qa", data=path).ids == ["tc_33"]


def reading(tmp_path, content=TRIVIA, text="On Sunset  boulevard, the sunset blvd."):
    (tmp_path / "qa").mkdir(exist_ok=True)
    path = tmp_path / "qa" / "wikipedia-train.json"
    path.write_text(json.dumps(content))
    for name in ("wikipedia/A_B.txt", "wikipedia/None.txt", "web/35/35_995.txt"):
        place = tmp_path / "evidence" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("Nothing is here." if "None" in name else text)
    return path


def test_trivia_qa_with_its_documents(tmp_path):
    reading(tmp_path)
    found = load_examples("trivia_qa_reading", "train", tmp_path)
    assert found.ids == ["tc_33--A_B.txt", "tc_33--35_995.txt"]
    assert found.titles == ["A B", "Page"]
    context = found.x["context"][0]
    assert found.y[0] == {
        "text": ["Sunset  boulevard", "sunset blvd"],
        "answer_start": [3, 26],
    }
    for text, start in zip(*found.y[0].values(), strict=True):
        assert context[start : start + len(text)] == text


def test_the_first_400_words_of_a_document(tmp_path):
    text = "\n".join(["", *["word"] * 398, "Sunset Blvd word", "The Boulevard"])
    found = load_examples("trivia_qa_reading", data=reading(tmp_path, text=text))
    assert found.x["context"][0].split() == ["word"] * 398 + ["Sunset", "Blvd"]
    assert found.y[0]["text"] == ["Sunset Blvd"]


def test_verified_documents(tmp_path):
    content = json.loads(json.dumps({**TRIVIA, "VerifiedEval": True}))
    content["Data"][0]["EntityPages"][0]["DocPartOfVerifiedEval"] = False
    found = load_examples("trivia_qa_reading", data=reading(tmp_path, content))
    assert found.ids == ["tc_33--35_995.txt"]


@pytest.mark.parametrize(
    "name", ["../../../secret.txt", "/etc/hosts", "a/../../b", "a\0b"]
)
def test_documents_outside_their_folder(name, tmp_path):
    content = json.loads(json.dumps(TRIVIA))
    content["Data"][0]["EntityPages"][0]["Filename"] = name
    with pytest.raises(ValueError, match="`Filename` of 'tc_33' must be that of a doc"):
        load_examples("trivia_qa_reading", data=reading(tmp_path, content))


def test_documents_that_are_missing(tmp_path):
    path = reading(tmp_path)
    (tmp_path / "evidence/wikipedia/A_B.txt").unlink()
    with pytest.warns(UserWarning, match="1 of 3 documents are missing"):
        assert len(load_examples("trivia_qa_reading", data=path)) == 1
    for name in ("wikipedia/None.txt", "web/35/35_995.txt"):
        (tmp_path / "evidence" / name).unlink()
    with pytest.raises(FileNotFoundError, match="must have its documents beside it"):
        load_examples("trivia_qa_reading", data=path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", lines([{"question": "a", "answers": ["b"]}]), "Unknown: ['answers"),
        ("a.jsonl", lines([{"question": "a", "answer": "b"}]), "must be of type list"),
        ("a.jsonl", lines([{"question": "a", "answer": []}]), "of which none is empty"),
        ("a.jsonl", lines([{"question": "a", "answer": [" "]}]), "row 1 of 1, column"),
        ("a.jsonl", "{", "must be a JSON list, or a JSON object a line"),
        ("a.jsonl", "", "there is no example in it"),
        ("a.csv", "a\n", "line 1: expected a question, a tab"),
        ("a.csv", "a\t['b']\nc\t[d]\n", "line 2: expected a list of strings"),
        ("a.csv", "a\t\"['b']\n", "line 1: expected values between delimiters"),
        ("a.csv.gz", "a\t['b']\n", "a.csv.gz must be a complete compressed file"),
        ("a.json", "{}", "Missing: ['Data']"),
        ("a.json", '{"Data": [{}]}', "'Data'[0] must have ['Question', 'QuestionId']"),
        ("a.json", json.dumps({**TRIVIA, "Date": 1}), "Unknown: ['Date']"),
        ("a.json", '{"Data": [', "must be JSON"),
    ],
)
def test_damaged_files(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, OSError), match=re.escape(message)):
        load_examples("nq_open", data=tmp_path / name)


def test_a_file_that_is_cut_off(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(DPR.encode())[:-20])
    with pytest.raises(ValueError, match="must be a complete"):
        load_examples("nq_open", data=path)


def test_records_of_tensorflow_datasets():
    """In the form that its builders give, whose data isn't here."""
    trivia = {
        "question": "a",
        "question_id": "tc_1",
        "answer": {"value": "b", "aliases": ["c", "b", ""], "type": "FreeForm"},
    }
    assert open_questions.from_tfds(trivia) == {
        "question": "a",
        "answer": ["b", "c"],
        "idx": "tc_1",
    }
    trivia["answer"] = {"value": "<unk>", "aliases": [], "type": ""}
    assert open_questions.from_tfds(trivia)["answer"] is None
    web = {"question": "a", "answers": ["b"], "url": "c"}
    assert open_questions.from_tfds(web) == {"question": "a", "answer": ["b"]}


def test_every_task_of_open_questions_is_scored_by_its_answers():
    for name in ("nq_open", "web_questions", "trivia_qa"):
        assert not TASKS[name].patterns and TASKS[name].can_be_learned
    assert TASKS["curated_trec"].patterns and not TASKS["curated_trec"].can_be_learned


@pytest.mark.parametrize(
    ("name", "way", "message"),
    [
        (
            "nq_open",
            finetuning_heads,
            "of kind 'open_questions'; with `as_text` it can",
        ),
        ("curated_trec", finetuning_text, "whose answers are patterns to score by"),
    ],
)
def test_what_no_head_learns(name, way, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        finetuning.finetune(name, "preset", "folder", as_text=way is finetuning_text)
