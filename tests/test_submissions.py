"""What is written for GLUE's and SuperGLUE's sites, and SQuAD's official script."""

import functools
import json
import zipfile

import pytest
from typer.testing import CliRunner

from keras_bertfam.cli import (
    finetuning,
    finetuning_heads,
    finetuning_text,
    glue,
    submissions,
)
from keras_bertfam.cli.app import app
from keras_bertfam.datasets import Examples
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.metrics import squad_scores
from tests import tiny_fine_tuning, tiny_questions
from tests.datasets.test_super_glue import LINES, changed, without_labels, write

pytestmark = pytest.mark.any_backend

PAIR = "index\tsentence1\tsentence2\n0\ta\tb\n1\tc\td\n"
NLI = "index\tpromptID\tsentence1\tsentence2\n0\t7\ta\tb\n1\t8\tc\td\n"
# GLUE's test files: what they are, and predictions with what is written for them.
GLUE = {
    "cola": ("test.tsv", "index\tsentence\n0\ta\n1\tb\n", [1, 0], ["1", "0"]),
    "sst2": ("test.tsv", "index\tsentence\n0\ta\n1\tb\n", [1, 0], ["1", "0"]),
    "mrpc": (
        "test.tsv",
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t5\t6\ta\tb\n1\t7\t8\tc\td\n",
        [0, 1],
        ["0", "1"],
    ),
    "stsb": (
        "test.tsv",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\t"
        "sentence2\n0\tg\tf\ty\t3\ts\ts\ta\tb\n1\tg\tf\ty\t4\ts\ts\tc\td\n",
        [2.34567, 5.1],
        ["2.346", "5.000"],
    ),
    "qqp": (
        "test.tsv",
        # A broken row is left out, and the others keep their numbers.
        "id\tquestion1\tquestion2\n0\ta\tb\n1\tbroken\n2\tc\td\n",
        [1, 0],
        ["1", "0"],
    ),
    "qnli": (
        "test.tsv",
        "index\tquestion\tsentence\n0\ta\tb\n1\tc\td\n",
        [0, 1],
        ["entailment", "not_entailment"],
    ),
    "rte": ("test.tsv", PAIR, [1, 0], ["not_entailment", "entailment"]),
    "wnli": ("test.tsv", PAIR, [1, 0], ["1", "0"]),
    "mnli": ("test_matched.tsv", NLI, [2, 1], ["contradiction", "neutral"]),
}
NAMES = {
    "cola": "CoLA.tsv",
    "sst2": "SST-2.tsv",
    "mrpc": "MRPC.tsv",
    "stsb": "STS-B.tsv",
    "qqp": "QQP.tsv",
    "qnli": "QNLI.tsv",
    "rte": "RTE.tsv",
    "wnli": "WNLI.tsv",
    "mnli": "MNLI-m.tsv",
}
# SuperGLUE's: predictions, and the lines for them.
ANSWERS = {
    "boolq": ("BoolQ", [1, 0], ["true", "false"]),
    "cb": ("CB", [1, 0], ["contradiction", "entailment"]),
    "copa": ("COPA", [1, 0], [1, 0]),
    "superglue_rte": ("RTE", [1], ["not_entailment"]),
    "wic": ("WiC", [1], ["true"]),
    "wsc": ("WSC", [0, 1], ["False", "True"]),
}


def written(name, folder, predictions, said=None):
    """Load a task's test parts, and write predictions by files' names."""
    report = [].append if said is None else said.append
    parts = submissions.load_parts(TASKS[name], str(folder), None, report)
    given = {id(part): predictions[file] for file, part in parts.items()}
    submissions.write(TASKS[name], parts, lambda part: given[id(part)], folder, report)
    return parts


