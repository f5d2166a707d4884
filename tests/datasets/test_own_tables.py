"""Tables of one's own: files, data frames and datasets, read alike."""

import csv
import gzip
import json
import sys

import datasets
import numpy as np
import pandas
import pytest
from pyarrow import Table, parquet

from keras_bertfam.datasets import load_examples, tables
from keras_bertfam.datasets.task_data import TaskData
from keras_bertfam.metrics import compute_metrics
from tests.written_files import write

REVIEWS = ["good, really", 'a "fine"\nfilm', "dull;\tbad", "naïve", "", "so so"]
LABELS = ["pos", "pos", "neg", "pos", "neg", "neg"]
NUMBERS = [1, 1, 0, 1, 0, 0]
COLUMNS = {"id": [*range(6)], "review": REVIEWS, "sentiment": LABELS}
ROWS = [dict(zip(COLUMNS, r, strict=True)) for r in zip(*COLUMNS.values(), strict=True)]
ASKED = {"text": "review", "label": "sentiment"}


def load(source, **kwargs):
    return load_examples(source, **{**ASKED, **kwargs})


def written(folder, name="my.csv", columns=COLUMNS):
    path = folder / name
    if name.endswith("parquet"):
        parquet.write_table(Table.from_pydict(columns), path)
    elif name.endswith("l"):
        frame = pandas.DataFrame(columns)
        path.write_text(frame.to_json(orient="records", lines=True))
    elif name.endswith("json"):
        path.write_text(json.dumps(ROWS, indent=1))
    else:
        delimiter = "\t" if name.endswith("tsv") else ","
        pandas.DataFrame(columns).to_csv(path, sep=delimiter, index=False)
    return path


SOURCES = {
    "csv": written,
    **{
        name: lambda folder, name=name: written(folder, f"my.{name}")
        for name in ("tsv", "jsonl", "json", "parquet")
    },
    "path": lambda folder: str(written(folder, "MY.CSV")),
    "frame": lambda folder: pandas.DataFrame(COLUMNS, index=[*"abcdef"]),
    "categories": lambda folder: pandas.DataFrame(COLUMNS).astype(
        {"sentiment": "category"}
    ),
    "dataset": lambda folder: datasets.Dataset.from_dict(COLUMNS),
    "formatted": lambda folder: datasets.Dataset.from_dict(COLUMNS).with_format(
        "numpy"
    ),
    "stream": lambda folder: datasets.Dataset.from_dict(COLUMNS).to_iterable_dataset(),
    "generator": lambda folder: datasets.IterableDataset.from_generator(
        lambda: iter(ROWS)
    ),
    "numbers": lambda folder: pandas.DataFrame([*zip(REVIEWS, LABELS, strict=True)]),
    "parts": lambda folder: datasets.DatasetDict(
        {"train": datasets.Dataset.from_dict(COLUMNS)}
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_from_each_source(source, tmp_path):
    asked = {"text": 0, "label": 1} if source == "numbers" else {}
    examples = load(SOURCES[source](tmp_path), **asked)
    assert (examples.x, examples.y) == (REVIEWS, NUMBERS)
    assert examples.label_names == examples.task.label_names == ("neg", "pos")
    assert examples.task.kind == "classification"
    assert all(type(label) is int for label in examples.y)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", ";\t|,")
def test_delimiters_and_quotation_marks(delimiter, ends, tmp_path):
    path = tmp_path / "my.csv"
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=ends)
        writer.writerows([COLUMNS, *(row.values() for row in ROWS)])
        file.write(ends)
    assert load(path).x == REVIEWS
    path = path.rename(tmp_path / "my.txt")
    assert load(path, delimiter=delimiter).y == NUMBERS
    with pytest.raises(ValueError, match=r"my.txt must end with .*\.csv,.*`delimiter`"):
        load(path)
    lines = path.read_bytes().decode("utf-8-sig").split(ends, 1)[1]
    path = write(tmp_path, {"bare.csv": lines}) / "bare.csv"
    assert load(path, header=[*COLUMNS]).x == REVIEWS


def test_white_space_after_a_delimiter(tmp_path):
    text = 'review, sentiment\n"a, b", "pos"\nc,  neg\n'
    examples = load(write(tmp_path, {"a.csv": text}) / "a.csv")
    assert (examples.x, examples.y) == (["a, b", "c"], [1, 0])
    assert examples.label_names == ("neg", "pos")
    text = "review,sentiment\n  a b,pos\n"  # without spaces in the first line
    assert load(write(tmp_path, {"b.csv": text}) / "b.csv").x == ["  a b"]


@pytest.mark.parametrize("ending", [".gz", ".GZ"])
@pytest.mark.parametrize("name", ["my.csv", "my.CSV", "my.jsonl", "my.JSONL"])
def test_compressed_tables_and_capital_letters(name, ending, tmp_path):
    if name.lower().endswith("csv"):
        text = "review,sentiment\na b,x\n"
    else:
        text = '{"review": "a b", "sentiment": "x"}\n'
    plain, packed = tmp_path / name, tmp_path / (name + ending)
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, packed):
        assert tables.is_file_name(str(path))
        assert (load(path).x, load(path).y) == (["a b"], [0])


