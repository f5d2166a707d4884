"""A domain three ways: the runs, what is kept of them, and the table."""

import types

import pytest
from typer.testing import CliRunner

from keras_bertfam.cli import adapting, finetuning, pretraining
from keras_bertfam.cli.app import app
from keras_bertfam.models import BertBackbone
from tests import tiny_masked_lm

pytestmark = pytest.mark.any_backend
FILES = ("domain.txt", "held_out.txt")


@pytest.fixture
def preset(tmp_path, monkeypatch):
    """A preset beside files of a domain and a table, in the working folder."""
    monkeypatch.chdir(tmp_path)
    texts = [text.decode() for text in tiny_masked_lm.documents().as_numpy_iterator()]
    for name in FILES:
        (tmp_path / name).write_text("\n\n".join(texts))
    rows = [f"{text},{'cat' in text}" for text in texts]
    (tmp_path / "mine.csv").write_text("\n".join(["review,feeling", *rows]))
    tiny_masked_lm.make_model(0.1).save_to_preset("base")
    return "base"


@pytest.fixture
def trainer(monkeypatch):
    """In place of training and measuring: what was done, and when to be killed."""
    log = types.SimpleNamespace(done=[], killed_at=None)

    def pretrain(run, report):
        log.done.append((run.preset, run.seed))
        if len(log.done) == log.killed_at:
            raise KeyboardInterrupt

    def finetune(preset, seeds, report, **labelled):
        log.done.append((preset, *seeds))
        return {"accuracy": 0.1 * len(log.done), "settings": (1e-4, 8, 3)}

    monkeypatch.setattr(pretraining, "pretrain", pretrain)
    monkeypatch.setattr(finetuning, "finetune", finetune)
    monkeypatch.setattr(adapting.tasks.MaskedLM, "from_preset", lambda preset: None)
    monkeypatch.setattr(
        adapting, "measure", lambda trained, names: dict.fromkeys(names, 2.0)
    )
    return log


def adapt(*more):
    options = {"--preset": "base", "--held-out": "held_out.txt", "--data": "mine.csv"}
    options |= {"--text": "review", "--label": "feeling", "--seeds": "2"}
    options |= {"--output": "out"} | dict(zip(more[::2], more[1::2], strict=True))
    given = [part for option in options.items() for part in option]
    return CliRunner().invoke(app, ["adapt", "domain.txt", *given])


def test_both_runs_have_the_same_shape(preset):
    runs = adapting.runs_of(["domain.txt"], preset, 7, {"batch_size": 4})
    further, anew = runs.values()
    assert further.preset == preset and anew.preset is None
    config = BertBackbone.from_preset(preset, load_weights=False).get_config()
    for name, value in anew.backbone_arguments.items():
        assert config[name] == value
    assert {"num_layers", "dropout"} <= {*anew.backbone_arguments}
    assert anew.family == "bert" and not anew.cased
    assert anew.vocabulary_size == config["vocabulary_size"]
    for run in (further, anew):
        assert (run.objective, run.steps_per_epoch, run.epochs) == ("mlm", 7, 1)
        assert run.batch_size == 4 and run.learning_rate == 1e-4
        assert run.sequence_length == 16  # there are no more positions
    with pytest.raises(ValueError, match="batch_sizes"):
        adapting.runs_of(["domain.txt"], preset, 7, {"batch_sizes": 4})


@pytest.mark.slow
def test_what_is_finished_is_kept(preset, trainer, tmp_path):
    trainer.killed_at = 4  # training from scratch
    assert adapt().exit_code != 0
    first = [("base", 0), ("base", 0), ("out/further-0", 0), (None, 0)]
    assert trainer.done == first
    result = adapt()
    assert result.exit_code == 0, result.output
    again = [(None, 0), ("out/from-scratch-0", 0)]
    again += [("base", 1), ("base", 1), ("out/further-1", 1)]
    again += [(None, 1), ("out/from-scratch-1", 1)]
    assert trainer.done == first + again
    table = (tmp_path / "out" / "table.md").read_text()
    assert table in result.output and (tmp_path / "out" / "table.png").exists()
    head, _, as_it_is, *_ = table.splitlines()
    assert head.endswith("| masked nats per character | accuracy |")
    assert as_it_is == "| as it is | 2 (2 to 2) | 2 (2 to 2) | 0.4 (0.1 to 0.7) |"
    (tmp_path / "out" / "table.md").unlink()
    assert adapt("--output", "./out").exit_code == 0 and len(trainer.done) == 11
    assert (tmp_path / "out" / "table.md").read_text() == table
    assert "(0.1" not in adapt("--seeds", "1").output
    other = adapt("--steps", "5")
    assert other.exit_code == 2 and "must be 1000, as in the" in other.output


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--steps", "0", "`--steps` must be at least 1"),
        ("--seeds", "0", "`--seeds` must be at least 1"),
        ("--held-out", "none.txt", "`--held-out` must name existing files"),
        ("--preset", "none", "`--preset` must be a known name"),
        ("--data", "none.csv", "`--data` must name existing files"),
        ("--set", "preset=other", "--set must not name a setting that `adapt` sets"),
        ("--task", "all-glue", "`--task` must be a single one"),
        ("--set", "stepps=3", "Received: 'stepps'"),
    ],
)
def test_what_is_refused(option, value, message, preset, trainer):
    result = adapt(option, value)
    said = " ".join(result.output.replace("│", " ").split())
    assert result.exit_code == 2 and message in said, said
    assert not trainer.done


@pytest.mark.slow("release")
def test_a_small_domain(preset, tmp_path):
    result = adapt("--steps", "3", "--seeds", "1")
    assert result.exit_code == 0, result.output
    rows = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert len(rows) == 5
    for way in ("further-0", "from-scratch-0"):
        assert (tmp_path / "out" / way / "task.json").exists()
