"""How pipelines use TensorFlow: which code AutoGraph rewrites, and no GPU of others.

AutoGraph turns Python's `if` and `while` on tensors into operations of a graph. The
library has none of these in its pipelines, and rewriting its functions took up to two
thirds of the time in which a process builds its first pipeline. So it rewrites what
users bring, and nothing of ours.
"""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import keras
import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def leave_gpus() -> None:
    """Keep TensorFlow from GPUs that JAX or PyTorch trains on.

    It would take all of their memory for pipelines, which run on CPUs. Whoever wants
    both calls `tf.config.set_visible_devices` afterwards.
    """
    if keras.backend.backend() != "tensorflow":
        # It's too late if TensorFlow has been used, and then it has them already.
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices([], "GPU")


leave_gpus()


def as_written(function: _Function) -> _Function:
    """Keep AutoGraph from a function, from what it calls and from datasets it makes."""
    kept: _Function = tf.autograph.experimental.do_not_convert(function)
    return kept


def as_graph(function: _Function) -> _Function:
    """Let AutoGraph rewrite a function of a user's, also inside one of ours.

    Args:
        function: a function or method. It is returned as it is if the library or
            KerasHub defines it, and in eager mode, where Python's branches work.
    """
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    if tf.executing_eagerly() or package in ("keras_bertfam", "keras_hub"):
        return function
    # Whoever calls has switched AutoGraph off, so it is switched on here.
    context = tf.__internal__.autograph.control_status_ctx()
    switched_on = type(context)(type(context.status).ENABLED)
    rewritten: _Function = tf.__internal__.autograph.tf_convert(function, switched_on)
    return rewritten