def test_quotation_marks_as_they_are(tmp_path):
    path = (
        write(tmp_path, {"a.tsv": 'review\tsentiment\n"A" film\t1\n"B\t0\n'}) / "a.tsv"
    )
    with pytest.raises(ValueError, match=r"a.tsv, line 2: .*`quoting=False`"):
        load(path)
    assert load(path, quoting=False).x == ['"A" film', '"B']


def test_long_texts(tmp_path):
    limit = csv.field_size_limit()
    long = "word " * 50_000
    path = written(tmp_path, columns={"review": [long], "sentiment": ["a"]})
    assert load(path).x == [long]
    assert csv.field_size_limit() == limit


def test_several_files(tmp_path):
    files = {"a.csv": "review,sentiment\na,x\n", "b.csv": "sentiment,review\ny,b\n,c\n"}
    paths = [write(tmp_path, files) / name for name in files]
    with pytest.raises(ValueError, match=r"b.csv, line 3, column 'sentiment': .* ''"):
        load(paths)
    write(tmp_path, {"b.csv": "sentiment,review\ny,b\n"})
    examples = load(paths)
    assert (examples.x, examples.y) == (["a", "b"], [0, 1])
    assert examples.label_names == ("x", "y")


@pytest.mark.parametrize(
    "labels, kind, y, names",
    [
        (["b", "a", "b"], "classification", [1, 0, 1], ("a", "b")),
        ([1, 0, 2], "classification", [1, 0, 2], ("0", "1", "2")),
        ([2, 0, 2], "classification", [2, 0, 2], ("0", "1", "2")),
        ([0.5, 2, -1], "regression", [0.5, 2.0, -1.0], None),
        (["1e-3", "2.", "+.5"], "regression", [1e-3, 2.0, 0.5], None),
        (["007", "1", "1"], "classification", [0, 1, 1], ("007", "1")),
        (["inf", "b", "b"], "classification", [1, 0, 0], ("b", "inf")),
        (["1.0", "0.0", 1], "classification", [1, 0, 1], ("0", "1")),
        ([1.0, 0.0, 1.0], "classification", [1, 0, 1], ("0", "1")),
        (["TRUE", "true", "false"], "classification", [1, 1, 0], ("False", "True")),
        (["yes", "Yes", "no"], "classification", [2, 0, 1], ("Yes", "no", "yes")),
        ([True, True, False], "classification", [1, 1, 0], ("False", "True")),
        (["a ", "a", "b"], "classification", [0, 0, 1], ("a", "b")),
    ],
)
def test_labels_are_inferred(labels, kind, y, names, tmp_path):
    columns = {"review": ["a", "b", "c"], "sentiment": labels}
    for source in (written(tmp_path, columns=columns), pandas.DataFrame(columns)):
        examples = load(source)
        assert (examples.task.kind, examples.y) == (kind, y)
        assert examples.label_names == names
        assert [*map(type, examples.y)] == [*map(type, y)]


@pytest.mark.parametrize("labels", [["nan", "1"], ["a", "NaN"], ["-inf", "0.5"]])
def test_what_is_written_for_a_missing_label_is_none(labels, tmp_path):
    source = written(tmp_path, columns={"review": ["a", "b"], "sentiment": labels})
    with pytest.raises(ValueError, match="column 'sentiment': expected a label; a"):
        load(source)
    named = load(source, label_names=labels)
    assert (named.y, named.label_names) == ([0, 1], tuple(labels))
    number = pandas.DataFrame({"review": ["a", "b"], "sentiment": [0.5, np.inf]})
    with pytest.raises(ValueError, match="index 1, column 'sentiment': expected a lab"):
        load(number)


