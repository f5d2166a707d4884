"""Keeps our models subclassed ones beside KerasHub's functional ones."""

import keras


class Subclassed(type):
    """Metaclass of subclassed models below a base class of functional ones.

    The first functional model of a class makes Keras replace `keras.Model` by its
    functional class among the bases of all base classes, `keras_hub.models.Backbone`
    and `Task` too. Models of ours would then be functional without inputs and
    outputs, and couldn't be made. So their method resolution leaves that class out.

    KerasHub undoes it for its tasks whenever one is made, and so breaks functional
    ones made before. Making one of ours leaves the bases as they were.
    """

    def mro(cls):
        return [base for base in super().mro() if not _is_functional(base)]

    def __call__(cls, *args, **kwargs):
        before = [(base, base.__bases__) for base in cls.__mro__]
        try:
            return super().__call__(*args, **kwargs)
        finally:
            for base, bases in before:
                if base.__bases__ != bases and any(map(_is_functional, bases)):
                    base.__bases__ = bases


def _is_functional(cls):
    return cls.__module__.startswith("keras.") and issubclass(cls, keras.Function)