@pytest.mark.parametrize("name", GLUE)
@pytest.mark.filterwarnings("ignore:.*broken rows")
def test_files_for_glue(name, tmp_path):
    file, text, predictions, labels = GLUE[name]
    (tmp_path / file).write_text(text)
    said = []
    written(name, tmp_path, {NAMES[name]: predictions}, said)
    numbers = ["0", "2"] if name == "qqp" else ["0", "1"]
    rows = [
        f"{number}\t{label}\n" for number, label in zip(numbers, labels, strict=True)
    ]
    expected = "".join(["index\tprediction\n", *rows])
    assert (tmp_path / NAMES[name]).read_text() == expected
    assert said[-1] == f"Wrote {tmp_path / NAMES[name]}."
    if name == "mnli":
        assert said[0].startswith("No MNLI-mm.tsv: `data` must be the folder of 'mnli'")
        assert "'test_mismatched'" in said[0] and str(tmp_path) in said[0]
        assert said[1].startswith("No AX.tsv: `data` must be the folder of 'ax'")
    (tmp_path / file).unlink()
    assert written(name, tmp_path, {}) == {}


@pytest.mark.parametrize("folder", ["MNLI", "diagnostic", "AX", "ax"])
def test_diagnostics_are_beside_mnli(folder, tmp_path):
    # One without the file may be before it.
    for part in ("MNLI", folder, "A-X"):
        (tmp_path / part).mkdir(exist_ok=True)
    (tmp_path / "MNLI" / "test_mismatched.tsv").write_text(NLI)
    (tmp_path / folder / "diagnostic.tsv").write_text(PAIR)
    predictions = {"MNLI-mm.tsv": [0, 2], "AX.tsv": [1, 1]}
    written("mnli", tmp_path / "MNLI", predictions)
    for name, labels in {
        "MNLI-mm.tsv": ["entailment", "contradiction"],
        "AX.tsv": ["neutral"] * 2,
    }.items():
        expected = f"index\tprediction\n0\t{labels[0]}\n1\t{labels[1]}\n"
        assert (tmp_path / "MNLI" / name).read_text() == expected


def lines_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("name", ANSWERS)
def test_files_for_super_glue(name, tmp_path):
    file, predictions, labels = ANSWERS[name]
    lines, _, _, numbers = LINES[name]
    write(tmp_path, name, without_labels(lines), "test.jsonl")
    written(name, tmp_path, {f"{file}.jsonl": predictions})
    assert lines_of(tmp_path / f"{file}.jsonl") == [
        {"idx": int(number), "label": label}
        for number, label in zip(numbers, labels, strict=True)
    ]


def test_answers_to_questions_for_super_glue(tmp_path):
    (line,), *_ = LINES["multirc"]
    more = changed(line, ("idx",), 5)
    write(tmp_path, "multirc", without_labels([line, more]), "test.jsonl")
    written("multirc", tmp_path, {"MultiRC.jsonl": [[1, 0], [1], [0, 0], [1]]})

    def passage(number, first, second):
        one = [{"idx": 20 + k, "label": label} for k, label in enumerate(first)]
        other = [{"idx": 22, "label": label} for label in second]
        questions = [{"idx": 7, "answers": one}, {"idx": 8, "answers": other}]
        return {"idx": number, "passage": {"questions": questions}}

    expected = [passage(4, [1, 0], [1]), passage(5, [0, 0], [1])]
    assert lines_of(tmp_path / "MultiRC.jsonl") == expected
    write(tmp_path, "record", without_labels(LINES["record"][0]), "test.jsonl")
    written("record", tmp_path, {"ReCoRD.jsonl": ["Bob", "Zürich"]})
    text = '{"idx": 9, "label": "Bob"}\n{"idx": 10, "label": "Zürich"}\n'
    assert (tmp_path / "ReCoRD.jsonl").read_text("utf-8") == text


