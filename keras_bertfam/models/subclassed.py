"""Keeps our models subclassed ones beside KerasHub's functional ones."""

import keras


class Subclassed(type):
    """Metaclass of subclassed models below a base class of functional ones.

    The first functional model of a class makes Keras replace `keras.Model` by its
    functional class among the bases of all base classes, `keras_hub.models.Backbone`
    and `Task` too. Models of ours would then be functional without inputs and
    outputs, and couldn't be made. So their method resolution leaves that class out.
    """

    def mro(cls):
        return [base for base in super().mro() if not _is_functional(base)]


def _is_functional(cls):
    return cls.__module__.startswith("keras.") and issubclass(cls, keras.Function)