def test_what_is_inferred_is_said(tmp_path, capsys):
    columns = {"review": ["a", "b"], "sentiment": ["x", "y"]}
    (tmp_path / "my.csv").write_text("review;sentiment\na;x\nb;y\n")
    load(tmp_path / "my.csv")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "my.csv: 2 examples. Inferred: delimiter=';', kind='classification', "
        "label_names=['x', 'y']."
    )
    settings = {"kind": "classification", "label_names": ["x", "y"]}
    load(tmp_path / "my.csv", delimiter=";", **settings)
    load(written(tmp_path, "two.jsonl", columns), **settings)
    load(tmp_path / "my.csv", delimiter=";", label=None)
    assert capsys.readouterr().err == ""


MAT = {"text": ["a mat"], "answer_start": [8]}
ANSWERS = [  # each form of the same, and of none
    (MAT, {"text": [], "answer_start": []}),
    ([{"text": "a mat", "answer_start": 8}], []),
    ({"text": "a mat", "answer_start": 8}, {"text": "", "answer_start": -1}),
    ("a mat", ""),
    (["a mat"], []),
]


@pytest.mark.parametrize("answers", ANSWERS)
def test_questions(answers, tmp_path):
    columns = {
        "q": ["Where?", "Why?"],
        "c": ["Bert on a mat.", "A hat."],
        "a": [*answers],
    }
    named = dict(zip(("question", "context", "answers"), columns.values(), strict=True))
    texts = [each if isinstance(each, str) else json.dumps(each) for each in answers]
    forms = [
        written(tmp_path, "my.jsonl", columns),
        pandas.DataFrame(columns),
        written(tmp_path, "my.csv", {**columns, "a": texts}),
    ]
    asked = {"text": ("q", "c"), "label": "a", "kind": "question_answering"}
    found = [load_examples(source, **asked) for source in forms]
    if not isinstance(answers[0], str) and not isinstance(answers[1], list):
        del asked["kind"]
        found.append(load_examples(forms[0], **asked))
    written(tmp_path, "own.jsonl", named)
    found.append(load_examples("squad_v2", data=tmp_path / "own.jsonl"))
    # Tasks that have a name take their columns' tables, too, alone and in a folder.
    for name in ("train.csv", "train.parquet"):
        path = written(tmp_path, name, {**named, "answers": texts})
        found.append(load_examples("squad_v2", data=path))
    written(tmp_path, "validation.csv", {**named, "answers": texts})
    found.append(load_examples("squad_v2", "validation", data=tmp_path))
    for examples in found:
        assert examples.task.kind == "question_answering"
        assert examples.x == {"question": columns["q"], "context": columns["c"]}
        assert examples.y == [*ANSWERS[0]]
        assert len(examples.ids) == 2


def test_questions_that_make_no_sense(tmp_path):
    asked = {"text": ("q", "c"), "label": "a", "kind": "question_answering"}
    elsewhere, named = ({"text": "mat", "answer_start": at} for at in (1, "2"))
    for wrong in ("hat", elsewhere, named, 3):
        source = pandas.DataFrame({"q": ["Where?"], "c": ["a mat"], "a": [wrong]})
        with pytest.raises(ValueError, match="index 0, column 'a': Expected answers"):
            load_examples(source, **asked)
    with pytest.raises(ValueError, match="`text` must be the columns of questions"):
        load_examples(source, **{**asked, "text": "q"})


def test_labels_that_are_given(tmp_path):
    stars = pandas.DataFrame({"review": ["a", "b", "c"], "sentiment": [5, 1, 5]})
    with pytest.raises(
        ValueError, match="index 0, column 'sentiment': .*`label_names`"
    ):
        load(stars)
    named = load(stars, label_names=["1", "5"])
    assert (named.y, named.label_names) == ([1, 0, 1], ("1", "5"))
    assert load(stars, kind="regression").y == [5.0, 1.0, 5.0]
    # Another number isn't the number of a class.
    for names in (["0", "5"], ["-1", "5", "x"]):
        with pytest.raises(ValueError, match=r"index 1, column 'sentiment': .*: 1\."):
            load(stars, label_names=names)
    path = written(tmp_path)
    assert load(path, label_names=["pos", "neg"]).y == [0, 0, 1, 0, 1, 1]
    with pytest.raises(ValueError, match=r"my.csv, line 5, column 'sentiment'.* 'neg'"):
        load(path, label_names=["pos", "bad"])
    with pytest.raises(ValueError, match=r"my.csv, line 2, .*a number.* 'pos'"):
        load(path, kind="regression")
    unlabelled = load(path, label=None)
    assert (unlabelled.y, unlabelled.label_names) == (None, None)


