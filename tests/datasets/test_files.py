import csv
import dataclasses
import json

import pytest

from keras_bertfam.datasets import load_examples
from keras_bertfam.datasets.files import read_conll, read_csv
from keras_bertfam.datasets.task_data import TaskData
from tests.written_files import write


def squad_file(questions):
    paragraph = {"context": "Bert sat on a mat.", "qas": questions}
    return json.dumps({"data": [{"title": "Bert", "paragraphs": [paragraph]}]})


def test_sst2_of_two_layouts(tmp_path):
    header = "sentence\tlabel\n"
    files = {
        "train.tsv": f'{header}a "film \t1\nb\u2028c\t0\n',
        "dev.tsv": f"{header}d\t1\n",
        "test.tsv": f"{header}e\t0\n",
    }
    folder = write(tmp_path / "alps", files)
    train = load_examples("sst2", "train", folder)
    assert (train.x, train.y) == (['a "film', "b\u2028c", "d"], [1, 0, 1])
    assert load_examples("sst2", "validation", folder).x == ["e"]
    del files["test.tsv"]
    folder = write(tmp_path / "parts", files)
    assert load_examples("sst2", "train", folder).x == ['a "film', "b\u2028c"]
    assert load_examples("sst2", "validation", folder).x == ["d"]
    only = write(tmp_path / "one", {"train.tsv": files["train.tsv"]})
    assert load_examples("sst2", "train", only).x == ['a "film', "b\u2028c"]
    files["test.tsv"] = "index\tsentence\n0\te\n"
    folder = write(tmp_path / "glue", files)
    assert load_examples("sst2", "train", folder).x == ['a "film', "b\u2028c"]
    assert load_examples("sst2", "validation", folder).x == ["d"]
    test = load_examples("sst2", "test", folder)
    assert (test.x, test.y) == (["e"], None)


def test_files_without_a_header(tmp_path):
    row = 'gj04\t{}\t*\tThe "cat" sat.\n'
    folder = write(
        tmp_path,
        {
            "in_domain_train.tsv": row.format(1),
            "in_domain_dev.tsv": row.format(0),
            "out_of_domain_dev.tsv": row.format(1).rstrip("\n"),
            "val.tsv": "2\tA.\tB.\tentailment\n",
        },
    )
    assert load_examples("cola", "train", folder).y == [1]
    validation = load_examples("cola", "validation", folder)
    assert (validation.x, validation.y) == (['The "cat" sat.'] * 2, [0, 1])
    pairs = load_examples("rte", "train", folder / "val.tsv")
    assert (pairs.x, pairs.y) == ((["A."], ["B."]), [0])