def test_diagnostics_of_super_glue_are_scored(tmp_path):
    lines = {}
    for name, folder in {
        "ax_b": "AX-b",
        "ax_g": "AX-g",
        "superglue_rte": "RTE",
    }.items():
        (tmp_path / folder).mkdir()
        (line,), *_ = LINES[name]
        labels = ["entailment", "not_entailment"] * 2
        lines[name] = [
            {**line, "idx": k, "label": label} for k, label in enumerate(labels)
        ]
        if name == "superglue_rte":
            lines[name] = without_labels(lines[name])
        write(tmp_path / folder, name, lines[name], "test.jsonl")
    said = []
    predictions = {f"{name}.jsonl": [0, 1, 0, 0] for name in ("RTE", "AX-b", "AX-g")}
    parts = written("superglue_rte", tmp_path / "RTE", predictions, said)
    assert [*parts] == ["RTE.jsonl", "AX-b.jsonl", "AX-g.jsonl"]
    # Matthews: 2 of 4 by (2 * 1 - 0 * 1) / sqrt(2 * 3 * 1 * 2).
    assert "ax_b: matthews 0.5774" in said
    assert "ax_g: accuracy 0.7500, gender_parity 0.5000" in said
    assert not any(line.startswith("superglue_rte:") for line in said)
    assert lines_of(tmp_path / "RTE" / "AX-g.jsonl")[1] == {
        "idx": 1,
        "label": "not_entailment",
    }


def test_wnli_gets_its_majority_and_all_goes_in_one_file(tmp_path):
    wnli, output, said = tmp_path / "WNLI", tmp_path / "output", []
    wnli.mkdir()
    rows = "".join(f"{k}\ta\tb\t{label}\n" for k, label in enumerate([1, 0, 0]))
    (wnli / "train.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n{rows}")
    (wnli / "dev.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n{rows}")
    assert not submissions.write_majority("wnli", wnli, output / "wnli", said.append)
    (wnli / "test.tsv").write_text(PAIR)
    for name, text in {"rte": "index\tprediction\n", "cola": "x"}.items():
        (output / name).mkdir(parents=True)
        (output / name / NAMES[name]).write_text(text)
        (output / name / "notes.tsv").write_text("mine")
    done = glue._write_majority(tmp_path, output, said.append, glue.GLUE)
    trained = [output / name for name in ("cola", "rte", "qnli")]
    submissions.write_zip(output / "glue.zip", [*trained, *done], said.append)
    with zipfile.ZipFile(output / "glue.zip") as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert files == {
        "CoLA.tsv": "x",
        "RTE.tsv": "index\tprediction\n",
        "WNLI.tsv": "index\tprediction\n0\t0\n1\t0\n",
    }
    assert "its files say 'not_entailment' for every" in said[-2]
    assert said[-1] == f"Wrote {output / 'glue.zip'}: CoLA.tsv, RTE.tsv, WNLI.tsv."
    # That of an earlier run doesn't stay.
    submissions.write_zip(output / "glue.zip", [tmp_path / "gone"], said.append)
    assert not (output / "glue.zip").exists()
    (wnli / "train.tsv").unlink()
    assert glue._write_majority(tmp_path, output, said.append, glue.GLUE) == []
    assert said[-1].startswith("wnli is left out: `data` must be the folder of 'wnli'")


LABELS = {"mrpc": "Quality", "qqp": "is_duplicate", "stsb": "score"}
LABELS |= {"mnli": "gold_label", "qnli": "label", "wnli": "label"}


def labelled(name, text):
    """Add labels to a test file of GLUE."""
    head, *rows = text.splitlines()
    names = TASKS[name].label_names or ("0",)
    rows = [f"{row}\t{names[0]}" for row in rows if "broken" not in row]
    return "\n".join([f"{head}\t{LABELS.get(name, 'label')}", *rows, ""])


