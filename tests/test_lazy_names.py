"""Public names load when they are first used, and nothing is missed until then.

What needs a fresh process is in `tests/lazy_names.py`, whose functions share one, as
that takes seconds to begin.
"""

import importlib
import inspect
import json
import os
import pickle
import pkgutil
import pydoc
import subprocess
import sys
from collections.abc import Mapping

import keras
import pytest

import keras_bertfam
from keras_bertfam import lazy
from keras_bertfam.presets import inspection
from tests import lazy_names
from tests.checkout import ROOT

BACKEND = keras.backend.backend()
# A module that stands in for Keras, which takes seconds.
KERAS = {
    "__init__.py": "class backend:\n    backend = staticmethod(lambda: 'jax')\n",
    "src/__init__.py": "",
    "src/saving/__init__.py": "",
    "src/saving/object_registration.py": "GLOBAL_CUSTOM_OBJECTS = {'a': 1}\n",
}
any_backend = pytest.mark.any_backend


def namespaces():
    """The package and its public namespaces."""
    todo = [keras_bertfam]
    for each in todo:
        values = [getattr(each, name) for name in each.__all__]
        todo += [value for value in values if isinstance(value, lazy.Namespace)]
    return todo


def of_tests(known, name):
    """Tell whether a test has defined what is registered by a name."""
    defined = known[name] if isinstance(known, Mapping) else None
    return getattr(defined, "__module__", "").startswith("tests.")


def run(program, *arguments, **variables):
    done = subprocess.run(
        [sys.executable, *([] if program.endswith(".py") else ["-c"]), program]
        + [str(each) for each in arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@any_backend
def test_what_is_public_is_what_is_imported_for_type_checkers():
    for namespace in namespaces():
        names = {*namespace.__all__} - {"__version__"}
        known = {*vars(namespace)["_imports"]}
        assert known == names, namespace.__name__
        assert names <= {*dir(namespace)}
        assert all(hasattr(namespace, name) for name in names)


@any_backend
def test_other_ways_to_a_name():
    scope = {}
    exec("from keras_bertfam.layers import *", scope)
    assert scope["MaskTokens"] is keras_bertfam.layers.MaskTokens
    cls = keras_bertfam.tasks.MaskedLM
    assert pickle.loads(pickle.dumps(cls)) is cls
    assert inspect.getmodule(cls).__name__.endswith("masking.masked_lm")
    assert ("MaskedLM", cls) in inspect.getmembers(keras_bertfam.tasks)
    assert "BackupAndResume" in pydoc.render_doc(keras_bertfam.callbacks)
    assert importlib.reload(keras_bertfam.callbacks).BackupAndResume
    with pytest.raises(AttributeError, match="no attribute 'MaskedML'"):
        keras_bertfam.tasks.MaskedML  # noqa: B018
    with pytest.raises(ImportError, match="MaskedML"):
        exec("from keras_bertfam.tasks import MaskedML")


@any_backend
def test_no_name_is_hidden_by_a_module():
    # Python binds each module in its package once it is loaded.
    for namespace in namespaces():
        modules = {module.name for module in pkgutil.iter_modules(namespace.__path__)}
        for name in modules & {*namespace.__all__}:
            assert inspect.ismodule(getattr(namespace, name)), (namespace, name)


@any_backend
def test_importing_loads_no_framework():
    program = """
import sys, keras_bertfam, keras_bertfam.tasks
from keras_bertfam import layers, models
assert "MaskedLM" in dir(keras_bertfam.tasks) and "MaskTokens" in layers.__all__
print(*{"jax", "keras", "keras_hub", "numpy", "tensorflow", "torch"} & {*sys.modules})
"""
    assert run(program).split() == []


@any_backend
@pytest.mark.parametrize("first", ["keras", "keras_bertfam"])
def test_keras_is_prepared_when_it_is_imported(first, tmp_path):
    for name, text in KERAS.items():
        path = tmp_path / "keras" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import {first}
import keras_bertfam.keras_quirks.saved_names as ours
if {first == "keras_bertfam"}:
    ours.keep_freed_memory = lambda: print("kept")
ours.load_all = lambda: print("loaded")
ours.when_imported()
import keras.src.saving.object_registration as theirs
objects = theirs.GLOBAL_CUSTOM_OBJECTS
print("a" in objects, "b" in objects, objects.get("other>A"), dict(objects))
print("keras_bertfam>A" in objects)
for name in [name for name in sys.modules if name.startswith("keras.")] + ["keras"]:
    del sys.modules[name]  # as keras.config.set_backend
import keras.src.saving.object_registration as again
print(again is theirs, objects.get("keras_bertfam>A"))
print("keras_bertfam>A" in again.GLOBAL_CUSTOM_OBJECTS)
"""
    said = run(program).splitlines()
    kept = ["kept"] * (first == "keras_bertfam")
    assert said == [
        *kept,
        "True False None {'a': 1}",
        "loaded",
        "False",
        *kept,
        "loaded",
        "False None",
        "loaded",
        "False",
    ]


@pytest.mark.slow
def test_nothing_is_missed_in_a_fresh_process(tmp_path):
    lazy.load_all()
    expected = {
        name: sorted(each for each in known() if not of_tests(known(), each))
        for name, known in lazy_names.REGISTRIES.items()
    }
    assert len(expected["registered"]) > 100 and len(expected["backbones"]) > 15
    (tmp_path / "registries.json").write_text(json.dumps(expected))
    backbone = keras_bertfam.models.BertBackbone(20, 1, 1, 4, 4, max_sequence_length=4)
    backbone.save_to_preset(str(tmp_path / "preset"))
    backbone.save(tmp_path / "model.keras")
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(backbone))
    # It has Keras use another backend than the environment had at the import.
    other = "jax" if BACKEND == "torch" else "torch"
    run("tests/lazy_names.py", tmp_path, BACKEND, KERAS_BACKEND=other)


@any_backend
def test_names_that_are_known_without_a_framework():
    assert inspection.published_names() == {*keras_bertfam.presets.list_presets()}


@any_backend
def test_all_that_registers_itself_is_loaded_with_the_public_names():
    pytest.importorskip("grain")  # a module is for it alone
    lazy.load_all()
    before = {*lazy_names.registered()}
    for module in pkgutil.walk_packages(keras_bertfam.__path__, "keras_bertfam."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert {*lazy_names.registered()} == before
