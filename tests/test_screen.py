"""Commands refuse what is wrong at once, and show nothing that the frameworks log."""

import contextlib
import json
import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command

from keras_bertfam import tasks
from keras_bertfam.cli import screen
from keras_bertfam.cli.app import app
from tests import tiny_masked_lm
from tests.checkout import ROOT

# What is asked wrongly, and what each command says.
REFUSED = [
    ("pretrain a.txt --output out --family gpt", "`--family` must be one of"),
    ("pretrain a.txt --output out --objective mlms", "`--objective` must be one of"),
    ("pretrain a.txt --output out --packing none", "`--packing` must be one of"),
    ("pretrain a.txt --output out --size huge", "`--size` must be one of"),
    ("pretrain a.txt --output out --strategy wordz", "`--strategy` must be one of"),
    ("pretrain a.txt --output out --epochs none", "'--epochs'"),
    ("pretrain a.txt --output out --epoch 3", "--epoch"),
    ("pretrain a.txt", "`--output` must be given"),
    ("pretrain a.txt --output a.txt", "a.txt"),
    ("pretrain none.txt --output out", "'none.txt', which is none"),
    ("pretrain a.txt --output out --validation b.txt", "'b.txt', which is none"),
    ("pretrain a.txt --output out --preset none", "`--preset` must be a known name"),
    ("pretrain a.txt --output out --config none.yaml", "none.yaml"),
    ("reproduce roberta-9", "`TABLE` must be one of"),
    ("reproduce roberta-1 --rows none", "`--rows` must be some of"),
    ("reproduce roberta-1 --set epoch=3", "the nearest is 'epochs'"),
    ("reproduce distilbert-losses --set epoch=3", "the nearest is 'epochs'"),
    ("reproduce roberta-1 --data none --held-out a.txt", "'none', which is none"),
    ("adapt a.txt --preset none --held-out a.txt", "`--preset` must be a known name"),
    ("adapt a.txt --preset out --held-out a.txt --set epoch=3", "one of ['files',"),
    ("adapt a.txt --preset out --held-out none", "'none', which is none"),
    ("prepare none.txt --output out --tokenizer out", "'none.txt', which is none"),
    ("prepare a.txt --output out", "`--tokenizer` must be given"),
    ("prepare a.txt --output out --tokenizer none", "`--tokenizer` must be a known"),
    ("prepare a.txt --output out --new-vocabulary 9 --rule none", "`--rule` must be"),
    ("prepare a.txt --output out --new-vocabulary 9 --family gpt", "`--family` must"),
    ("prepare a.txt --output . --new-vocabulary 9", "must be a folder that is new"),
    ("prepare a.txt --output out --shards 0", "'--shards'"),
    (
        "prepare a.txt --output out --tokenizer bert_tiny_en_uncased --split test",
        "a dataset, tfds:",
    ),
    ("finetune --preset none --task sst2", "`--preset` must be a known name"),
    ("finetune --preset bert_tiny_en_uncased --task sst3", "Received: 'sst3'"),
    ("finetune --preset bert_tiny_en_uncased", "Received: neither"),
    ("finetune --preset bert_tiny_en_uncased --data none.csv", "'none.csv'"),
    ("finetune --preset bert_tiny_en_uncased --task sst2 --text a", "without a task"),
    ("finetune --preset bert_tiny_en_uncased --batch-size 0", "'--batch-size'"),
    ("finetune --task sst2", "'--preset'"),
    ("predict none", "`PRESET` must be the directory of a fine-tuned task"),
    ("score none --data a.txt", "`PRESET` must be the directory of a fine-tuned task"),
    ("score none --data a.txt --split test", "without `--task`"),
    ("fill-mask none", "`PRESET` must be a known name"),
    ("fill-mask bert_tiny_en_uncased none.txt", "'none.txt', which is none"),
    ("fill-mask bert_tiny_en_uncased --top-k 0", "'--top-k'"),
    ("generate none", "`PRESET` must be a known name"),
    ("generate bert_tiny_en_uncased", "`PRESET` must be of one of CausalLM, "),
    (
        "generate gpt2_base_en --sampler greedy --top-p 0.9",
        "`--top-p` must be left out unless",
    ),
    ("generate gpt2_base_en --file none.txt", "'none.txt', which is none"),
    ("vocabulary a.txt", "`--output` must be given"),
    ("vocabulary none.txt --output out", "'none.txt', which is none"),
    ("vocabulary a.txt --output out --tokenizer a.txt", "`--tokenizer` must be one of"),
    ("analyse none a.txt", "`PRESET` must be a known name"),
    ("analyse bert_tiny_en_uncased a.txt --probe none.conll", "'none.conll'"),
    ("analyse bert_tiny_en_uncased a.txt --facts none", "`--facts` must name"),
    ("export none out", "existing preset directory"),
    ("export . a.txt", "must not exist yet"),
    ("export . out --sampler best", "`--sampler` must be one of"),
    ("convert none out", "`SOURCE` must be a known name"),
    ("convert a.txt a.txt", "another folder"),
    ("convert a.txt out --to none", "'--to'"),
    ("demo --epochs 0", "'--epochs'"),
    ("none", "No such command 'none'"),
]
# Runs commands, and prints what each answers and then which frameworks are loaded.
PROGRAM = """
import json, sys
from typer.testing import CliRunner
from keras_bertfam.cli.app import app
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, arguments)
    print(json.dumps([result.exit_code, result.output, repr(result.exception)]))
names = "apache_beam", "jax", "keras", "keras_hub", "matplotlib", "tensorflow", "torch"
print(json.dumps([name for name in names if name in sys.modules]))
"""
# Something of the frameworks that writes as they do while it is imported.
LOADING = """
import logging, os, sys, warnings
from keras_bertfam.cli import screen
def load():
    os.write(2, b"written by C++\\n")
    logging.getLogger("apache_beam").error("logged by Python")
    print("printed", file=sys.stderr)
    if "fail" in sys.argv:
        raise ImportError("no such library")
screen.lazy.load_all = load
def run():
    with screen.loading():
        pass
    logging.warning("later")
    warnings.warn("a message\\nof two lines")
    warnings.warn("for authors", FutureWarning)
if "verbose" in sys.argv:
    run()
else:
    with screen.quiet():
        run()
    logging.warning("afterwards")
    assert "GLOG_minloglevel" not in os.environ
"""
# Runs commands as `python -m keras_bertfam` does, one after the other.
COMMANDS = """
import json, sys
from keras_bertfam.cli.app import app
for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments, prog_name="keras_bertfam")
    except SystemExit:
        pass
"""
LOGGED = re.compile(
    r"^(WARNING|ERROR|INFO|[IWEF]\d{4} |\d{4}-\d\d-\d\d|Traceback|  File)"
    r"|absl|apitools|cuda|oneDNN|\.py:\d",
    re.MULTILINE,
)