def write_benchmark(title, folder):
    """Write all parts of all tasks, and list each task's name and test file."""
    found = []
    for name in (glue.OFFICIAL, glue.SUPER_OFFICIAL)[title == "all-superglue"]:
        place = folder / name
        place.mkdir(parents=True)
        if title == "all-superglue":
            lines, file = LINES[name][0], "test.jsonl"
            for part in ("train", "val"):
                write(place, name, lines, f"{part}.jsonl")
            write(place, name, without_labels(lines), file)
        else:
            file, text, *_ = GLUE[name]
            (place / file).write_text(text)
            ends = ("_matched", "_mismatched") if name == "mnli" else ("",)
            for part in ("train", *(f"dev{end}" for end in ends)):
                (place / f"{part}.tsv").write_text(labelled(name, text))
        found.append((name, place / file))
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("way", [finetuning_heads, finetuning_text])
@pytest.mark.parametrize("title", glue.BENCHMARKS)
@pytest.mark.filterwarnings("ignore:.*broken rows")
def test_all_is_checked_before_the_first_is_trained(title, way, packed, tmp_path):
    tests = dict(write_benchmark(title, tmp_path / "data"))
    benchmark, trained, said = glue.BENCHMARKS[title], [], []
    why_not = functools.partial(
        finetuning._why_not, way=way, packed=packed, limit=None, tests=True
    )

    def finetune(task, **kwargs):
        trained.append(task)
        return dict.fromkeys(benchmark.official[task], 0.5)

    arguments = (finetune, why_not, tmp_path / "data", tmp_path / "output")
    found = glue.finetune_all(*arguments, said.append, benchmark)
    others = {"copa", "wic", "wsc", "multirc", "record"} & {*tests}
    if way is finetuning_heads:
        others = {"copa"} & {*tests} if packed else {}
    assert trained == [name for name in tests if name not in others]
    assert {*others} == {name for name in found["missing"] if "," not in name}
    assert all(found["missing"][name].startswith("`") for name in others)
    for name in trained.copy():
        text = tests[name].read_text()
        head = text.splitlines()[0]
        broken = "{}\n" if name in glue.SUPER_OFFICIAL else f"{head}\n1\n"
        tests[name].write_text(broken)
        trained.clear()
        with pytest.raises(ValueError):
            glue.finetune_all(*arguments, said.append, benchmark)
        assert not trained
        tests[name].write_text(text)


@pytest.mark.parametrize("name", GLUE)
@pytest.mark.filterwarnings("ignore:.*broken rows")
def test_what_has_labels_is_no_test_part(name, tmp_path):
    file, text, *_ = GLUE[name]
    (tmp_path / file).write_text(labelled(name, text))
    said = []
    parts = submissions.load_parts(TASKS[name], str(tmp_path), None, said.append)
    assert not parts
    assert f"No {NAMES[name]}: the labels of {name!r}" in said[0]


def test_folders_of_two_benchmarks(tmp_path):
    for name in ("rte", "superglue_rte", "SuperGLUE-BoolQ", "CoLA", "cola"):
        (tmp_path / name).mkdir()
    first, second = (glue.find_tasks(tmp_path, b)[0] for b in glue.BENCHMARKS.values())
    assert first == {name: str(tmp_path / name) for name in ("cola", "rte")}
    assert second["superglue_rte"] == str(tmp_path / "superglue_rte")
    assert second["boolq"] == str(tmp_path / "SuperGLUE-BoolQ") and len(second) == 2
    (tmp_path / "rte").rename(tmp_path / "RTE")
    assert glue.find_tasks(tmp_path)[0]["rte"] == str(tmp_path / "RTE")


@pytest.mark.parametrize("name", submissions.FILES)
def test_diagnostics_have_the_columns_of_what_is_learned(name):
    for file in submissions.FILES[name]:
        other = TASKS[file.task or name]
        assert other.columns == TASKS[name].columns
        prefixes = [task.prefix or task.name for task in (other, TASKS[name])]
        assert prefixes[0] == prefixes[1]