def test_classes_of_a_dataset():
    """Their names come with it, in an order of their own; -1 is no label."""
    features = datasets.Features(
        {
            "review": datasets.Value("string"),
            "sentiment": datasets.ClassLabel(names=["pos", "neg", "mixed"]),
        }
    )
    columns = {"review": ["a", "b"], "sentiment": [1, 0]}
    train = datasets.Dataset.from_dict(columns, features)
    columns["sentiment"] = [-1, -1]
    test = datasets.Dataset.from_dict(columns, features)
    columns["sentiment"] = [-1, 1]
    mixed = datasets.Dataset.from_dict(columns, features)
    parts = datasets.DatasetDict({"train": train, "test": test, "mixed": mixed})
    examples = load(parts)
    assert (examples.y, examples.label_names) == ([1, 0], ("pos", "neg", "mixed"))
    assert load(parts, split="test").y is None
    with pytest.raises(ValueError, match="the Dataset, row 0, column 'sentiment'.* -1"):
        load(parts, split="mixed")
    with pytest.raises(
        ValueError, match=r"`split` must be one of \['mixed', 'te.*'dev'"
    ):
        load(parts, split="dev")
    # Numbers of classes, whose names may be other numbers.
    for names in (["1", "2", "3"], ["2", "0", "1"]):
        stars = datasets.ClassLabel(names=names)
        columns = {"review": ["a", "b", "c"], "sentiment": [0, 2, 1]}
        features["sentiment"] = stars
        rated = load(datasets.Dataset.from_dict(columns, features))
        assert (rated.y, rated.label_names) == ([0, 2, 1], tuple(names))
        rows = datasets.Dataset.from_dict(columns, features)
        assert load(rows, label_names=["x", "y", "z"]).y == [0, 2, 1]
        # Names in an order of one's own: the numbers are the dataset's.
        for order in (sorted(names), names[::-1], [*names, "9"]):
            again = load(rows, label_names=order)
            found = [again.label_names[number] for number in again.y]
            assert found == [names[0], names[2], names[1]]
        for wrong in (names[:2], [*names[:2], "x"], ["x", "y"]):
            with pytest.raises(ValueError, match="`label_names` must have all classes"):
                load(rows, label_names=wrong)
        assert load(rows, kind="regression").y == [0.0, 2.0, 1.0]
        tagged = {"review": [["a", "b", "c"]], "sentiment": [[0, 2, 1]]}
        of_words = {
            "review": datasets.List(datasets.Value("string")),
            "sentiment": datasets.List(stars),
        }
        tagged = datasets.Dataset.from_dict(tagged, datasets.Features(of_words))
        assert load(tagged).y == [[names[0], names[2], names[1]]]


def test_pairs(tmp_path):
    columns = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [0.5, 1]}
    path = written(tmp_path, "my.jsonl", columns)
    examples = load_examples(path, text=("hypothesis", "premise"), label="label")
    assert examples.x == (["c", "d"], ["a", "b"])
    assert examples.y == [0.5, 1.0]
    with pytest.raises(ValueError, match="`text` must be the name .* two for pairs"):
        load_examples(path, text=("a", "b", "c"))


TAGGED = "EU NNP B-ORG\nsat VB O\n\nBert NNP B-PER\n"


def _numbers(tags):
    numbers = {"B-ORG": "1", "B-PER": "2"}
    return [[numbers.get(tag, tag) for tag in row] for row in tags]


