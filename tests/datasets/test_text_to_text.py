import dataclasses
import gzip
import json

import pytest

from keras_bertfam.datasets import (
    Examples,
    as_text_pairs,
    load_examples,
    score_texts,
)
from keras_bertfam.datasets.task_data import get_task


def pairs(name, x, y):
    return as_text_pairs(Examples(x, y, get_task(name)))


@pytest.mark.parametrize(
    ("name", "x", "label", "inputs", "target"),
    [
        ("cola", ["A b."], 0, "cola sentence: A b.", "unacceptable"),
        ("sst2", ["A b."], 1, "sst2 sentence: A b.", "positive"),
        ("mrpc", (["A."], ["B."]), 1, "mrpc sentence1: A. sentence2: B.", "equivalent"),
        (
            "qqp",
            (["A?"], ["B?"]),
            0,
            "qqp question1: A? question2: B?",
            "not_duplicate",
        ),
        (
            "mnli",
            (["A."], ["B."]),
            2,
            "mnli hypothesis: B. premise: A.",
            "contradiction",
        ),
        ("ax", (["A."], ["B."]), 1, "mnli hypothesis: B. premise: A.", "neutral"),
        ("qnli", (["A?"], ["B."]), 0, "qnli question: A? sentence: B.", "entailment"),
        (
            "rte",
            (["A."], ["B."]),
            1,
            "rte sentence1: A. sentence2: B.",
            "not_entailment",
        ),
        ("wnli", (["A."], ["B."]), 1, "wnli sentence1: A. sentence2: B.", "entailment"),
        ("stsb", (["A."], ["B."]), 3.25, "stsb sentence1: A. sentence2: B.", "3.2"),
    ],
)
def test_inputs_and_targets_of_glue(name, x, label, inputs, target):
    assert pairs(name, x, [label]) == ([inputs], [target])
    assert pairs(name, x, None) == ([inputs], None)


def test_numbers_are_rounded_to_fifths():
    x = (["A."] * 6, ["B."] * 6)
    _, targets = pairs("stsb", x, [0.0, 5.0, 3.8, 3.75, 0.09, 2.917])
    assert targets == ["0.0", "5.0", "3.8", "3.8", "0.0", "3.0"]


def test_questions_and_their_scores(tmp_path):
    questions = [
        {
            "id": str(number),
            "question": "Who's  there?",
            "answers": [{"text": text, "answer_start": 0} for text in texts],
        }
        for number, texts in enumerate((["U.S. (a)", "Us"], []))
    ]
    article = {"title": "t", "paragraphs": [{"context": "U.S. (a).", "qas": questions}]}
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [article]}))
    examples = load_examples("squad_v2", data=path)
    inputs, targets = as_text_pairs(examples)
    assert inputs[0] == "question: Who ' s there ? context: U . S . ( a ) ."
    assert targets == ["U . S . ( a )", ""]
    found = score_texts(examples, targets)
    assert found == {"squad_f1": 100.0, "squad_exact_match": 100.0}
    assert score_texts(examples, ["Us", "no"])["squad_exact_match"] == 50.0


def test_a_text_that_is_no_label_is_wrong():
    examples = Examples((["a"] * 4,) * 2, [1, 0, 1, 0], get_task("mrpc"))
    texts = ["equivalent", "not_equivalent", "Equivalent", "equivalents"]
    # Wrong for either class: one is missed, one is found where it isn't.
    assert score_texts(examples, texts) == {"f1": 0.5, "accuracy": 0.5}
    cola = Examples(["a"] * 4, [1, 0, 1, 0], get_task("cola"))
    texts = ["acceptable", "unacceptable", "", "acceptable "]
    scores = score_texts(cola, texts)
    assert scores["accuracy"] == 0.5 and 0 < scores["matthews"] < 1
    assert score_texts(cola, as_text_pairs(cola)[1])["matthews"] == 1
    numbers = Examples((["a"] * 4,) * 2, [0.0, 1.0, 2.0, 3.0], get_task("stsb"))
    assert score_texts(numbers, ["0.0", "1.2", "2", "3.4"])["spearman"] == 1
    assert score_texts(numbers, ["0.0", "1.2", "nan", "3 ?"])["spearman"] < 0


