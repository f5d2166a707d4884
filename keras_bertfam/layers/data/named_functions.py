"""Python functions that graphs call by a name, in whichever process they run."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import script_ops


def register_by_name(function: Callable[..., Any]) -> str:
    """Make a function of a module known to graphs by its name.

    What `tf.numpy_function` calls is known to its own process only, not to a worker of
    `tf.data` service.

    Args:
        function: of NumPy arrays.

    Returns:
        The name, the `token` of `tf.raw_ops.PyFunc`.
    """
    name = f"{function.__module__}.{function.__name__}"
    # TensorFlow numbers the functions that it is given: no public call takes a name.
    script_ops._py_funcs._funcs[name] = function
    return name


def call_by_name(name: str, inputs: list[Any], types: list[tf.DType]) -> Any:
    """Call a function of `register_by_name` for what it does besides its outputs.

    Args:
        name: of the function.
        inputs: list of tensors.
        types: list of `tf.DType`, of the outputs.

    Returns:
        A list of tensors. Works in a graph.
    """
    return tf.raw_ops.PyFunc(input=inputs, token=name, Tout=types)
