"""All layers of a model, which Keras lists by a private method only.

Seen in Keras 3.15: `model.layers` has the topmost layers.
"""

from typing import Any


def layers_of(model: Any, include_self: bool = True) -> list[Any]:
    """List a model's layers at all depths, each once.

    Args:
        model: `keras.Model` or `keras.Layer`.
        include_self: bool. Whether it is one of them.
    """
    return [*model._flatten_layers(include_self=include_self)]
