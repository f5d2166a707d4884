"""All tasks of GLUE by one command, and the official average."""

import json
import zipfile

import pytest

from keras_bertfam.cli import finetuning, glue, submissions
from keras_bertfam.cli.app import app
from tests.tiny_fine_tuning import make_backbone, make_tokenizer, texts

pytestmark = pytest.mark.any_backend

# BERT large's on the leaderboard, where it has 80.5; the numbers are those of Devlin
# et al., 2018, table 1, and of the leaderboard for what isn't there.
LARGE = {
    "cola": {"matthews": 0.605, "accuracy": 0.9},  # no official metric
    "sst2": {"accuracy": 0.949},
    "mrpc": {"f1": 0.893, "accuracy": 0.854},
    "stsb": {"pearson": 0.876, "spearman": 0.865},
    "qqp": {"f1": 0.721, "accuracy": 0.893},
    "mnli": {"accuracy": 0.867, "accuracy_mismatched": 0.859},
    "qnli": {"accuracy": 0.927},
    "rte": {"accuracy": 0.701},
}
WNLI = 65.1


def test_the_average_is_the_leaderboards():
    found = glue.summary(LARGE, {})
    assert not found["missing"]
    assert found["tasks"]["mnli"]["score"] == pytest.approx(86.3)
    assert found["tasks"]["cola"]["metrics"] == {"matthews": 60.5}
    assert round((8 * found["average"] + WNLI) / 9, 1) == 80.5
    lines = glue.table(found).splitlines()
    assert "| mrpc | f1 89.3, accuracy 85.4 | 87.3 |" in lines
    assert f"| average | 8 of 8 tasks | {found['average']:.1f} |" in lines
    assert "without WNLI" in lines[-1]


def test_what_is_missing_is_named():
    some = {"mnli": {"accuracy": 0.8}, "rte": {"accuracy": 0.6}}
    found = glue.summary(some, {"qqp": "no folder"})
    assert found["average"] == pytest.approx(70)
    text = glue.table(found)
    assert "| average | 2 of 8 tasks | 70.0 |" in text
    assert "- without qqp: no folder\n" in text
    assert "- without mnli, accuracy_mismatched: no such part\n" in text
    assert "- without sst2: no result\n" in text


@pytest.fixture
def data(tmp_path):
    """SST-2 and RTE as people have them, CoLA without its files."""
    rows = [f"{text}\t{label}" for text, label in zip(*texts(8), strict=True)]
    table = "\n".join(["sentence\tlabel", *rows])
    pairs = "index\tsentence1\tsentence2\tlabel\n"
    pairs += "\n".join(f"{k}\ta cat\ta dog\tentailment" for k in range(8))
    for name, text in (("SST-2", table), ("rte_glue", pairs)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for split in ("train", "dev"):
            (tmp_path / "data" / name / f"{split}.tsv").write_text(text)
    test = "index\tsentence\n" + "".join(f"{k}\ta cat\n" for k in range(3))
    (tmp_path / "data" / "SST-2" / "test.tsv").write_text(test)
    (tmp_path / "data" / "CoLA").mkdir()
    (tmp_path / "data" / "notes.txt").touch()
    return tmp_path / "data"


def test_folders_are_found(data, tmp_path):
    (data / "rte").mkdir()  # the nearer name
    places, missing = glue.find_tasks(data)
    assert places == {
        "cola": str(data / "CoLA"),
        "sst2": str(data / "SST-2"),
        "rte": str(data / "rte"),
    }
    assert missing["mnli"] == "no folder" and len(missing) == 5
    assert glue.find_tasks(None) == (dict.fromkeys(glue.OFFICIAL), {})
    for wrong, message in ((data / "notes.txt", "a folder"), (tmp_path, "none of")):
        with pytest.raises(ValueError, match=message):
            finetuning.finetune("all-glue", "none", wrong)


@pytest.mark.slow
def test_command(data, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    preset, output = tmp_path / "preset", tmp_path / "output"
    make_backbone(num_layers=1).save_to_preset(preset)
    make_tokenizer().save_to_preset(preset)
    runs = iter([({"accuracy": 0.75}, 1, 1), ({"accuracy": 0.5}, 1, 1)])
    monkeypatch.setattr(finetuning, "train", lambda *args, **kwargs: next(runs))
    arguments = f"finetune --task all-glue --preset {preset} --data {data}"
    once = "--learning-rate 1e-3 --batch-size 8 --epochs 1"
    arguments = f"{arguments} {once} --output {output}".split()
    (output / "rte").mkdir(parents=True)
    for name in ("RTE.tsv", "notes.tsv"):  # of an earlier run, and the user's own
        (output / "rte" / name).write_text("old")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert not (output / "rte" / "RTE.tsv").exists()
    assert (output / "rte" / "notes.tsv").read_text() == "old"
    table = (output / "glue.md").read_text()
    assert table in done.output
    assert "| average | 2 of 8 tasks | 62.5 |" in table
    assert "- without cola: " in table and "- without qqp: no folder" in table
    found = json.loads((output / "glue.json").read_text())
    assert found["tasks"]["sst2"]["settings"] == [0.001, 8, 1]
    with zipfile.ZipFile(output / "glue.zip") as archive:
        (name,) = archive.namelist()
        rows = archive.read(name).decode().splitlines()
    assert name == "SST-2.tsv" and rows[0] == "index\tprediction"
    assert [row.split("\t")[0] for row in rows[1:]] == ["0", "1", "2"]
    assert {row.split("\t")[1] for row in rows[1:]} < {"0", "1"}  # all the same
    assert "No RTE.tsv: `data` must be the folder of 'rte'" in done.output
    card = (output / "rte" / "README.md").read_text()
    assert "Fine-tuned on rte." in card and "| accuracy | 0.5 |" in card
    done = CliRunner().invoke(app, [*arguments, "--search"])
    assert done.exit_code == 2 and "`--search` must be left out where" in done.output
    assert (output / "glue.zip").exists()  # refused before anything is replaced
    seen = []

    def train(*args, **kwargs):
        """The second task's training, which is killed."""
        seen.append(sorted(p.name for p in output.glob("*/*.tsv")))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return {"accuracy": 0.75}, 1, 1

    monkeypatch.setattr(finetuning, "train", train)
    CliRunner().invoke(app, arguments)
    assert not (output / "glue.zip").exists()  # it is of models that are replaced
    (output / "sst2" / "SST-2.tsv").write_text("old")
    monkeypatch.setattr(submissions, "write", lambda *args: None)
    seen.clear()
    CliRunner().invoke(app, arguments)
    assert "SST-2.tsv" in seen[0] and "SST-2.tsv" not in seen[1]
    done = CliRunner().invoke(app, [*arguments, "--text", "review"])
    assert done.exit_code == 2 and "without a task" in done.output
