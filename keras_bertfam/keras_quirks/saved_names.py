"""What is done as soon as Keras is imported, before us or after.

Saved files name classes, such as `keras_bertfam>MaskedLM`, and Keras and KerasHub look
these up among the classes that are registered. Ours register themselves when they are
loaded, which is when they are first used: by a name in a file, too. So the dict of
registered objects is replaced by one that loads the library when it is asked for one of
its names and doesn't have it. This is the one place that depends on where Keras keeps
that dict; `tests/test_lazy_names.py` fails if it moves.
"""

import importlib.abc
import importlib.util
import sys
from typing import Any

from keras_bertfam.host_memory import keep_freed_memory
from keras_bertfam.lazy import PACKAGE, load_all


class _Registered(dict[str, Any]):
    """Keras's registered objects; asked for one of ours, it has them all."""

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        if not str(name).startswith(f"{PACKAGE}>"):
            return False
        load_all()
        return super().__contains__(name)

    def __missing__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Keras as the others do, and is told when it has been imported.

    Keras is imported again by `keras.config.set_backend`.
    """

    searching = False

    def find_spec(self, name, path=None, target=None):
        if name != "keras" or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _prepare()

            spec.loader.exec_module = exec_module
        return spec


_finder = _Finder()


def when_imported() -> None:
    """Prepare Keras now if it is imported, and else when it will be."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
        if "keras" in sys.modules:
            _prepare()


def _prepare():
    registration = importlib.import_module("keras.src.saving.object_registration")
    if not isinstance(registration.GLOBAL_CUSTOM_OBJECTS, _Registered):
        objects = _Registered(registration.GLOBAL_CUSTOM_OBJECTS)
        registration.GLOBAL_CUSTOM_OBJECTS = objects
    keep_freed_memory()