def test_tags(tmp_path):
    words, tags = [["EU", "sat"], ["Bert"]], [["B-ORG", "O"], ["B-PER"]]
    names = ("O", "B-ORG", "B-PER")
    row = "1\t{}\t_\t{}\tNN\t_\t0\tdet\t_\t_\n"
    files = {"my.conll": TAGGED, "my.txt": TAGGED, "a.conll": f"{TAGGED}a O\n"}
    files["my.conllu"] = f"# text\n{row.format('EU', 'NOUN')}"
    folder = write(tmp_path, files)
    columns = {"tokens": words, "ner": tags}
    numbered = {"tokens": words, "ner": [[1, 0], [2]]}
    label = datasets.Sequence(datasets.ClassLabel(names=[*names]))
    text = datasets.Sequence(datasets.Value("string"))
    features = datasets.Features({"tokens": text, "ner": label})
    asked = {"text": "tokens", "label": "ner"}
    for examples in (
        load_examples(folder / "my.conll"),
        load_examples(folder / "my.txt", kind="tagging"),
        load_examples(folder / "my.txt", kind="tagging", header=["w", "p", "t"], **WPT),
        load_examples(written(folder, "my.parquet", columns), **asked),
        load_examples(written(folder, "my.jsonl", columns), **asked),
        load_examples(pandas.read_parquet(folder / "my.parquet"), **asked),
        load_examples(datasets.Dataset.from_dict(numbered, features), **asked),
    ):
        assert (examples.x, examples.y) == (words, tags)
        assert (examples.label_names, examples.task.kind) == (names, "tagging")
    # -100 is no class, wherever it is from.
    some, kept = [["B-ORG", "-100"], ["B-PER"]], ("B-ORG", "B-PER")
    mixed = {"tokens": words, "ner": [["B-ORG", -100], ["B-PER"]]}
    own = {"tokens": words, "ner": [[1, -100], [2]]}
    features = datasets.Features({"tokens": text, "ner": label})
    bare = TAGGED.replace("VB O", "VB -100")
    for examples, expected, of in (
        (load_examples(write(folder, {"n.conll": bare}) / "n.conll"), some, kept),
        (load_examples(written(folder, "my.jsonl", mixed), **asked), some, kept),
        (load_examples(pandas.DataFrame(own), **asked, label_names=names), some, names),
        (load_examples(pandas.DataFrame(own), **asked), _numbers(some), ("1", "2")),
        (load_examples(datasets.Dataset.from_dict(own), **asked), _numbers(some), None),
    ):
        assert examples.y == expected
        assert of is None or examples.label_names == of
    task = TaskData("own", "tagging", columns=("w",), label="t", header=("w", "p", "t"))
    assert load_examples(task, data=folder / "my.conll").label_names == names
    universal = load_examples([folder / "my.conllu"])
    assert (universal.x, universal.label_names) == ([["EU"]], ("NOUN",))
    assert load_examples(folder / "my.conllu", label="xpos").y == [["NN"]]
    with pytest.raises(ValueError, match=r"a.conll, line 5: expected 3 columns.*'a O'"):
        load_examples(folder / "a.conll")
    with pytest.raises(ValueError, match=r"in line 4, column 'tags'.* 'B-PER'"):
        load_examples(folder / "my.conll", label_names=["O", "B-ORG"])
    unnamed = pandas.DataFrame({"tokens": words, "ner": [["O", None], ["O"]]})
    with pytest.raises(ValueError, match=r"index 0, column 'ner': .*list of 2 labels"):
        load_examples(unnamed, **asked)
    unequal = pandas.DataFrame({"tokens": words, "ner": [["O", "O"], []]})
    with pytest.raises(ValueError, match=r"index 1, column 'ner': .*list of 1 labels"):
        load_examples(unequal, **asked)
    with pytest.raises(ValueError, match="`text` must be one column"):
        load_examples(unequal, text=("tokens", "ner"))


WPT = {"text": "w", "label": "t"}


