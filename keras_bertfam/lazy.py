"""Public names that load when they are first used, and registries that load all names.

An `__init__.py` of public names imports them under `if TYPE_CHECKING:`. So type
checkers, editors and the documentation read ordinary imports. Python skips these, and
`attach` runs each line when one of its names is used.
"""

import importlib
import re
import sys
import threading
from collections.abc import Iterator, MutableMapping
from types import ModuleType
from typing import Any

PACKAGE = __name__.partition(".")[0]
# Python's own parser isn't used: in Python 3.11 it fails in two threads at once.
_IMPORT = re.compile(
    r"^    from ([\w.]+) import (?:\(([^()]*)\)|([^(\n]+))", re.MULTILINE
)
_state = threading.local()


class Namespace(ModuleType):
    """A package whose public names load when they are first used."""

    # From a name to its module and its name there.
    _imports: dict[str, tuple[str, str]]

    def __getattr__(self, name: str) -> Any:
        # Looked up in the dict, since `attach` may not have set it yet.
        if name not in vars(self).get("_imports", ()):
            return super().__getattribute__(name)  # raises the usual error
        module, original = self._imports[name]
        if module == self.__name__:
            value: Any = importlib.import_module(f"{module}.{original}")
        else:
            value = getattr(importlib.import_module(module), original)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._imports})


def attach(name: str) -> None:
    """Let a package's names load on first use; its imports for type checkers list them.

    Args:
        name: `__name__` of the package, whose source is read.
    """
    package = sys.modules[name]
    vars(package)["_imports"] = dict(_imports(package))
    package.__class__ = Namespace


def _imports(package):
    _, _, source = _source(package).partition("\nif TYPE_CHECKING:\n")
    for module, several, single in _IMPORT.findall(source):
        for part in re.sub("#.*", "", several or single).split(","):
            words = part.split()  # a name, or a name, `as` and another name
            if words == ["*"]:
                names = importlib.import_module(module).__all__
                yield from ((name, (module, name)) for name in names)
            elif words:
                yield words[-1], (module, words[0])


def _source(package):
    return package.__spec__.loader.get_source(package.__name__)


def modules_of_names(name: str) -> dict[str, str]:
    """Tell the modules of a package's public names, without loading them.

    Modules that can't import the package use it, as with `load_all`.

    Args:
        name: name of a package of the library, such as `"tasks"`.

    Returns:
        Dict from public names to names of modules.
    """
    package: Any = importlib.import_module(f"{PACKAGE}.{name}")
    return {public: module for public, (module, _) in package._imports.items()}


def load_all() -> None:
    """Load every public name of the library, so that all classes register themselves.

    Lower modules use it, which may not import the modules above them.
    """
    if getattr(_state, "loading", False):  # called by a module that is being loaded
        return
    _state.loading = True
    try:
        todo: list[Any] = [importlib.import_module(PACKAGE)]
        while todo:
            namespace = todo.pop()
            values = [getattr(namespace, name) for name in namespace._imports]
            todo += [value for value in values if isinstance(value, Namespace)]
    finally:
        _state.loading = False


class Registry(MutableMapping[str, Any]):
    """A dict of classes, which enter under their names when they are defined.

    Reading it loads the library, so it always has all of the library's classes.
    """

    def __init__(self) -> None:
        self._entered: dict[str, Any] = {}

    def enter(self, name: str, cls: Any) -> Any:
        """Enter a class, unless another class has its name.

        A class that is defined again, as in a notebook, replaces its former definition.

        Returns:
            The class that has the name now: the given one, or the other.
        """
        if not cls.__module__.startswith(f"{PACKAGE}."):
            load_all()  # if a name comes twice, the user's class is refused
        known = self._entered.get(name, cls)
        if (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__):
            known = self._entered[name] = cls
        return known

    def __getitem__(self, name: str) -> Any:
        load_all()
        return self._entered[name]

    def __iter__(self) -> Iterator[str]:
        load_all()
        return iter(self._entered)

    def __len__(self) -> int:
        load_all()
        return len(self._entered)

    def __setitem__(self, name: str, cls: Any) -> None:
        self._entered[name] = cls

    def __delitem__(self, name: str) -> None:
        del self._entered[name]
