import csv
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.datasets import TASKS, Examples, TaskData, get_task, load_examples

TABLES = {
    name: task
    for name, task in TASKS.items()
    if task.kind in ("classification", "regression")
}


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8"))
    return folder


def squad_file(questions):
    paragraph = {"context": "Bert sat on a mat.", "qas": questions}
    return json.dumps({"data": [{"title": "Bert", "paragraphs": [paragraph]}]})


@pytest.mark.parametrize("name", [n for n, task in TASKS.items() if task.source])
def test_the_table_fits_tensorflow_datasets(name):
    """Columns, labels and splits are what TFDS declares, without a download."""
    tfds = pytest.importorskip("tensorflow_datasets")
    task = TASKS[name]
    for source in task.source:
        with tfds.testing.mock_data(num_examples=2):
            builder = tfds.builder(source)
        features = builder.info.features
        assert {*task.columns} <= features.keys()
        if task.kind in ("classification", "tagging"):
            labels = features[task.label]
            labels = getattr(labels, "feature", labels)
            assert tuple(labels.names) == task.label_names


@pytest.mark.parametrize(
    "name", ["glue/sst2", "glue/mnli", "stsb", "squad", "squad/v2.0", "conll2003"]
)
def test_loads_by_name(name):
    tfds = pytest.importorskip("tensorflow_datasets")
    with tfds.testing.mock_data(num_examples=5):
        examples = load_examples(name, "validation", limit=3)
    assert len(examples) == 3
    task = examples.task
    if task.kind == "question_answering":
        assert examples.x.keys() == {"question", "context"}
        assert examples.y[0].keys() == {"text", "answer_start"}
        assert len(examples.ids) == len(examples.titles) == 3
    elif task.kind == "tagging":
        assert {tag for tags in examples.y for tag in tags} <= {*task.label_names}
        assert isinstance(examples.x[0][0], str)
    else:
        columns = examples.x if len(task.columns) == 2 else (examples.x,)
        assert all(isinstance(text, str) for column in columns for text in column)
        kind = float if task.kind == "regression" else int
        assert all(isinstance(label, kind) for label in examples.y)


@pytest.mark.parametrize("name", ["sst2", "mnli", "stsb"])
def test_a_test_part_has_no_labels(name):
    """TFDS says -1 in the labels' type: a float for STS-B."""
    tfds = pytest.importorskip("tensorflow_datasets")

    def as_dataset(builder, *args, **kwargs):
        rows = {column: ["some text"] * 2 for column in TASKS[name].columns}
        rows["label"] = np.full(2, -1, builder.info.features["label"].np_dtype)
        return tf.data.Dataset.from_tensor_slices(rows)

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        examples = load_examples(name, "test")
    assert len(examples) == 2
    assert examples.y is None


def test_loads_text_by_name():
    tfds = pytest.importorskip("tensorflow_datasets")
    with tfds.testing.mock_data(num_examples=5):
        documents = load_examples("lm1b", "train", limit=2)
        assert len(list(documents)) == 2
    assert get_task("wikipedia/20230601.de").source == ("wikipedia/20230601.de",)