def test_json_lines(tmp_path):
    rows = [{"sentence": "a", "label": "positive"}, {"sentence": "b", "label": 0}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    for name in ("a.jsonl", "a.json"):
        examples = load_examples("sst2", data=[tmp_path / name])
        assert (examples.x, examples.y) == (["a", "b"], [1, 0])
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(ValueError, match="b.json must be a JSON list"):
        load_examples("sst2", data=tmp_path / "b.json")


def test_conll(tmp_path):
    """Tabs, also in blank lines; spaces; documents; CoNLL-U's extra lines."""
    wnut = "@paul\tO\nLondon\tB-location\n\t\nEmpire\tB-location\nState\tI-location\n\n"
    conll = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n. . O O\n"
    row = "{}\t{}\t_\t{}\tDT\t_\t0\tdet\t_\t_\n"
    words = row.format("1-2", "don't", "_") + row.format("1", "do", "AUX")
    words += row.format("2", "n't", "PART") + row.format("2.1", "x", "_")
    folder = write(
        tmp_path,
        {
            "wnut17train.conll": wnut,
            "train.txt": conll,
            "en_ewt-ud-dev.conllu": f"# text = don't\n{words}",
            "en_ewt-ud-test.conllu": "",
            "bad.conll": "a O\nb\n",
        },
    )
    examples = load_examples("wnut17", data=folder / "wnut17train.conll")
    assert examples.x == [["@paul", "London"], ["Empire", "State"]]
    assert examples.y == [["O", "B-location"], ["B-location", "I-location"]]
    examples = load_examples("conll2003", data=folder / "train.txt")
    assert (examples.x, examples.y) == ([["EU", "."]], [["B-ORG", "O"]])
    examples = load_examples("ud_ewt", "validation", folder)
    assert (examples.x, examples.y) == ([["do", "n't"]], [["AUX", "PART"]])
    with pytest.raises(ValueError, match=r"bad.conll, line 2: expected 2 columns"):
        load_examples("wnut17", data=folder / "bad.conll")
    with pytest.raises(ValueError, match="no example"):
        load_examples("ud_ewt", "test", folder)


def test_squad(tmp_path):
    answers = [{"text": "a mat", "answer_start": 12}] * 2
    questions = [
        {"id": "1", "question": "Where?", "answers": answers},
        {"id": "2", "question": "Why?", "answers": answers, "is_impossible": True},
        {"id": "3", "question": "Who?", "answers": [{"text": "", "answer_start": -1}]},
    ]
    (tmp_path / "dev-v2.0.json").write_text(squad_file(questions))
    (tmp_path / "train-v2.0.json").write_text(squad_file(questions[:1]))
    examples = load_examples("squad/v2.0", "validation", tmp_path)
    assert examples.x["question"] == ["Where?", "Why?", "Who?"]
    assert examples.x["context"] == ["Bert sat on a mat."] * 3
    assert examples.y[0] == {"text": ["a mat"] * 2, "answer_start": [12, 12]}
    assert examples.y[1:] == [{"text": [], "answer_start": []}] * 2
    assert examples.ids == ["1", "2", "3"]
    assert examples[1:].ids == ["2", "3"]
    (tmp_path / "bad.json").write_text('{"data": [{}]}')
    with pytest.raises(ValueError, match="SQuAD's format. Missing: 'paragraphs'"):
        load_examples("squad", data=tmp_path / "bad.json")


def test_race_files(tmp_path):
    row = {
        "id": "high1.txt",
        "article": "Bert sat.",
        "questions": ["He _ ."],
        "options": [["sat", "ran", "fell", "left"]],
        "answers": ["D"],
    }
    files = {f"train/{level}/1.txt": json.dumps(row) for level in ("middle", "high")}
    examples = load_examples("race", "train", write(tmp_path, files))
    assert examples.x[1][1] == ["He sat .", "He ran .", "He fell .", "He left ."]
    assert examples.y == [3, 3]


def test_swag(tmp_path):
    names = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,"
    names += "ending0,ending1,ending2,ending3"
    row = '0,v,1,Bert sat. He,"Bert ""sat"", and so on.",He,gold,ran,'
    row += '"fell, slowly.",left,sat down'
    files = {
        "train.csv": f"{names},label\n{row},1\n{row},3\n",
        "test.csv": f"{names}\n{row}\n",
        "short.csv": f"{names},label\n{row},1\n0,v,1,Bert sat.,Bert,He,gold,ran\n",
        "unlabelled.csv": f"{names},label\n{row},1\n{row}\n",
        "five.csv": f"{names},label\n{row},4\n",
        "headless.csv": f"{row},1\n{row},1\n",
    }
    folder = write(tmp_path, files)
    train = load_examples("swag", "train", folder)
    assert train.x[0] == ['Bert "sat", and so on.'] * 2
    assert train.x[1][0] == ["He ran", "He fell, slowly.", "He left", "He sat down"]
    assert train.y == [1, 3]
    test = load_examples("swag", "test", folder)
    assert (test.x[1], test.y) == (train.x[1][:1], None)
    for name, message in {
        "short.csv": r"Missing: \['ending1', 'ending2', 'ending3'\]",
        "headless.csv": r"Missing: \['sent1', ",
        "unlabelled.csv": "'label', or none of them. Missing in row 2",
        "five.csv": "Received: '4'",
    }.items():
        with pytest.raises(ValueError, match=message):
            load_examples("swag", data=folder / name)
    with pytest.raises(ValueError, match="'swag' isn't in tensorflow_datasets"):
        load_examples("swag")


def test_choices_of_ones_own(tmp_path):
    row = {"context": "Bert sat.", "question": "Who ___?", "choices": ["sat", "ran"]}
    mine = TaskData(
        "mine",
        "multiple_choice",
        columns=("context", "question", "choices"),
        question="question",
    )
    rows = [{**row, "label": 1}, {**row, "question": "Who?", "label": "0"}]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    examples = load_examples(mine, data=path)
    choices = [["Who sat?", "Who ran?"], ["Who? sat", "Who? ran"]]
    assert examples.x == (["Bert sat."] * 2, choices)
    assert examples.y == [1, 0]
    bare = dataclasses.replace(mine, columns=("context", "choices"), question=None)
    assert load_examples(bare, data=path).x[1] == [["sat", "ran"]] * 2
    path.write_text(json.dumps(row))
    assert load_examples(mine, data=path).y is None
    path.write_text(json.dumps({**row, "choices": "sat"}))
    with pytest.raises(ValueError, match="list of choices in 'choices'.*'sat'"):
        load_examples(mine, data=path)
    path.write_text(json.dumps({"context": "a", "choices": ["b"]}))
    with pytest.raises(ValueError, match=r"Missing: \['question'\]"):
        load_examples(mine, data=path)
    with pytest.raises(ValueError, match=r"'race'.* Missing: \['article', 'questions'"):
        load_examples("race", data=path)


def test_tsv_agrees_with_the_csv_module(tmp_path):
    rows = [["sentence", "label"], ['"x" y', "1"], ["'", "0"]]
    with open(tmp_path / "a.tsv", "w", newline="") as file:
        csv.writer(
            file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None
        ).writerows(rows)
    assert load_examples("sst2", data=tmp_path / "a.tsv").x == ['"x" y', "'"]


def test_comments_before_each_sentence(tmp_path):
    path = tmp_path / "my.conll"
    path.write_text("# s1\nEU B-ORG\n\n# s2\nsat O\n")
    with pytest.raises(ValueError, match="must have words, not comments"):
        read_conll(path)
    path.write_text("# O\nEU B-ORG\n\nsat O\n")  # a hash may be a word
    assert read_conll(path)[0]["tokens"] == ["#", "EU"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('c,d,"e,f,0\n', "line 2: .*quotation mark"),
        ("c,d,e,f,0,1\n", "line 2: expected at most 5 values.*'1'"),
    ],
)
def test_faults_of_a_csv_file(row, message, tmp_path):
    (tmp_path / "train.csv").write_text("a,b,c,d,label\n" + row)
    with pytest.raises(ValueError, match=message):
        read_csv(tmp_path / "train.csv")


def test_a_long_cell(tmp_path):
    (tmp_path / "train.csv").write_text("a,b\n" + "w " * 70_000 + ",1\n")
    assert len(read_csv(tmp_path / "train.csv")[0]["a"]) == 140_000
