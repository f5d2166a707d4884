"""What the options' help lists is what they take, and is what is registered."""

import contextlib
import inspect
import itertools
import os
import re
import subprocess
import sys
import typing

import pytest
import typer

from keras_bertfam import layers, tasks
from keras_bertfam.cli import app as commands
from keras_bertfam.cli import (
    finetuning,
    finetuning_heads,
    finetuning_text,
    glue,
    preparing,
    runs,
)
from keras_bertfam.cli.building import pretraining_preprocessor
from keras_bertfam.cli.reproduce import paper_tables, studies
from keras_bertfam.cli.runs import PretrainingRun, families
from keras_bertfam.datasets import text_to_text
from keras_bertfam.datasets.task_data import BY_QUESTION, TASKS
from keras_bertfam.layers.blocks import recomputation
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES, strategies
from keras_bertfam.tasks.task import PretrainingTask
from tests.test_imports import FRAMEWORKS, PACKAGE

pytestmark = pytest.mark.any_backend
COMMANDS = typer.main.get_command(commands.app).commands
# Tests define others.
OWN_STRATEGIES = {
    name
    for name, cls in layers.MaskingStrategy.named.items()
    if cls.__module__.startswith("keras_bertfam.")
}


def help_of(command, option):
    (found,) = (p for p in COMMANDS[command].params if p.name == option)
    return found.help


def listed(command, option):
    """The names in the first sentence of an option's help, before other words."""
    sentence = re.split(r"[.;](?: |$)| to compute", help_of(command, option))[0]
    sentence = re.sub(r" \([^)]*\)", "", sentence.split(": ")[-1])
    names = re.split(r", | or |, or ", sentence)
    return {name for name in names if re.fullmatch(r"[\w-]+", name)}


def taken(option, names):
    """Those of some names that a run takes for an option."""
    for name in names:
        try:
            given = {option: name}
            if name in ("distillation", "distilbert"):
                given["teacher"] = "a preset"
            if name == "plm":
                given["family"] = "xlnet"
            if getattr(OBJECTIVES.get(name), "task", None) == "TextToText":
                given["family"] = "t5"
            PretrainingRun(**given).published_size()
        except ValueError as error:
            assert f"`{option}` must be one of" in str(error)
        else:
            yield name


@pytest.mark.parametrize(
    ("option", "candidates"),
    [
        ("family", [*FAMILIES]),
        ("objective", [*OBJECTIVES, *layers.DenoisingObjective.named, "lm", "mass2"]),
        ("strategy", [*OWN_STRATEGIES, "letters"]),
        ("precision", ["float32", "float16", "bfloat16", "auto", "float64", "int8"]),
        ("rematerialize", [*recomputation.RECOMPUTED, "all"]),
        ("distribution", ["multi_worker", "jax", "jax_sharded", "torch"]),
    ],
)
def test_pretrain(option, candidates):
    names = {*taken(option, dict.fromkeys(candidates))}
    assert listed("pretrain", option) == names
    assert len(names) > 1


def test_pretrain_has_all_families_with_such_an_objective():
    assert {"longformer", "modernbert", "bert", "t5", "gpt2"} <= {*families()}
    assert {*families()} == listed("pretrain", "family")


def test_pretrain_has_sizes_kinds_and_recipes():
    shapes = listed("pretrain", "size") | {"tiny"}
    assert {*taken("size", [*shapes, "huge", "nano"])} == shapes
    assert "large" in shapes and "tiny" in help_of("pretrain", "size")
    text = help_of("pretrain", "tokenizer")
    kinds, _, others = text.partition(" to learn, or ")
    known_kinds = {record.tokenizer for record in FAMILIES.values()} - {"words"}
    assert {*re.split(", | or ", kinds)} == known_kinds
    assert others.rstrip(".") in help_of("prepare", "tokenizer")
    assert help_of("pretrain", "recipe").endswith(f"{', '.join(runs.RECIPES)}.")


