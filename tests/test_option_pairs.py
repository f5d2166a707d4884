"""Options of a command combine, or are refused at once by their names."""

import dataclasses
import random
import re

import keras
import pytest
import typer
from typer.testing import CliRunner

from keras_bertfam import tasks
from keras_bertfam.cli import building, inputs, pretraining
from keras_bertfam.cli.app import app
from keras_bertfam.cli.runs import TOKENIZERS, PretrainingRun, families
from keras_bertfam.corpus import python_documentation
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES, strategies
from keras_bertfam.tasks.masking.masked_lm import FillMask
from tests import tiny_masked_lm

pytestmark = pytest.mark.any_backend
VALUES = {
    "family": families(),
    "objective": [*OBJECTIVES.own],
    "size": ["tiny"],
    "preset": ["PRESET"],
    "new_words": [2],
    "teacher": ["PRESET"],
    "tokenizer": [*TOKENIZERS, "PRESET"],
    "vocabulary_size": [600],
    "cased": [True, False],
    "mix_exponent": [0.3, 1.5],
    "text_share": [0.5],
    "one_per_file": [True],
    "feature": ["body"],
    "encoding": ["latin-1"],
    "max_line_length": [100_000],
    "validation": ["TEXT"],
    "sequence_length": [16, 32, 600],
    "packing": sorted({p for each in OBJECTIVES.own.values() for p in each.packings}),
    "batch_size": [2, 4],
    "accumulate": [1, 2],
    "epochs": [1],
    "steps_per_epoch": [1],
    "learning_rate": [1e-3],
    "warmup_steps": [1, 0.1],
    "strategy": [s for s in strategies() if s != "tests"],
    "precision": ["float32", "bfloat16", "float16", "auto"],
    "jit_compile": [True, False],
    "rematerialize": ["none", "attention", "block"],
    "seed": [1],
    "tensorboard": ["LOGS"],
    "checkpoints": [1],
    "distribution": ["multi_worker", "jax", "jax_sharded"],
    "model_parallel": [1, 2],
    "resume": [True],
    "recipe": ["quick", "published"],
    "mask_rate": [0.3],
    "arguments": ["backbone.num_layers=1", "optimizer.weight_decay=0.1"],
}
PAIRS = 40


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    (folder / "text.txt").write_text("\n\n".join(python_documentation()[:6]), "utf-8")
    tiny_masked_lm.make_model().save_to_preset(str(folder / "preset"))
    return {
        "TEXT": str(folder / "text.txt"),
        "PRESET": str(folder / "preset"),
        "LOGS": str(folder / "logs"),
    }


def drawn(seed):
    """Two options with a value each."""
    generator = random.Random(seed)
    names = generator.sample(sorted(VALUES), 2)
    return {name: generator.choice(VALUES[name]) for name in names}


def option_of(name):
    return f"--{name.replace('_', '-')}" if name != "arguments" else "--set"


def arguments(options, places):
    for name, value in options.items():
        option = option_of(name)
        if isinstance(value, bool):
            negative = name in ("cased", "jit_compile") and not value
            yield f"--no-{option[2:]}" if negative else option
        else:
            yield from (option, str(places.get(value, value)))


def command(places, *given):
    asked = ["pretrain", places["TEXT"], "--output", places["LOGS"] + "-out", *given]
    result = CliRunner().invoke(app, asked)
    return result.exit_code, " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())


def test_all_options_are_drawn_from():
    settings = {
        field.name
        for field in dataclasses.fields(PretrainingRun)
        if not field.name.endswith("_arguments") and field.name != "phases"
    }
    (pretrain,) = (
        each
        for name, each in typer.main.get_command(app).commands.items()
        if name == "pretrain"
    )
    options = {each.name for each in pretrain.params} - {"help"}
    assert {*VALUES} == options - {"files", "output", "config"}
    assert settings <= options


@pytest.mark.parametrize("start", [0, 1000])
def test_pairs_are_taken_or_refused_by_name(start, places, monkeypatch):
    runs = []
    monkeypatch.setattr(pretraining, "pretrain", lambda run, report: runs.append(run))
    taken = 0
    for seed in range(start, start + PAIRS):
        options = drawn(seed)
        code, said = command(places, *arguments(options, places))
        if code == 0:
            taken += 1
            for name, value in options.items():
                value = places.get(value, value)
                value = (value,) if name == "validation" else value
                if name not in ("recipe", "mask_rate", "arguments"):
                    assert getattr(runs[-1], name) == value
        else:
            assert code == 2 and "Traceback" not in said, said
            named = {f"`{option_of(name)}`" for name in options}
            needed = {"--teacher", "--family", "--distribution"}
            assert any(name in said for name in named | needed), (options, said)
            assert "Received:" in said
    assert PAIRS / 3 < taken < PAIRS


