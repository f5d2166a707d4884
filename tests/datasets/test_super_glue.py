"""SuperGLUE's tasks from files of the original's format, and their metrics."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.datasets import load_examples, super_glue
from keras_bertfam.datasets.examples import arrange
from keras_bertfam.datasets.task_data import TASKS, TaskData
from keras_bertfam.metrics import TaskMetrics, compute_metrics, squad_scores
from keras_bertfam.metrics.callback import predicted_labels

pytestmark = pytest.mark.any_backend

PASSAGE = "Ann Lee met Bob.\n@highlight\nBob left Zürich"
MULTIRC = {
    "idx": 4,
    "version": 1.1,
    "passage": {
        "text": "Ann has a cat. Bob has none.",
        "questions": [
            {
                "question": "Who has one?",
                "idx": 7,
                "answers": [
                    {"text": "Ann", "idx": 20, "label": 1},
                    {"text": "Bob", "idx": 21, "label": 0},
                ],
            },
            {
                "question": "Who hasn't?",
                "idx": 8,
                "answers": [{"text": "Bob", "idx": 22, "label": 1}],
            },
        ],
    },
}
RECORD = {
    "source": "Daily mail",
    "idx": 3,
    "passage": {
        "text": PASSAGE,
        # The ends are within; Bob is there twice.
        "entities": [
            {"start": 0, "end": 6},
            {"start": 12, "end": 14},
            {"start": 28, "end": 30},
            {"start": 37, "end": 42},
        ],
    },
    "qas": [
        {
            "query": "@placeholder came to Zürich.",
            "idx": 9,
            "answers": [
                {"start": 12, "end": 14, "text": "Bob"},
                {"start": 28, "end": 30, "text": "Bob"},
            ],
        },
        {
            "query": "Nobody met @placeholder.",
            "idx": 10,
            "answers": [{"start": 0, "end": 6, "text": "Ann Lee"}],
        },
    ],
}
# Of each task: lines, inputs, labels and numbers.
LINES = {
    "boolq": (
        [
            {"question": "is it", "passage": "It is.", "idx": 0, "label": True},
            {"question": "is he", "passage": "No.", "idx": 1, "label": False},
        ],
        (["It is.", "No."], ["is it", "is he"]),
        [1, 0],
        ["0", "1"],
    ),
    "cb": (
        [
            {"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 5},
            {"premise": "c", "hypothesis": "d", "label": "contradiction", "idx": 6},
        ],
        (["a", "c"], ["b", "d"]),
        [2, 1],
        ["5", "6"],
    ),
    "copa": (
        [
            {
                "premise": "It rained.",
                "choice1": "I got wet.",
                "choice2": "I slept.",
                "question": "effect",
                "label": 0,
                "idx": 0,
            },
            {
                "premise": "It fell.",
                "choice1": "It flew.",
                "choice2": "I pushed it.",
                "question": "cause",
                "label": 1,
                "idx": 1,
            },
        ],
        (
            ["It rained.", "It fell."],
            [
                [
                    "What happened as a result? I got wet.",
                    "What happened as a result? I slept.",
                ],
                [
                    "What was the cause of this? It flew.",
                    "What was the cause of this? I pushed it.",
                ],
            ],
        ),
        [0, 1],
        ["0", "1"],
    ),
    "multirc": (
        [MULTIRC],
        (
            [MULTIRC["passage"]["text"]] * 3,
            ["Who has one? Ann", "Who has one? Bob", "Who hasn't? Bob"],
        ),
        [1, 0, 1],
        ["4-7-20", "4-7-21", "4-8-22"],
    ),
    "record": (
        [RECORD],
        (
            [PASSAGE] * 6,
            [
                *(f"{e} came to Zürich." for e in ("Ann Lee", "Bob", "Zürich")),
                *(f"Nobody met {e}." for e in ("Ann Lee", "Bob", "Zürich")),
            ],
        ),
        [0, 1, 0, 1, 0, 0],
        ["3-9-0", "3-9-1", "3-9-2", "3-10-0", "3-10-1", "3-10-2"],
    ),
    "superglue_rte": (
        [{"premise": "a", "hypothesis": "b", "label": "not_entailment", "idx": 2}],
        (["a"], ["b"]),
        [1],
        ["2"],
    ),
    "wic": (
        [
            {
                "word": "place",
                "sentence1": "Do you want to come over to my place later?",
                "sentence2": "A political system with no place for the less prominent.",
                "idx": 0,
                "label": False,
                "start1": 31,
                "end1": 36,
                "start2": 27,
                "end2": 32,
                "version": 1.1,
            }
        ],
        {
            "text": [
                "Do you want to come over to my place later? A political system with "
                "no place for the less prominent."
            ],
            "first": [[31, 36]],
            "second": [[71, 76]],
        },
        [0],
        ["0"],
    ),
    "wsc": (
        [
            {
                "text": 'Mark told Pete "many lies" about himself, and he  said.',
                "target": {
                    "span1_index": 0,
                    "span1_text": "Mark",
                    "span2_index": 8,
                    "span2_text": "He",  # not as it is written there
                },
                "idx": 0,
                "label": True,
            },
            {
                "text": "A “many lies” man: Madonna's.",
                "target": {
                    "span1_index": 1,
                    "span1_text": "many lies",
                    "span2_index": 4,
                    "span2_text": "Madonna",
                },
                "idx": 1,
                "label": False,
            },
        ],
        {
            "text": [
                'Mark told Pete "many lies" about himself, and he  said.',
                "A “many lies” man: Madonna's.",
            ],
            "first": [[0, 4], [3, 12]],
            "second": [[46, 48], [19, 26]],
        },
        [1, 0],
        ["0", "1"],
    ),
    "ax_b": (
        [
            {
                "sentence1": "a",
                "sentence2": "b",
                "idx": 0,
                "label": "entailment",
                "logic": "Negation",
            }
        ],
        (["a"], ["b"]),
        [0],
        ["0"],
    ),
    "ax_g": (
        [
            {
                "premise": "a",
                "hypothesis": "b",
                "idx": 0,
                "label": "entailment",
                "pair_id": 551,
            }
        ],
        (["a"], ["b"]),
        [0],
        ["0"],
    ),
}
FILES = {"ax_b": "AX-b.jsonl", "ax_g": "AX-g.jsonl"}


def write(folder, name, lines, file="val.jsonl"):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (folder / FILES.get(name, file)).write_text(text, encoding="utf-8")


def without_labels(value):
    if isinstance(value, list):
        return [without_labels(part) for part in value]
    if not isinstance(value, dict):
        return value
    kept = {k: v for k, v in value.items() if k != "label"}
    # ReCoRD's questions have answers, MultiRC's keep theirs.
    if "query" in kept:
        del kept["answers"]
    return {k: without_labels(v) for k, v in kept.items()}


@pytest.mark.parametrize("name", LINES)
def test_original_files(name, tmp_path):
    lines, x, y, numbers = LINES[name]
    split = "test" if name in FILES else "validation"
    write(tmp_path, name, lines)
    examples = load_examples(name, split, tmp_path)
    assert (examples.x, examples.y, examples.ids) == (x, y, numbers)
    # Of questions with several examples all of the first one.
    first = {"multirc": 2, "record": 3}.get(name, 1)
    assert load_examples(name, split, tmp_path, limit=1).ids == numbers[:first]
    write(tmp_path, name, without_labels(lines), "test.jsonl")
    examples = load_examples(name, "test", tmp_path)
    assert (examples.x, examples.y, examples.targets) == (x, None, None)
    assert TASKS[name].can_be_learned == (split == "validation")


@pytest.mark.parametrize("name", LINES)
def test_other_keys_are_refused(name, tmp_path):
    line = LINES[name][0][0]
    split = "test" if name in FILES else "validation"
    broken = [({**line, "labels": 1}, r"Unknown: \['labels'\]")]
    short = {k: v for k, v in line.items() if k != "idx"}
    broken.append((short, r"line 2 must have .*Missing: \['idx'\]"))
    broken.append(({**line, "idx": "one"}, "'idx' must be of type int.*'one'"))
    broken.append(({**line, "idx": True}, "'idx' must be of type int"))
    broken.append(([line], "must be of type dict"))
    for row, message in broken:
        write(tmp_path, name, [line, row])
        with pytest.raises(ValueError, match=message):
            load_examples(name, split, tmp_path)


def changed(line, path, value):
    """Copy a line with a new value at a path of keys."""
    copy = list(line) if isinstance(line, list) else dict(line)
    key, *rest = path
    copy[key] = changed(line[key], rest, value) if rest else value
    return copy


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("multirc", ("passage", "title"), "x", "'passage' must have.*'title'"),
        (
            "multirc",
            ("passage", "questions", 1, "answers", 0, "x"),
            1,
            r"\[1\].*\['x'\]",
        ),
        ("record", ("passage", "entities", 0, "end"), 99, r"Received: \[0, 100\]"),
        ("record", ("qas", 0, "query"), "Nobody", "must have a @placeholder"),
        ("record", ("qas", 0, "answers", 0, "label"), 1, r"Unknown: \['label'\]"),
        ("copa", ("question",), "why", "one of .*'cause', 'effect'.*'why'"),
        ("wic", ("end2",), 99, r"record 1 of 1: A span.*\[27, 99\]"),
        ("wic", ("start1",), 36, r"Received: \[36, 36\]"),
        ("wsc", ("target", "span2_index"), 99, "'He', from word 99"),
        ("wsc", ("target", "span2_index"), -1, "'He', from word -1"),
        ("wsc", ("target", "span1_text"), " ", "must be words of its text"),
        ("cb", ("label",), "entails", "column 'label': A label of 'cb'"),
        ("boolq", ("label",), [1], "'label' must be of type bool or int or str"),
    ],
)
def test_wrong_values_are_refused(name, path, value, message, tmp_path):
    write(tmp_path, name, [changed(LINES[name][0][0], path, value)])
    with pytest.raises(ValueError, match=message):
        load_examples(name, "validation", tmp_path)


def test_records_are_those_of_tensorflow_datasets(tmp_path):
    """Of the same lines both make the same records."""
    builders = pytest.importorskip("tensorflow_datasets.text.super_glue")
    import tensorflow_datasets as tfds

    for name in LINES:
        source = TASKS[name].source[0]
        write(tmp_path, name, LINES[name][0])
        path = tmp_path / FILES.get(name, "val.jsonl")
        with tfds.testing.mock_data(num_examples=1):
            builder = tfds.builder(source)
        assert isinstance(builder, builders.SuperGlue)
        theirs = [record for _, record in builder._generate_examples(str(path), "test")]
        ours = super_glue.read(name, path)
        assert len(theirs) == len(ours)
        for one, other in zip(ours, theirs, strict=True):
            # They write WSC's spans anew where these aren't as in the text.
            same = other.keys() - {"label", "span1_text", "span2_text"}
            assert {key: one[key] for key in same} == {key: other[key] for key in same}


@pytest.mark.parametrize("name", ["record", "multirc", "wsc", "wic", "copa"])
def test_loads_by_name(name, tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    lines, x, y, numbers = LINES[name]
    write(tmp_path, name, lines)
    rows = super_glue.read(name, tmp_path / "val.jsonl")

    def spec_of(value):
        return tf.type_spec_from_value(tf.constant(value))

    def as_dataset(builder, *args, **kwargs):
        names = builder.info.features.keys()
        records = [
            {k: -1 if v is None else v for k, v in row.items() if k in names}
            for row in rows
        ]
        spec = {
            k: tf.nest.map_structure(
                lambda v: tf.type_spec_from_value(tf.constant(v)), v
            )
            for k, v in records[0].items()
        }
        for column in ("entities", "answers"):
            if column in spec:
                spec[column] = tf.TensorSpec([None], tf.string)
        return tf.data.Dataset.from_generator(lambda: records, output_signature=spec)

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        examples = load_examples(TASKS[name].source[0], "validation")
    assert (examples.x, examples.y, examples.ids) == (x, y, numbers)


def rows_of(name, folder):
    """Give records of `tensorflow_datasets`, and the examples of such a file."""
    task, numbers = TASKS[name], (2, 3, 10)
    if not task.super_glue:
        rows = [{column: "x" for column in task.columns} for _ in numbers]
        rows = [{**r, "label": 0, "idx": k} for r, k in zip(rows, numbers, strict=True)]
        return rows, arrange(task, rows)
    line = LINES[name][0][0]
    write(folder, name, [changed(line, ("idx",), k) for k in numbers])
    file = folder / FILES.get(name, "val.jsonl")
    return super_glue.read(name, file), load_examples(name, data=file)


@pytest.mark.parametrize(
    "name", [n for n, t in TASKS.items() if "glue/" in "".join(t.source)]
)
def test_records_that_are_shuffled_are_sorted(name, tmp_path, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")
    rows, examples = rows_of(name, tmp_path)
    monkeypatch.setattr(
        tfds, "load", lambda *args, **kwargs: tf.data.Dataset.range(len(rows))
    )
    order = np.random.default_rng(0).permutation(len(rows))
    order = order if list(order) != sorted(order) else order[::-1]

    def as_numpy(dataset):
        return [rows[order[number]] for number in dataset.as_numpy_iterator()]

    monkeypatch.setattr(tfds, "as_numpy", as_numpy)
    (split, *_) = sorted(TASKS[name].splits)
    found = load_examples(name, split)
    assert (found.x, found.ids) == (examples.x, examples.ids)
    if TASKS[name].super_glue:  # questions and pairs are whole
        some = load_examples(name, split, limit=2)
        assert some.ids == examples.take(2).ids
        assert len(some) == {"multirc": 3, "record": 6}.get(name, 2)


@pytest.mark.parametrize("name", sorted({*LINES} - {"multirc"}))
def test_what_a_limit_leaves_out_is_not_prepared(name, tmp_path, monkeypatch):
    prepared, prepare = [], super_glue.prepare
    monkeypatch.setattr(
        super_glue, "prepare", lambda *row: prepared.append(row) or prepare(*row)
    )
    write(tmp_path, name, LINES[name][0] * 5)
    path = tmp_path / FILES.get(name, "val.jsonl")
    load_examples(name, data=path, limit=1)
    assert len(prepared) == 1


class Model:
    """Gives the outputs it is told, whatever the examples."""

    def __init__(self, outputs, label_names=None):
        self.outputs, self.label_names = np.array(outputs), label_names

    def predict(self, x, **kwargs):
        return self.outputs


def test_answers_to_a_question_count_together(tmp_path):
    write(tmp_path, "multirc", [MULTIRC])
    examples = load_examples("multirc", "validation", tmp_path)
    assert examples.targets == [[1, 0], [1]]
    found = [1, 1, 1]
    model = Model(np.eye(2)[found])
    assert predicted_labels(model, examples) == [[1, 1], [1]]
    scores = TaskMetrics(examples).compute(model)
    # A precision of 2 in 3, all that is right found; one question of two.
    assert scores == {"answers_f1": pytest.approx(0.8), "answers_match": 0.5}
    swapped = Model(np.eye(2)[found][:, ::-1], ["True", "False"])
    assert predicted_labels(swapped, examples) == [[1, 1], [1]]


def test_the_most_probable_entity_is_the_answer(tmp_path):
    write(tmp_path, "record", [RECORD])
    examples = load_examples("record", "validation", tmp_path)
    assert examples.targets == [{"text": ["Bob"]}, {"text": ["Ann Lee"]}]
    # None is more probably an answer than not, and yet one is chosen.
    logits = [[3, 0], [3, 1], [3, 0.5], [5, 1], [5, 1], [5, 2]]
    assert predicted_labels(Model(logits), examples) == ["Bob", "Zürich"]
    scores = TaskMetrics(examples).compute(Model(logits))
    assert scores == {"squad_f1": 50.0, "squad_exact_match": 50.0}
    # Half an answer has half the words, of which all are right.
    assert squad_scores([{"text": ["Ann Lee"]}], ["Ann"])["f1"] == pytest.approx(
        200 / 3
    )


def test_parts_of_a_question_stay_together(tmp_path):
    lines = [changed(MULTIRC, ("idx",), k) for k in range(4)]
    write(tmp_path, "multirc", lines)
    parts = load_examples("multirc", "validation", tmp_path, validation_split=0.25)
    assert [len(part.targets) for part in parts] == [6, 2]
    own, others = ({n.rpartition("-")[0] for n in part.ids} for part in parts)
    assert not own & others and len(own | others) == 8
    write(tmp_path, "record", [RECORD])
    first, second = load_examples(
        "record", "validation", tmp_path, validation_split=0.5
    )
    assert len(first) == len(second) == 3 == len(first.candidates)
    with pytest.raises(ValueError, match="must have numbers as `idx`"):
        dataclasses.replace(first, ids=None).by_question(first.y)
    with pytest.raises(ValueError, match="must have numbers as `idx`.*'3'"):
        dataclasses.replace(first, ids=["3", "4", "5"]).by_question(first.y)
    with pytest.raises(ValueError, match="`candidates` must be given.*'record'"):
        type(first)(first.x, first.y, first.task)


def test_questions_of_ones_own(tmp_path):
    path = tmp_path / "mine.jsonl"

    def load(kind, *records, **kwargs):
        rows = [{"a": "x", "b": "y", "label": 1, **record} for record in records]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        task = TaskData("mine", kind, columns=("a", "b"), label_names=("no", "yes"))
        return load_examples(task, data=path, **kwargs)

    rows = [{"idx": k} for k in ("p-0", "q-0", "p-1")]
    assert load("answer_sets", *rows).targets == [[1, 1], [1]]
    assert load("answer_sets", *rows, limit=1).ids == ["p-0", "p-1"]
    with pytest.raises(ValueError, match="'mine' must have numbers as `idx`.*'7'"):
        _ = load("answer_sets", {"idx": 7}, {"idx": 8}).targets
    with pytest.raises(
        ValueError, match=r"'mine' must have .*Missing: \['candidate'\]"
    ):
        load("candidates", *rows)
    rows = [{**row, "candidate": [row["idx"], ["p-1"]]} for row in rows]
    assert load("candidates", *rows).targets == [{"text": ["p-1"]}] * 2


def test_metrics_are_those_of_their_definitions():
    rng = np.random.default_rng(0)
    y, found = rng.integers(0, 2, (2, 60)).tolist()  # class 2 is in neither
    f1 = [
        2
        * sum(a == b == k for a, b in zip(y, found, strict=True))
        / max(y.count(k) + found.count(k), 1)
        for k in range(3)
    ]
    scores = compute_metrics(["cb_f1", "macro_f1"], y, found)
    assert scores["cb_f1"] == pytest.approx(np.mean(f1))
    assert scores["macro_f1"] == pytest.approx(np.mean(f1[:2]))
    sizes = np.cumsum([5, 1, 20, 30])
    rows = [
        [part.tolist() for part in np.split(labels, sizes)] for labels in (y, found)
    ]
    rows[1][1] = rows[0][1]
    flat = [np.concatenate(part) for part in rows]
    scores = compute_metrics(["answers_f1", "answers_match"], *rows)
    right = np.sum(flat[0] * flat[1])
    assert scores["answers_f1"] == pytest.approx(2 * right / (flat[0] + flat[1]).sum())
    assert scores["answers_match"] == np.mean(
        [a == b for a, b in zip(*rows, strict=True)]
    )
    assert compute_metrics(["gender_parity"], y, found)["gender_parity"] == np.mean(
        np.array(found[::2]) == found[1::2]
    )
    # The last of three has no other.
    assert compute_metrics(["gender_parity"], y[:3], [1, 1, 0]) == {"gender_parity": 1}
    assert compute_metrics(["gender_parity"], [1], [1]) == {"gender_parity": 0}
