import dataclasses

import numpy as np
import pandas
import pytest
import tensorflow as tf

from keras_bertfam.datasets import load_examples
from keras_bertfam.datasets.task_data import TASKS, TaskData, get_task
from tests.written_files import write

TABLES = {
    name: task
    for name, task in TASKS.items()
    if task.kind in ("classification", "regression")
}


@pytest.mark.parametrize("name", [n for n, task in TASKS.items() if task.source])
def test_the_table_fits_tensorflow_datasets(name, tmp_path):
    """Columns, labels and splits are what TFDS declares, without a download."""
    tfds = pytest.importorskip("tensorflow_datasets")
    task = TASKS[name]
    for source in task.source:
        # Reads the list of downloads; what that needs, the mocks don't.
        builder = tfds.builder(source, data_dir=tmp_path)
        # Of some the files have to be fetched by hand.
        assert builder.url_infos != {} or builder.MANUAL_DOWNLOAD_INSTRUCTIONS
        with tfds.testing.mock_data(num_examples=2):
            builder = tfds.builder(source)
        features = builder.info.features
        # Spans have columns of their own, and AX-b's are named as RTE's.
        if task.kind != "relations" and name != "ax_b":
            assert {*task.columns} <= features.keys()
        if task.kind in ("classification", "tagging", "relations", "answer_sets"):
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


def test_tables_with_commas_and_parquet(tmp_path):
    columns = {"sentence": ["good, really", "bad"], "label": [1, 0]}
    frame = pandas.DataFrame(columns)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_json(tmp_path / "a.ndjson", orient="records", lines=True)
    frame.to_csv(tmp_path / "tabs.csv", sep="\t", index=False)
    for name in ("a.csv", "a.parquet", "a.ndjson", "tabs.csv"):
        examples = load_examples("sst2", "validation", data=tmp_path / name)
        assert (examples.x, examples.y) == (columns["sentence"], [1, 0]), name
    frame[["sentence"]].to_csv(tmp_path / "test.csv", index=False)
    assert load_examples("sst2", "test", data=tmp_path / "test.csv").y is None
    scores = pandas.DataFrame({"sentence1": ["a"], "sentence2": ["b"], "label": [2.5]})
    scores.to_csv(tmp_path / "b.csv", index=False)
    assert load_examples("stsb", data=tmp_path / "b.csv").y == [2.5]


@pytest.mark.parametrize("named", [True, False])
def test_questions_of_several_parquet_files(named, tmp_path):
    files = []
    for number in range(2):
        answers = [{"text": ["Bonn"], "answer_start": [0]}] * 2
        columns = {"context": ["Bonn is.", "Bonn was."], "question": ["a?", "b?"]}
        columns |= {"answers": answers}
        if named:
            columns |= {"id": [f"{number}x", f"{number}y"], "title": ["Bonn", "Bert"]}
        files.append(tmp_path / f"v-{number}.parquet")
        pandas.DataFrame(columns).to_parquet(files[-1])
    examples = load_examples("squad", "validation", data=files)
    assert examples.ids == (["0x", "0y", "1x", "1y"] if named else [*"0123"])
    assert examples.titles == (["Bonn", "Bert"] * 2 if named else [""] * 4)


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
    # Beside GLUE's files, which GLUE's script makes of the corpus.
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    for part in ("train", "dev", "test"):
        (folder / f"{part}.tsv").write_text(f"{head}1\t1\t2\t{part}\tE.\n")
    for split, part in {"train": "train", "validation": "dev", "test": "test"}.items():
        assert load_examples("mrpc", split, folder).x == ([part], ["E."])


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
    with pytest.raises(FileNotFoundError, match="labels in 'label' for 'sst2'"):
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
        ("multi30k", "multi30k", (29000, 1014)),
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


def test_a_wrong_folder_is_said_to_be_another(tmp_path):
    names = ("train-v1.1.json", "dev-v1.1.json")
    write(tmp_path / "squad" / "v1", {name: {"data": []} for name in names})
    expected = {
        ("squad_v2", tmp_path / "squad" / "v1"): (
            "`data` must be the folder of 'squad_v2', with train-v2.0.json or "
            "train*.parquet or train*.csv for its split 'train'. Received: ",
            "which has dev-v1.1.json, train-v1.1.json, the files of 'squad'.",
        ),
        ("squad", tmp_path / "squad"): ("which has v1; they are in '", "/squad/v1'."),
        ("sst2", tmp_path): ("which has squad.", ""),
    }
    for (task, folder), words in expected.items():
        with pytest.raises(FileNotFoundError) as caught:
            load_examples(task, data=folder)
        for each in words:
            assert each in str(caught.value)


def test_the_column_that_is_taken_is_not_the_nearest(tmp_path):
    path = write(tmp_path, {"own.csv": "sentence,label\na,b\n"}) / "own.csv"
    with pytest.raises(ValueError, match="one of .*'label'.*'sentiment'\\.$"):
        load_examples(path, text="sentence", label="sentiment")
    with pytest.raises(ValueError, match="'labels'; the nearest is 'label'"):
        load_examples(path, text="sentence", label="labels")