def test_loads_race_by_name(monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")
    rows = [
        {
            "article": b"Bert sat.",
            "questions": [b"Who _ ?", b"Where?"],
            "options": [[b"sat", b"ran"], [b"there", b"here"]],
            "answers": [b"A", b"B"],
        }
    ]
    loaded = []
    monkeypatch.setattr(tfds, "load", lambda name, split: loaded.append(name) or rows)
    monkeypatch.setattr(tfds, "as_numpy", lambda dataset: dataset)
    examples = load_examples("race", "validation")
    assert loaded == ["race/middle", "race/high"]
    passages, choices = examples.x
    assert passages == ["Bert sat."] * 4
    assert choices[0] == ["Who sat ?", "Who ran ?"]
    assert choices[1] == ["Where? there", "Where? here"]
    assert examples.y == [0, 1, 0, 1]


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


def test_stsb_and_mrpc(tmp_path):
    row = 'news\tf\t2012\t1\t{}\tA "cat.\tB.\textra\textra\r\n'
    folder = write(
        tmp_path,
        {
            "sts-train.csv": row.format("5.000"),
            "sts-dev.csv": row.format("2.4"),
            "sts-test.csv": row.format("0"),
            "bad.csv": row.format("5.2"),
            "msr_paraphrase_train.txt": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t"
            "#2 String\r\n1\t1\t2\tA.\tB.\r\n",
            "msr_paraphrase_test.txt": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t"
            "#2 String\n0\t1\t2\tC.\tD.\n",
        },
    )
    train = load_examples("stsb", "train", folder)
    assert (train.x, train.y) == ((['A "cat.'], ["B."]), [5.0])
    with pytest.raises(ValueError, match="from 0 to 5"):
        load_examples("stsb", "train", folder / "bad.csv")
    assert load_examples("mrpc", "train", folder).y == [1]
    assert load_examples("mrpc", "validation", folder).x == (["C."], ["D."])


def test_labels_are_of_all_rows_or_of_none(tmp_path):
    folder = write(
        tmp_path,
        {
            "short.tsv": "sentence\tlabel\na\t1\nb\nc\t0\n",
            "other.tsv": "sentence\tsentiment\na\t1\n",
            "train.tsv": "sentence\tsentiment\na\t1\n",
            "some.jsonl": '{"sentence": "a", "label": -1}\n{"sentence": "b"}\n',
            "signs.tsv": "sentence\tlabel\na\t-1\nb\t1\n",
        },
    )
    with pytest.raises(ValueError, match="'sst2' must all have 'label'.* row 2 of 3"):
        load_examples("sst2", data=folder / "short.tsv")
    for name in ("other.tsv", "some.jsonl"):
        assert load_examples("sst2", data=folder / name).y is None
    with pytest.raises(FileNotFoundError, match="labels in 'label' to train"):
        load_examples("sst2", data=folder)
    with pytest.raises(ValueError, match="Received: '-1'"):
        load_examples("sst2", data=folder / "signs.tsv")
    signs = dataclasses.replace(get_task("sst2"), label_names=("-1", "1"))
    assert load_examples(signs, data=folder / "signs.tsv").y == [0, 1]


def test_broken_rows_of_qqp_are_left_out(tmp_path):
    """A line end within a question makes two rows, one maybe with both questions."""
    lines = [
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "0\t1\t2\tWhy?\tWhy so?\t1",
        "1\t3\t4\tWho\tWhat",
        "is it?\t0",
        "2\t5\t6\tWhere?\tWhen?\t0",
        "3\t7\t8",
    ]
    text = "\n".join(lines) + "\n"
    files = {"train.tsv": text, "dev.tsv": "\n".join([lines[0], *lines[2:5]])}
    files["test.tsv"] = "id\tquestion1\tquestion2\n0\tWhy?\tHow?\n"
    folder = write(tmp_path, files)
    with pytest.warns(UserWarning, match=r"3 broken rows .*train.tsv, line 3:") as said:
        examples = load_examples("qqp", "train", folder)
    assert len(said) == 1 and said[0].filename == __file__
    assert (examples.x, examples.y) == (
        (["Why?", "Where?"], ["Why so?", "When?"]),
        [1, 0],
    )
    with pytest.warns(UserWarning, match="2 broken rows"):
        assert load_examples("qqp", "validation", folder).y == [0]
    assert load_examples("qqp", "test", folder).y is None
    strict = dataclasses.replace(TASKS["qqp"], skip_broken_rows=False)
    with pytest.raises(ValueError, match="line 4: expected at least 5 values"):
        load_examples(strict, "train", folder / "train.tsv")


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


def test_articles_are_kept_together(tmp_path):
    articles = [
        {"paragraphs": [{"context": text, "qas": [{"id": text, "question": "Who?"}]}]}
        for text in "abcde"
    ]
    for article, title in zip(articles, "ttuvv", strict=True):
        article["title"] = title
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"data": articles}))
    examples = load_examples("squad", data=path)
    first, second = examples.split_articles(2)
    assert (first.ids, second.ids) == (["a", "b", "c"], ["d", "e"])
    assert (first.titles, second.titles) == (["t", "t", "u"], ["v", "v"])
    shuffled = dataclasses.replace(examples, titles=["t", "u", "t", "v", "u"])
    first, second = shuffled.split_articles(2)
    assert (first.ids, first.titles) == (["a", "b", "c", "e"], ["t", "u", "t", "u"])
    assert first.x["context"] == ["a", "b", "c", "e"] and len(first.y) == 4
    assert (second.ids, second.titles) == (["d"], ["v"])
    for count in (0, 3):
        with pytest.raises(ValueError, match=f"articles, 3. Received: {count}"):
            examples.split_articles(count)
    with pytest.raises(ValueError, match="articles, 0. Received: 1"):
        Examples(["a"], [0], get_task("sst2")).split_articles(1)


