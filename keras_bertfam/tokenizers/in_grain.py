"""Plain results inside Grain's pipelines, whose processes can't exchange tensors."""

import os
import sys
from typing import Any

import tensorflow as tf

from keras_bertfam.types import Mixin

_FOLDERS = tuple(
    os.path.join("grain", "_src", "python", name) for name in ("dataset", "data_loader")
)


def in_grain() -> bool:
    """Tell by the stack, as Keras does, whether Grain calls: there is no other sign."""
    if "grain" not in sys.modules:
        return False
    frame: Any = sys._getframe(1)
    while frame is not None:
        if any(folder in frame.f_code.co_filename for folder in _FOLDERS):
            return True
        frame = frame.f_back
    return False


def as_plain(x: Any) -> Any:
    """Make NumPy arrays of tensors, or lists and strings of ragged ones and texts."""
    if isinstance(x, tf.Tensor) and x.dtype != tf.string:
        return x.numpy()
    if isinstance(x, tf.RaggedTensor):
        return _decoded(x.to_list())
    return _decoded(x.numpy().tolist() if x.shape.rank else x.numpy())


def _decoded(x):
    if isinstance(x, list):
        return [_decoded(each) for each in x]
    return x.decode("utf-8", "replace") if isinstance(x, bytes) else x


class PlainInGrain(Mixin):
    """Mixin of layers that return tensors of TensorFlow, but no such inside Grain.

    What TensorFlow refuses raises TensorFlow's own error with its message, on each
    backend.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            outputs = super().__call__(*args, **kwargs)
        except RuntimeError as error:
            # Keras loses the message of such errors, except under TensorFlow.
            refused = error.__context__
            if isinstance(refused, tf.errors.OpError):
                raise refused from None
            raise
        if not tf.executing_eagerly() or not in_grain():
            return outputs
        return _map_tensors(outputs)


def _map_tensors(x):
    if isinstance(x, dict):
        return {name: _map_tensors(value) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(map(_map_tensors, x))
    return as_plain(x) if isinstance(x, tf.Tensor | tf.RaggedTensor) else x