def test_objectives_are_those_of_tasks():
    for name, objective in OBJECTIVES.items():
        cls = getattr(tasks, objective.task)
        assert issubclass(cls, PretrainingTask)
        taken = inspect.signature(pretraining_preprocessor(cls)).parameters
        assert {*objective.arguments} <= {*taken}, name
    written = {n for n, o in OBJECTIVES.items() if o.task == "TextToText"}
    assert written == {*layers.DenoisingObjective.named}
    assert {*strategies()} >= OWN_STRATEGIES
    # What a record's recipe trains by, a run can be told by name.
    asked = {n: r.pretraining[""] for n, r in FAMILIES.items() if r.pretraining}
    for family in families():
        teacher = "a preset" if family == "distilbert" else None
        run = PretrainingRun(family=family, teacher=teacher)
        assert OBJECTIVES[run.objective_name].task == asked[family].task
    left = {n for n in asked if n not in families()}
    assert left == {"elmo", "transfo-xl"}  # which have scripts of their own


def test_packings_are_those_of_the_rows():
    for objective in OBJECTIVES.values():
        cls = pretraining_preprocessor(getattr(tasks, objective.task))
        rows = typing.get_type_hints(cls.make_rows)["return"]
        assert objective.packings == rows.packings


def test_what_is_defined_later_is_taken():
    name = "tokens_of_a_test"
    cls = type("Mine", (layers.MaskingStrategy,), {"name": name})
    other = type("MyNoise", (layers.DenoisingObjective,), {"name": name})
    try:
        assert PretrainingRun(strategy=name).strategy == name
        run = PretrainingRun(family="t5", objective=name)
        assert OBJECTIVES[run.objective_name].task == "TextToText"
        assert len(OBJECTIVES) == len([*OBJECTIVES])
    finally:
        del cls.named[name], other.named[name]
    with pytest.raises(ValueError, match="`strategy` must be one of"):
        PretrainingRun(strategy=name)
    with pytest.raises(ValueError, match="`objective` must be one of"):
        PretrainingRun(objective=name)


def test_finetune():
    taken = set()
    for name, way in itertools.product(TASKS, (finetuning_heads, finetuning_text)):
        with contextlib.suppress(ValueError):
            taken.add(finetuning._supported(name, way).name)
    assert listed("finetune", "task") == {*taken, *glue.BENCHMARKS}
    scored = {"ax", "ax_b", "ax_g", "curated_trec"}
    assert {*TASKS} - taken == {*scored, "wikipedia", "lm1b"}
    kinds = {task.kind for task in TASKS.values()}
    kinds -= {"text", finetuning_text.OWN_KIND, "open_questions"}
    several = "multi_label"  # which only tables of one's own have
    assert finetuning_heads.CLASSES.keys() == {*kinds, several}
    classified = {"classification", several, *BY_QUESTION}
    for kind, cls in finetuning_heads.CLASSES.items():
        assert cls.data_kind == kind or kind in classified
        assert (cls is tasks.TextClassifier) == (
            kind in {"classification", *classified}
        )
        assert cls.__name__ in tasks.__all__
    assert finetuning_text.CLASSES.keys() == {*text_to_text.KINDS}
    assert {*glue.OFFICIAL, *glue.SUPER_OFFICIAL} <= taken


def test_other_commands():
    assert listed("prepare", "rule") == {*preparing.RULES}
    text = help_of("reproduce", "table")
    folder = PACKAGE / "cli" / "reproduce" / "tables"
    tables = {path.stem for path in folder.iterdir()}
    tables -= {"__init__"}
    known = sorted([*paper_tables.names(), *studies.STUDIES])
    assert text.startswith(", ".join(known))
    assert {*paper_tables.names()} == tables


def test_pages_of_papers_have_all_families():
    folder = PACKAGE.parent / "docs" / "papers"
    text = "".join(path.read_text("utf-8") for path in folder.glob("*.md"))
    for record in FAMILIES.values():
        assert not record.sizes or record.backbone in text


# The package as it is without what its `__init__` files import.
WITHOUT = """
import importlib, sys, types
for name in ("keras_bertfam", "keras_bertfam.presets"):
    module = types.ModuleType(name)
    module.__path__ = [name.replace(".", "/")]
    sys.modules[name] = module
families = importlib.import_module("keras_bertfam.presets.families")
objectives = importlib.import_module("keras_bertfam.presets.families.parts.objectives")
print(*families.FAMILIES)
print(*objectives.OBJECTIVES)
print(*objectives.strategies())
print(*{name.split(".")[0] for name in sys.modules})
"""


def test_names_are_there_without_a_framework():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    lines = [{*line.split()} for line in done.stdout.splitlines()]
    assert lines[0] == {*FAMILIES}
    assert lines[1:3] == [{*OBJECTIVES}, OWN_STRATEGIES]
    assert not lines[3] & {*FRAMEWORKS, "keras", "keras_hub"}