@pytest.mark.parametrize(
    "content, message",
    [
        ("", r"my.csv must have at least one row. Received: no text"),
        ("\ufeff\n", r"my.csv must begin with names of columns. It is empty"),
        ("review,sentiment\ra,b\r", r"my.csv, line 1: .*new-line character"),
        ("review,sentiment\n\n", r"my.csv must have at least one row. Received: none"),
        ("reviews,sentiment\na,b\n", r"`text` must be .*my.csv.* is 'reviews'"),
        (
            "review,Sentiment\na,b\n",
            r"`label` must be .*'sentiment'; the .* 'Sentiment'",
        ),
        ("review,sentiment,review\n1,2,3\n", "different names. Received: 'review' 2"),
        (
            'review,sentiment\n"a\nb",1\n\nc\n',
            r"line 5: expected 2 values.* 1, \['c'\]",
        ),
        ("review,sentiment\na,b\na,b,c\n", r"my.csv, line 3: expected 2 values.*: 3"),
        (
            "review,sentiment\na,b\na, \n",
            r"line 3, column 'sentiment': expected a label",
        ),
        ('review,sentiment\na,b\n"a,b\nc,d\n', r"my.csv, line 3: .*unexpected end"),
        (b"review,sentiment\na,b\ncaf\xe9,b\n", r"my.csv, line 3: text must be UTF-8"),
    ],
)
def test_faults_of_a_file(content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path, {"my.csv": content}) / "my.csv")


def test_faults_of_other_tables(tmp_path):
    files = {
        "a.jsonl": '{"review": "a", "sentiment": "x"}\n\n{"review": "b"}\n',
        "b.jsonl": '{"review": "a", "sentiment": "x"}\n{"review": \n',
        "c.jsonl": '{"review": "a", "sentiment": "x"}\n["a"]\n',
        "d.json": '[{"review": 3, "sentiment": 1}]',
        "e.json": "[]",
        "f.json": '[\n{"review": 3},\n{]',
        "g.parquet": "no such thing",
    }
    folder = write(tmp_path, files)
    for name, message in {
        "a.jsonl": "line 3, column 'sentiment': expected a label. Received: None",
        "b.jsonl": "must be a JSON list, or .* in line 2: ",
        "c.jsonl": r"line 2: expected an object with \['review', 'sentiment'\].*'a'",
        "d.json": "item 0, column 'review': expected a text. Received: 3",
        "e.json": "must have at least one row",
        "f.json": "in line 3: ",
        "g.parquet": "must be a Parquet file",
    }.items():
        with pytest.raises(ValueError, match=f"{name}.*{message}"):
            load(folder / name)
    frame = pandas.DataFrame({"review": ["a", None], "sentiment": [1, np.nan]})
    with pytest.raises(ValueError, match="index 1, column 'review': expected a text"):
        load(frame)
    with pytest.raises(ValueError, match="index 1, column 'sentiment': expected a lab"):
        load(frame.fillna({"review": "b"}))
    with pytest.raises(ValueError, match="`text` must be a column of the DataFrame"):
        load(frame, text="rewiev")
    stream = datasets.IterableDataset.from_generator(lambda: iter([{"a": "b"}]))
    with pytest.raises(
        ValueError, match=r"`text` must be a column of the Dataset, .*'a'"
    ):
        load(stream)
    with pytest.raises(ValueError, match="the DataFrame must have at least one row"):
        load(frame[:0])
    with pytest.raises(FileNotFoundError, match="none.csv"):
        load(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="must be a path or .*Received: int"):
        load(3)


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="Data must be a path.*: a list of dict"):
        load_examples([{"text": "a", "label": 1}], text="text", label="label")
    path = written(tmp_path)
    with pytest.raises(ValueError, match="`text` must be the name of a column"):
        load_examples(path, label="sentiment")
    with pytest.raises(ValueError, match="`kind` must be one of .*'choice'"):
        load(path, kind="choice")
    with pytest.raises(ValueError, match="lists of words for .*'good, really'"):
        load(written(tmp_path, "my.jsonl"), kind="tagging")
    with pytest.raises(ValueError, match="`label_names` must be `None` without"):
        load(path, label=None, label_names=["a"])
    with pytest.raises(ValueError, match="different names"):
        load(path, label_names=["a", "a"])
    for given in ({"label": "sentiment"}, {"quoting": False}, {"delimiter": ","}):
        with pytest.raises(
            ValueError, match=f"`{[*given][0]}` must be given only with"
        ):
            load_examples("sst2", **given)
    for given in ({"delimiter": ";"}, {"header": ["review"]}, {"quoting": False}):
        for source in (written(tmp_path, "my.parquet"), pandas.DataFrame(COLUMNS)):
            with pytest.raises(ValueError, match="must be left out but for text files"):
                load(source, **given)
    with pytest.raises(ValueError, match="`delimiter` must be one character"):
        load(path, delimiter=", ")
    with pytest.raises(ValueError, match="`split` must be .train.*'test'"):
        load(path, split="test")
    with pytest.raises(ValueError, match="`data` must be `None` if the first"):
        load(path, data=path)


