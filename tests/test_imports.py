"""What importing the package costs, and which module may import what."""

import ast
import inspect
import os
import pathlib
import subprocess
import sys

import keras
import pytest

import keras_bertfam

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "keras_bertfam"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAY_IMPORT_TENSORFLOW = (
    "layers/corruption/",
    "layers/data/",
    "tasks/",
    "tokenizers/",
    "export/",
    "distribution.py",
    "presets/tensorflow1.py",
)
NEVER_AT_IMPORT = {"jax", "matplotlib", "tensorflow_datasets", "torch", "transformers"}
FRAMEWORKS = {"jax", "tensorflow", "torch"} | NEVER_AT_IMPORT
# Prints what is loaded after each of the two imports.
LOADED = """
import importlib, sys
for name in ("keras_hub", "keras_bertfam"):
    importlib.import_module(name)
    print(*{module.split(".")[0] for module in sys.modules})
"""


def relative(path):
    return path.relative_to(PACKAGE).as_posix()


def imported_names(nodes):
    """The top-level packages that import statements among `nodes` name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def module_level(tree):
    """All nodes that run when the module is imported: none inside functions."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from module_level(node)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_imports_only_what_its_place_allows(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not relative(path).startswith(MAY_IMPORT_TENSORFLOW):
        assert not {"tensorflow", "tensorflow_text"} & {*imported_names(ast.walk(tree))}
    assert not NEVER_AT_IMPORT & {*imported_names(module_level(tree))}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 320


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_importing_loads_no_framework_that_keras_hub_does_not(backend):
    if backend != "tensorflow":
        pytest.importorskip(backend)
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env=os.environ | {"KERAS_BACKEND": backend},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    before, after = (FRAMEWORKS & {*line.split()} for line in done.stdout.splitlines())
    assert backend in before
    assert after == before


def public_objects():
    """Every name that the package exports, once, with the object."""
    seen = {}
    for space in (keras_bertfam, *vars(keras_bertfam).values()):
        if not inspect.ismodule(space) or not space.__name__.startswith(PACKAGE.name):
            continue
        for name in getattr(space, "__all__", ()):
            value = getattr(space, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                seen[f"{space.__name__}.{name}"] = value
    return seen


PUBLIC = public_objects()
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
# What Keras serialises by name.
SERIALISED = [
    name
    for name in CLASSES
    if issubclass(
        CLASSES[name],
        (
            keras.layers.Layer,
            keras.losses.Loss,
            keras.metrics.Metric,
            keras.optimizers.schedules.LearningRateSchedule,
        ),
    )
]


def test_the_promised_names_are_public():
    promised = {
        "analysis.layer_transitions",
        "export.export_saved_model",
        "layers.BatchByTokens",
        "layers.ElectraSegments",
        "layers.MaskTokens",
        "layers.PairSegments",
        "layers.read_documents",
        "layers.train_word_piece",
        "models.AlbertBackbone",
        "models.BertBackbone",
        "models.EncoderBackbone",
        "models.RobertaBackbone",
        "tasks.MaskedLM",
        "tasks.MaskedLMPreprocessor",
        "tasks.MaskedLMSentencePair",
        "tasks.MaskedLMSentencePairPreprocessor",
    }
    assert {f"keras_bertfam.{name}" for name in promised} <= PUBLIC.keys()


@pytest.mark.parametrize("name", PUBLIC)
def test_public_object_is_documented(name):
    documentation = inspect.getdoc(PUBLIC[name]) or ""
    assert documentation
    assert "```python" in documentation or name not in CLASSES


@pytest.mark.parametrize("name", SERIALISED)
def test_public_class_is_registered(name):
    cls = CLASSES[name]
    registered = keras.saving.get_registered_name(cls)
    assert registered == f"keras_bertfam>{cls.__name__}"
    assert keras.saving.get_registered_object(registered) is cls
