"""Keeps our models subclassed ones beside KerasHub's functional ones.

The first functional model of a class makes Keras replace `keras.Model` by its
functional class among the bases of all base classes, `keras_hub.models.Backbone` and
`Task` too. Models of ours would then be functional without inputs and outputs, and
couldn't be made.
"""

import contextlib
from collections.abc import Iterator

import keras


class Subclassed(type):
    """Metaclass of subclassed models below a base class of functional ones.

    The bases of a base class change after its subclasses are made, and Python then
    asks the metaclass, and nothing else, for the order in which they find methods.
    """

    def mro(cls) -> list[type]:
        return [base for base in super().mro() if not _is_functional(base)]


def _is_functional(cls):
    return cls.__module__.startswith("keras.") and issubclass(cls, keras.Function)


@contextlib.contextmanager
def functional_bases_kept(cls: type) -> Iterator[None]:
    """Leaves the base classes of a class functional that were so before.

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