def test_parquet_without_its_library(tmp_path, monkeypatch):
    path = written(tmp_path, "my.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install keras-bertfam\[data\]"):
        load(path)


def test_validation_split(tmp_path):
    path = written(tmp_path)
    train, validation = load(path, validation_split=0.34)
    assert sorted(train.y) == [0, 0, 1, 1] and sorted(validation.y) == [0, 1]
    assert sorted([*train.x, *validation.x]) == sorted(REVIEWS)
    assert train.label_names == validation.label_names == ("neg", "pos")
    again = load(path, validation_split=0.34)[1]
    others = [load(path, validation_split=0.34, seed=n)[1].x for n in range(1, 6)]
    assert again.x == validation.x and any(x != validation.x for x in others)
    assert len(load(path, limit=4, validation_split=0.5)[1]) == 2


def test_lists_of_classes(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [{"t": "a", "l": ["x", "y"]}, {"t": "b", "l": []}, {"t": "c", "l": ["w"]}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = load_examples(path, text="t", label="l")
    assert found.task.kind == "multi_label" and found.label_names == ("w", "x", "y")
    assert (found.x, found.y) == (["a", "b", "c"], [["x", "y"], [], ["w"]])
    given = load_examples(path, text="t", label="l", label_names=["y", "x", "w", "v"])
    assert given.label_names == ("y", "x", "w", "v") and given.y == found.y
    assert compute_metrics(["micro_f1"], found.y, [["y"], ["w"], []]) == {
        "micro_f1": pytest.approx(2 / 5)
    }
    path.write_text(path.read_text() + json.dumps({"t": "d", "l": "x"}))
    with pytest.raises(ValueError, match="line 4.*list of classes. Received: 'x'"):
        load_examples(path, text="t", label="l")


@pytest.mark.parametrize(
    ("tags", "metric"),
    [
        ([["B-PER", "O"], ["O", "O"]], "entity_f1"),
        ([["B-PER", -100], ["O", "O"]], "entity_f1"),
        ([["NOUN", "CCONJ"], ["X", "NOUN"]], "word_accuracy"),
        ([[1, 0], [0, 0]], "word_accuracy"),
        ([["PER", "O"], ["O", "ORG"]], "word_accuracy"),
    ],
)
def test_metrics_of_tags(tags, metric, tmp_path):
    records = [{"tokens": ["EU", "sat"], "ner": row} for row in tags]
    path = tmp_path / "tags.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    examples = load_examples(path, text="tokens", label="ner")
    assert examples.task.metrics[0] == metric


def test_answers_behind_questions_without_one(tmp_path):
    found = {"text": ["a"], "answer_start": [4]}
    for none, some in (([], found), ("", json.dumps(found))):
        records = [
            {"q": "who", "c": "not a b", "answers": none},
            {"q": "who", "c": "not a b", "answers": some},
        ]
        path = tmp_path / "own.jsonl"
        path.write_text("\n".join(map(json.dumps, records)))
        examples = load_examples(path, text=["q", "c"], label="answers")
        assert examples.task.kind == "question_answering"
        assert [len(y["text"]) for y in examples.y] == [0, 1]


def test_zeros_and_ones_are_no_list_of_classes(tmp_path):
    records = [{"text": "a", "label": [1, 0, 1]}, {"text": "b", "label": [0, 0, 1]}]
    path = write(tmp_path, {"m.jsonl": "\n".join(map(json.dumps, records))}) / "m.jsonl"
    for names in (None, ["x", "y", "z"]):
        with pytest.raises(ValueError, match=r"each class once.*\[1, 0, 1\]"):
            load_examples(path, text="text", label="label", label_names=names)


@pytest.mark.parametrize(
    ("kind", "y"),
    [
        ("classification", None),
        ("regression", [-1.0, -1.0]),
        ("text_to_text", ["-1", "-1.0"]),
    ],
)
def test_labels_of_minus_one(kind, y, tmp_path):
    path = write(tmp_path, {"t.csv": "text,label\na,-1\nb,-1.0\n"}) / "t.csv"
    assert load_examples(path, text="text", label="label", kind=kind).y == y