def python(program, *arguments, folder=None):
    hidden = ("TF_CPP_MIN_LOG_LEVEL", "GRPC_VERBOSITY", "GLOG_minloglevel")
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={k: v for k, v in os.environ.items() if k not in hidden}
        | {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "TERM": "dumb"},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done


def commands():
    return get_command(app).commands


def test_what_is_wrong_is_refused_without_a_framework(tmp_path):
    assert {line.split()[0] for line, _ in REFUSED} == {*commands(), "none"}
    (tmp_path / "a.txt").write_text("a cat sat\n")
    asked = [["--help"], *([name, "--help"] for name in commands())]
    asked += [line.split() for line, _ in REFUSED]
    done = python(PROGRAM, json.dumps(asked), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    *answers, loaded = map(json.loads, done.stdout.splitlines())
    assert loaded == [] and done.stderr == ""
    helped = 1 + len(commands())
    assert all(code == 0 and "Usage" in said for code, said, _ in answers[:helped])
    for (line, message), answer in zip(REFUSED, answers[helped:], strict=True):
        code, said, error = answer
        said = " ".join(re.sub(r"[│╭╰─╮╯]", " ", said).split())
        assert code == 2 and message in said and "SystemExit" in error, (line, answer)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_what_is_written_while_the_frameworks_load(tmp_path):
    lines = python(LOADING).stderr.splitlines()
    assert lines == ["Warning: a message of two lines", "WARNING:root:afterwards"]
    # If an import fails, all that was said before is the explanation.
    said = python(LOADING, "fail").stderr
    assert said.startswith("written by C++\nprinted\nTraceback")
    said = python(LOADING, "verbose").stderr
    for line in ("written by C++", "logged by Python", "later", "UserWarning: a mess"):
        assert line in said
    assert "FutureWarning" in said


@pytest.fixture
def folder(tmp_path):
    model = tiny_masked_lm.make_model()
    model.save_to_preset(str(tmp_path / "preset"))
    preprocessor = tasks.TextClassifierPreprocessor(model.preprocessor.tokenizer)
    other = tasks.TextClassifier(model.backbone, 2, preprocessor=preprocessor)
    other.export_to_transformers(tmp_path / "headless")
    (tmp_path / "text.txt").write_text("the [MASK] sat\n")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe is no text\n")
    return tmp_path


PREPARE = ["prepare", "bad.txt", "--output", "out", "--tokenizer", "preset"]


@pytest.mark.slow
def test_a_quiet_screen(folder):
    asked = [["fill-mask", name, "text.txt"] for name in ("preset", "headless")]
    done = python(COMMANDS, json.dumps([*asked, PREPARE]), folder=folder)
    assert len(done.stdout.splitlines()) == 1, done.stderr
    assert not LOGGED.search(done.stderr), done.stderr
    assert "Warning" not in done.stderr and "Traceback" not in done.stderr
    said = " ".join(re.sub(r"[│╭╰─╮╯]", " ", done.stderr).split())
    assert "`PRESET` must have learnt to fill masks" in said
    assert "bad.txt must be text in UTF-8" in said


@pytest.mark.slow
def test_a_screen_with_all_that_is_logged(folder):
    # What is wrong further on is met by Beam.
    (folder / "bad.txt").write_bytes(b"the mat\n" * 20_000 + b"\xff\n")
    done = python(COMMANDS, json.dumps([[*PREPARE, "--verbose"]]), folder=folder)
    assert "bad.txt must be text in UTF-8" in done.stderr
    assert "Traceback" in done.stderr  # Beam's
    assert LOGGED.search(done.stderr)


def test_work_goes_on_without_a_reader(capfd):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stream, contextlib.redirect_stdout(stream):
        with screen.lasting():
            for line in range(3):
                print(line, flush=True)
            print("the last line")
    assert capfd.readouterr().err == "Nobody reads this output any more. Going on.\n"
    read, write = os.pipe()
    os.close(read)
    both = open(write, "w"), open(os.dup(write), "w", buffering=1)
    with contextlib.redirect_stdout(both[0]), contextlib.redirect_stderr(both[1]):
        with screen.lasting():
            print("a line", flush=True)
            print("another one", file=sys.stderr, flush=True)
            print("the last line")
    for stream in both:
        with contextlib.suppress(BrokenPipeError):
            stream.close()
