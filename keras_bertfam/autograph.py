"""TensorFlow in pipelines: AutoGraph rewrites users' code only, and GPUs stay free.

AutoGraph turns Python's `if` and `while` on tensors into operations of a graph. The
library's pipelines have no such `if` and `while`. Rewriting its functions would take up
to two thirds of the time to build a process's first pipeline. So AutoGraph rewrites
users' functions, and none of the library's.
"""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import keras
import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def leave_gpus() -> None:
    """Keep TensorFlow away from GPUs on which JAX or PyTorch trains.

    TensorFlow would take all of their memory, although pipelines run on CPUs. To use
    GPUs from both, call `tf.config.set_visible_devices` afterwards.
    """
    if keras.backend.backend() != "tensorflow":
        # If TensorFlow has been used before, it has the GPUs already.
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices([], "GPU")


leave_gpus()


def as_written(function: _Function) -> _Function:
    """Keep AutoGraph from rewriting a function, its callees and its datasets."""
    kept: _Function = tf.autograph.experimental.do_not_convert(function)
    return kept


def as_graph(function: _Function) -> _Function:
    """Let AutoGraph rewrite a user's function, also inside the library's functions.

    Args:
        function: a function or method. It is returned unchanged if the library or
            KerasHub defines it; and in eager mode, where Python's branches work.
    """
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    if tf.executing_eagerly() or package in ("keras_bertfam", "keras_hub"):
        return function
    # The caller has switched AutoGraph off, so it is switched on here.
    context = tf.__internal__.autograph.control_status_ctx()
    switched_on = type(context)(type(context.status).ENABLED)
    rewritten: _Function = tf.__internal__.autograph.tf_convert(function, switched_on)
    return rewritten