def test_a_stray_text_is_no_class_of_its_own():
    examples = Examples(["a"] * 300, [0, 1, 2] * 100, get_task("scicite"))
    texts = as_text_pairs(examples)[1]
    texts[0] = "?"
    one = 2 * 99 / (99 + 100)  # of 100 one isn't found
    assert score_texts(examples, texts)["macro_f1"] == pytest.approx((one + 2) / 3)


def test_own_classes_and_what_is_refused():
    task = dataclasses.replace(get_task("sst2"), name="mine", label_names=None)
    examples = Examples(["a", "b"], [2, 0], task)
    assert as_text_pairs(examples)[1] == ["2", "0"]
    assert score_texts(examples, ["2", "1"]) == {"accuracy": 0.5}
    prefixed = dataclasses.replace(task, prefix="review")
    inputs, _ = as_text_pairs(Examples(["a"], None, prefixed))
    assert inputs == ["review sentence: a"]
    with pytest.raises(ValueError, match="`texts` must be one for each of the 2"):
        score_texts(examples, ["2"])
    with pytest.raises(ValueError, match="`examples` must have labels"):
        score_texts(dataclasses.replace(examples, y=None), ["2", "1"])
    for name in ("race", "conll2003"):
        with pytest.raises(ValueError, match=f"kind classification.*{name}"):
            as_text_pairs(Examples([], [], get_task(name)))
    empty = Examples([], [], get_task("sst2"))
    assert as_text_pairs(empty) == ([], [])


@pytest.mark.any_backend
def test_files_of_a_line_for_each_sentence(tmp_path):
    for name, lines in (("en", "A dog.\nTwo cats.\n"), ("de", "Ein Hünd.\nZwei.\n")):
        for part in ("train", "val"):
            with gzip.open(tmp_path / f"{part}.{name}.gz", "wb") as file:
                file.write(lines.encode())
    examples = load_examples("multi30k", "train", tmp_path)
    assert as_text_pairs(examples) == (
        [f"translate English to German: {text}" for text in ("A dog.", "Two cats.")],
        ["Ein Hünd.", "Zwei."],
    )
    for name in ("en", "de"):  # these come first
        (tmp_path / f"train.{name}").write_text("one\n" * (1 + (name == "de")))
        (tmp_path / f"val.{name}").write_text("one\n")
    with pytest.raises(ValueError, match=r"equally many lines. Received: \[1, 2\]"):
        load_examples("multi30k", "train", tmp_path)
    assert len(load_examples("multi30k", "validation", tmp_path)) == 1
    with pytest.raises(ValueError, match=r"a file for each of \['en', 'de'\]"):
        load_examples("multi30k", data=tmp_path / "train.en")
    with pytest.raises(ValueError, match="isn't in tensorflow_datasets"):
        load_examples("multi30k")


@pytest.mark.any_backend
def test_summaries(tmp_path):
    pytest.importorskip("rouge_score")
    row = {"document": "A man, a plan.\nA canal.", "summary": "Panama é.", "id": 3}
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    (tmp_path / "validation.jsonl").write_text(json.dumps(row) * 1 + "\n")
    examples = load_examples("xsum", "train", tmp_path)
    expected = (["summarize: A man, a plan.\nA canal."], ["Panama é."])
    assert as_text_pairs(examples) == expected
    scores = score_texts(examples, ["Panama"])
    assert [*scores] == ["rouge2", "rouge1", "rougeLsum"]
    table = tmp_path / "train.csv"
    table.write_text('id,document,summary\n3,"A man, a plan.\nA canal.",Panama é.\n')
    assert as_text_pairs(load_examples("xsum", data=table)) == expected