@pytest.fixture
def trained_by_a_step(monkeypatch):
    """Runs as they are but for their last step: one update, and nothing is compiled."""

    def train(run, model, documents):
        model.run_eagerly = True
        settings = {"packing": run.packing, **run.dataset_arguments}
        data = model.preprocessor.dataset(documents, run.batch_size, **settings)
        steps = run.accumulate
        model.fit(data.repeat(), steps_per_epoch=steps, verbose=0)
        assert int(model.optimizer.iterations) == 1

    before = keras.config.dtype_policy()
    monkeypatch.setattr(pretraining, "train", train)
    monkeypatch.setattr(inputs, "has_backup", lambda folder: False)
    yield
    keras.config.set_dtype_policy(before)


USUAL = {"size": "tiny", "sequence_length": 16, "batch_size": 2, "vocabulary_size": 500}
# What failed, as guides advise it, and what is most likely to.
TOGETHER = [
    {"recipe": "quick", "accumulate": 2},
    {"recipe": "quick", "accumulate": 2, "family": "albert", "precision": "float16"},
    {"recipe": "quick", "preset": "PRESET", "accumulate": 2, "rematerialize": "block"},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        *TOGETHER,
        *(
            pytest.param(drawn(seed), marks=pytest.mark.slow("release"))
            for seed in range(2000, 2000 + PAIRS)
        ),
    ],
    ids=lambda options: ",".join(f"{k}={v}" for k, v in options.items()),
)
@pytest.mark.usefixtures("trained_by_a_step")
def test_what_is_taken_trains(options, places):
    if "distribution" in options:
        pytest.skip("it takes several processes, see test_clusters.py")
    given = {**USUAL, **options}
    if {"preset", "teacher"} & options.keys():
        del given["size"], given["vocabulary_size"]
    elif given.get("tokenizer") == "PRESET":
        del given["vocabulary_size"]
    if "objective" not in given and "family" not in given:
        given["objective"] = "distillation" if "teacher" in given else "mlm"
    code, said = command(places, *arguments(given, places))
    if code:
        assert code == 2 and "Received:" in said, said
        needed = {"--teacher", "--family", "--distribution"}
        named = {f"`{option_of(name)}`" for name in options}
        assert any(name in said for name in named | needed), said


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("analyse x --label y", "`--label` must be left out without `--labelled`"),
        ("convert x y --attention-window 4", "without `--longformer`. Received: 4."),
        ("prepare x --output y --test-ngram 4", "left out without `--test-set`"),
        (
            "prepare TEXT --output o --tokenizer x --feature body",
            "`--feature` must be left out with text files",
        ),
        (
            "finetune --preset x --task rte --validation-split .2",
            "`--validation-split` must be left out with `--task`",
        ),
        ("export PRESET out --sampler top_p", "with one of MaskedLM"),
        (
            "pretrain TEXT --output o --preset PRESET --vocabulary-size 9",
            "`--vocabulary-size` must be left out with",
        ),
        (
            "pretrain PRESET --output o --encoding latin-1",
            "`--encoding` must be left out with the prepared corpus",
        ),
        (
            "pretrain TEXT --output o --teacher PRESET --objective distillation "
            "--family electra",
            "`--family` must be left out with",
        ),
        (
            "pretrain TEXT --output o --batch-size 8 --set dataset.tokens_per_batch=99",
            "`--batch-size` must be left out with `tokens_per_batch`",
        ),
        (
            "pretrain TEXT --output o --mask-rate .3 "
            "--set preprocessor.mask_selection_rate=.2",
            "`--mask-rate` must be left out with preprocessor.mask_selection_rate",
        ),
        (
            "pretrain TEXT --output o --learning-rate 1e-3 "
            "--set optimizer.learning_rate=1e-4",
            "`--learning-rate` must be left out with `optimizer_arguments`",
        ),
        (
            "pretrain TEXT --output o --feature body",
            "`--feature` must be left out with text files",
        ),
        (
            "pretrain TEXT --output o --set backbone.max_sequence_length=abc",
            "`max_sequence_length` must be an int",
        ),
    ],
)
def test_options_without_effect(asked, message, places):
    words = [places.get(word, word) for word in asked.split()]
    result = CliRunner().invoke(app, words)
    said = " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())
    assert result.exit_code == 2 and message in said, said


def test_what_commands_know_of_tasks():
    public = {name: getattr(tasks, name) for name in tasks.__all__}
    classes = {n: cls for n, cls in public.items() if isinstance(cls, type)}
    masked = {n for n, cls in classes.items() if issubclass(cls, FillMask)}
    assert masked - {"FillMask"} == {*inputs.FILL_MASKS}
    writing = {n for n, cls in classes.items() if hasattr(cls, "generate")}
    # A SavedModel of masked diffusion fills masks; it has no options of writing.
    assert writing - {"MaskedDiffusionLM"} == {*inputs.WRITE}


def test_longest_rows_are_those_of_encoders():
    small = {"num_layers": 1, "vocabulary_size": 50, "hidden_dim": 8, "num_heads": 2}
    for family in families():
        given = {"objective": "distillation", "teacher": "x"}
        run = PretrainingRun(
            family=family,
            backbone_arguments=small,
            **(given if family == "distilbert" else {}),
        )
        backbone = building.make_backbone(run)
        longest = getattr(backbone, "max_sequence_length", None)
        assert run.longest_row() == longest, family
