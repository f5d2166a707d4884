"""Keeps our models subclassed ones beside KerasHub's functional ones.

The first functional model of a class makes Keras replace `keras.Model` by its
functional class among the bases of all base classes, `keras_hub.models.Backbone` and
`Task` too. Models of ours would then be functional without inputs and outputs, and
couldn't be made.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from keras_bertfam.arguments import check_call, check_names

_PACKAGE = f"{__name__.partition('.')[0]}."


class Subclassed(type):
    """Metaclass of subclassed models below a base class of functional ones.

    The bases of a base class change after its subclasses are made, and Python then
    asks the metaclass, and nothing else, for the order in which they find methods.
    It also looks at the numbers that a model is made with.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        constructor = cls.__init__  # type: ignore[misc]  # of this very class
        if cls.__module__.startswith(_PACKAGE):  # others may read `kwargs` themselves
            check_names(cls, kwargs)
        check_call(constructor, (None, *args), kwargs)
        return super().__call__(*args, **kwargs)

    def mro(cls) -> list[type]:
        return [base for base in super().mro() if not _is_functional(base)]


def _is_functional(cls):
    return cls.__module__.startswith("keras.") and issubclass(cls, keras.Function)


@contextlib.contextmanager
def functional_bases_kept(cls: type) -> Iterator[None]:
    """Leave the base classes of a class functional that were so before.

    KerasHub makes them subclassed ones again whenever a task is made, and so breaks
    functional tasks made before. Ours needn't do so.
    """
    before = [(base, base.__bases__) for base in cls.__mro__]
    try:
        yield
    finally:
        for base, bases in before:
            if base.__bases__ != bases and any(map(_is_functional, bases)):
                base.__bases__ = bases