def test_names_of_folders():
    names = {
        "SST-2": "sst2",
        "rte_glue": "rte",
        "superglue_rte": "rte",
        "SuperGLUE-BoolQ": "boolq",
        "super_glue_wic": "wic",
        "AX-b": "axb",
    }
    assert {name: submissions.folder_name(name) for name in names} == names
    assert {*submissions.FILES} == {*glue.OFFICIAL, *glue.SUPER_OFFICIAL, "wnli"}


def test_super_glues_average(tmp_path):
    # BERT's of Wang et al., 2019, table 3, without the diagnostics: 69.0.
    found = {
        "boolq": {"accuracy": 0.774},
        "cb": {"cb_f1": 0.757, "accuracy": 0.836},
        "copa": {"accuracy": 0.706},
        "multirc": {"answers_f1": 0.700, "answers_match": 0.240},
        "record": {"squad_f1": 72.0, "squad_exact_match": 71.3},
        "superglue_rte": {"accuracy": 0.716},
        "wic": {"accuracy": 0.695},
        "wsc": {"accuracy": 0.643},
    }
    said = glue.summary(found, {}, glue.SUPER_GLUE)
    assert said["tasks"]["record"]["score"] == pytest.approx(71.65)
    assert round(said["average"], 1) == 69.0 and not said["missing"]
    assert "as on SuperGLUE's leaderboard." in glue.table(said, glue.SUPER_GLUE)
    for name in ("RTE", "BoolQ"):
        (tmp_path / name).mkdir()
    places, missing = glue.find_tasks(tmp_path, glue.SUPER_GLUE)
    assert [*places] == ["boolq", "superglue_rte"] and len(missing) == 6


@pytest.mark.slow
def test_answers_are_scored_to_the_same_figures(tmp_path):
    x, y = tiny_questions.questions(24, impossible=0.5, sentences=(1, 2))
    model = tiny_questions.make_model()
    facts, numbers = TASKS["squad_v2"], [f"q{k}é" for k in range(24)]
    examples = Examples(x, y, facts, numbers)
    submissions.write_answers(model, examples, tmp_path, [].append)
    assert not (tmp_path / "null_odds.json").exists()
    scores = finetuning_heads.Scores(examples).compute(model)
    submissions.write_answers(model, examples, tmp_path, [].append)
    said = json.loads((tmp_path / "predictions.json").read_text("utf-8"))
    odds = json.loads((tmp_path / "null_odds.json").read_text("utf-8"))
    assert [*said] == numbers == [*odds]
    official = squad_scores(y, [said[number] for number in numbers])
    assert official["f1"] == pytest.approx(scores["squad_f1"])
    assert official["exact_match"] == pytest.approx(scores["squad_exact_match"])
    # The official script's default, 1, cuts nothing more.
    assert all(0 <= share <= 1 for share in odds.values())
    assert [share > 0.5 for share in odds.values()] == [t == "" for t in said.values()]
    assert 0 < sum(text == "" for text in said.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multirc", "record", "copa", "wic"])
def test_super_glue_from_files_to_a_file(name, tmp_path):
    preset, data, best = (tmp_path / part for part in ("preset", "data", "best"))
    tiny_fine_tuning.make_backbone(num_layers=1).save_to_preset(preset)
    tiny_fine_tuning.make_tokenizer().save_to_preset(preset)
    data.mkdir()
    lines, *_ = LINES[name]
    for part in ("train", "val"):
        write(data, name, lines, f"{part}.jsonl")
    write(data, name, without_labels(lines), "test.jsonl")
    arguments = f"finetune --task {name} --preset {preset} --data {data} --epochs 1"
    arguments += f" --learning-rate 1e-3 --batch-size 4 --output {best}"
    done = CliRunner().invoke(app, [*arguments.split(), "--sequence-length", "24"])
    assert done.exit_code == 0, done.output
    assert all(f"{metric} " in done.output for metric in TASKS[name].metrics)
    (file,) = (file.name for file in submissions.FILES[name])
    found = lines_of(best / file)
    assert {line["idx"] for line in found} <= {0, 1, 4, 9, 10} and found