def test_squad(tmp_path):
    answers = [{"text": "a mat", "answer_start": 12}] * 2
    questions = [
        {"id": "1", "question": "Where?", "answers": answers},
        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
    ]
    (tmp_path / "dev-v2.0.json").write_text(squad_file(questions))
    (tmp_path / "train-v2.0.json").write_text(squad_file(questions[:1]))
    examples = load_examples("squad/v2.0", "validation", tmp_path)
    assert examples.x["question"] == ["Where?", "Why?"]
    assert examples.x["context"] == ["Bert sat on a mat."] * 2
    assert examples.y[0] == {"text": ["a mat"] * 2, "answer_start": [12, 12]}
    assert examples.y[1] == {"text": [], "answer_start": []}
    assert examples.ids == ["1", "2"]
    assert examples[1:].ids == ["2"]
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
    row = {"context": "Bert sat.", "question": "Who _?", "choices": ["sat", "ran"]}
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


def test_a_task_of_ones_own(tmp_path):
    (tmp_path / "mine.tsv").write_text("text\tclass\nhello\tspam\n")
    mine = TaskData(
        "mine",
        "classification",
        columns=("text",),
        label="class",
        label_names=("ham", "spam"),
    )
    examples = load_examples(mine, data=tmp_path / "mine.tsv")
    assert (examples.x, examples.y) == (["hello"], [1])
    other = dataclasses.replace(mine, label_names=("ham",))
    with pytest.raises(ValueError, match="'spam'"):
        load_examples(other, data=tmp_path / "mine.tsv")


def test_errors(tmp_path):
    with pytest.raises(ValueError, match="`name` must be one of .*'sst3'"):
        load_examples("sst3")
    with pytest.raises(ValueError, match="`split` must be one of .*'dev'"):
        load_examples("sst2", "dev")
    with pytest.raises(ValueError, match="isn't in tensorflow_datasets"):
        load_examples("wnut17")
    with pytest.raises(FileNotFoundError, match=r"train.tsv, dev.tsv or train.tsv"):
        load_examples("sst2", "train", tmp_path)
    with pytest.raises(FileNotFoundError, match="none.tsv"):
        load_examples("sst2", "train", tmp_path / "none.tsv")
    (tmp_path / "short.tsv").write_text("label\tx\tsentence\n1\tx\n")
    with pytest.raises(ValueError, match="line 2: expected at least 3 values"):
        load_examples("sst2", data=tmp_path / "short.tsv")
    (tmp_path / "names.tsv").write_text("a\tb\n")
    with pytest.raises(ValueError, match="must begin with a line of names"):
        load_examples("qqp", data=tmp_path / "names.tsv")


@pytest.mark.data
@pytest.mark.parametrize(
    "name,folder,sizes",
    [
        ("sst2", "sst2", (67349, 872)),
        ("cola", "cola", (8551, 1043)),
        ("mrpc", "mrpc", (4076, 1725)),
        ("stsb", "stsb", (5749, 1500)),
        ("rte", "rte_glue", (2490, 277)),
        ("wnut17", "wnut17", (3394, 1009)),
        ("ud_ewt", "ud_ewt", (None, 2001)),
        ("squad", "squad11", (None, 10570)),
    ],
)
def test_real_data_has_its_published_size(data_dir, name, folder, sizes):
    for split, size in zip(("train", "validation"), sizes, strict=True):
        if size is not None:
            data = data_dir / folder
            if name == "squad":
                data = data / "dev-v1.1.json"
            examples = load_examples(name, split, data)
            assert len(examples) == size
            assert len(examples.y) == size


@pytest.mark.data
def test_real_questions_hold_their_answers(data_dir):
    examples = load_examples("squad", data=data_dir / "squad11" / "dev-v1.1.json")
    for context, answers in zip(examples.x["context"], examples.y, strict=True):
        for text, start in zip(*answers.values(), strict=True):
            assert context[start : start + len(text)] == text


def test_tsv_agrees_with_the_csv_module(tmp_path):
    rows = [["sentence", "label"], ['"x" y', "1"], ["'", "0"]]
    with open(tmp_path / "a.tsv", "w", newline="") as file:
        csv.writer(
            file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None
        ).writerows(rows)
    assert load_examples("sst2", data=tmp_path / "a.tsv").x == ['"x" y', "'"]
