"""What importing the package costs, and which module may import what."""

import ast
import fnmatch
import functools
import inspect
import os
import re
import subprocess
import sys

import keras
import pytest

import keras_bertfam
from tests.checkout import ROOT
from tests.import_graph import circles, imports_of

PACKAGE = ROOT / "keras_bertfam"
MODULES = sorted(PACKAGE.rglob("*.py"))
NEVER_AT_IMPORT = {
    "apache_beam",
    "jax",
    "matplotlib",
    "tensorflow_datasets",
    "torch",
    "transformers",
}
FRAMEWORKS = {"jax", "tensorflow", "torch"} | NEVER_AT_IMPORT
# Prints what is loaded when all of each is.
LOADED = """
import sys
import keras_hub
print(*{module.split(".")[0] for module in sys.modules})
from keras_bertfam import lazy
lazy.load_all()
print(*{module.split(".")[0] for module in sys.modules})
"""


def rooms():
    """BUILD.md's table: what the modules of each place may import.

    Returns:
        Dict from places to sets of places. `TensorFlow` is one.
    """
    text = (ROOT / "BUILD.md").read_text(encoding="utf-8")
    table = text.partition("## Layout")[2].partition("\n\n|")[2].partition("\n\n")[0]
    found, above = {}, set()
    for row in table.splitlines()[2:]:
        places, _, allowed = (cell.strip() for cell in row.strip("|").split(" | "))
        names = {*re.findall(r"`([\w/.*]+)`", allowed), "types.py", "lazy.py"}
        names.add("arguments.py")
        if "all above" in allowed:
            names |= above
        if "TensorFlow" in allowed:
            names.add("TensorFlow")
        for place in re.findall(r"`([\w/.*]+)`", places):
            found[place] = names
            above.add(place)
    return found


ROOMS = rooms()


def room(name):
    """The place of BUILD.md's table that a file of the package lies in."""
    fitting = [
        place
        for place in ROOMS
        if fnmatch.fnmatch(name, place) or name.startswith(f"{place}/")
    ]
    assert fitting, f"{name} has no row in the table of BUILD.md, section Layout"
    return max(fitting, key=len)


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


@functools.cache
def imports():
    return imports_of(ROOT)


def test_modules_import_only_what_their_place_allows():
    wrong = []
    for path in MODULES:
        name, tree = relative(path), ast.parse(path.read_text(encoding="utf-8"))
        here = room(name)
        allowed = {here, *ROOMS[here]}
        wrong += [
            f"{name}: `{here}` may not import {file}"
            for file in imports()[name]
            if room(file) not in allowed
        ]
        if "TensorFlow" not in allowed:
            named = {*imported_names(ast.walk(tree))}
            if {"tensorflow", "tensorflow_text"} & named:
                wrong.append(f"{name}: `{here}` may not import TensorFlow")
        heavy = NEVER_AT_IMPORT & {*imported_names(module_level(tree))}
        wrong += [f"{name}: import {package} inside functions" for package in heavy]
    assert not wrong, "BUILD.md, section Layout:\n" + "\n".join(wrong)


def test_no_imports_in_a_circle():
    assert circles(imports()) == set()


def test_names_that_load_when_they_are_used_are_imports():
    assert "tasks/masking/masked_lm.py" in imports()["tasks/__init__.py"]
    assert "layers/data/__init__.py" in imports()["layers/__init__.py"]


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == {frozenset("bc")}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_using_loads_no_framework_that_keras_hub_does_not(backend):
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
    seen, spaces = {}, [keras_bertfam]
    for space in spaces:
        for name in getattr(space, "__all__", ()):
            value = getattr(space, name)
            if inspect.ismodule(value) and space is keras_bertfam:
                spaces.append(value)
            elif inspect.isclass(value) or inspect.isfunction(value):
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


def test_public_objects_are_documented():
    documented = {name: inspect.getdoc(PUBLIC[name]) or "" for name in PUBLIC}
    assert [name for name in PUBLIC if not documented[name]] == []
    without = [name for name in CLASSES if "```python" not in documented[name]]
    assert without == [], "classes without an example"


def test_public_classes_are_registered():
    wrong = []
    for name in SERIALISED:
        cls = CLASSES[name]
        registered = keras.saving.get_registered_name(cls)
        found = keras.saving.get_registered_object(registered)
        if registered != f"keras_bertfam>{cls.__name__}" or found is not cls:
            wrong.append(name)
    assert SERIALISED and not wrong


def own_functions(value):
    """A function, or the constructor and the public methods that a class defines."""
    if not inspect.isclass(value):
        return {"": value}
    return {
        name: getattr(member, "__func__", member)
        for name, member in vars(value).items()
        if (not name.startswith("_") or name == "__init__")
        and inspect.isfunction(getattr(member, "__func__", member))
    }


def test_public_signatures_are_typed():
    wrong = []
    for name, value in PUBLIC.items():
        for method, function in own_functions(value).items():
            signature = inspect.signature(function)
            wrong += [
                f"{name}.{method}: annotate `{parameter.name}`"
                for parameter in signature.parameters.values()
                if parameter.annotation is parameter.empty
                and parameter.name not in ("self", "cls")
            ]
            if signature.return_annotation is signature.empty:
                wrong.append(f"{name}.{method}: annotate what it returns")
    assert not wrong, "\n".join(wrong)


def raised_texts(path):
    """Line and last characters of each error's message that is written out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
            continue
        text = node.exc.args[0] if node.exc.args else None
        if isinstance(text, ast.JoinedStr):
            text = text.values[-1]
        if isinstance(text, ast.FormattedValue):
            # What another says is a sentence of its own.
            said = ast.unparse(text.value).endswith(("error", "stderr"))
            yield node.lineno, "." if said else ""
        elif isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield node.lineno, text.value[-1:]


def test_errors_are_sentences():
    # What a reader of files says first is quoted by the error around it.
    quoted = {
        "parsing.py",
        "presets/hub.py",
        "presets/tokenizer_formats/tokenizer_files.py",
        "presets/tokenizer_formats/tokenizer_pipelines.py",
    }
    wrong = [
        f"{relative(path)}:{line}"
        for path in MODULES
        if relative(path) not in quoted
        for line, end in raised_texts(path)
        if end not in (".", ":")
    ]
    assert not wrong, f"errors end with a full stop: {wrong}"
