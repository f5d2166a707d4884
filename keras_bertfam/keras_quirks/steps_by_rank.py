"""A step's function for each rank of inputs, where TensorFlow would trace one for all.

Keras's functions of steps are traced by TensorFlow with `reduce_retracing`.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


class StepsByRank:
    """Calls a step's function in TensorFlow, another for tensors of another rank.

    A function that TensorFlow traced for tensors of rank 2, and then gets some of rank
    3, it traces once more for any rank, and a model can't read how many axes these
    have.

    Args:
        make: function without arguments that makes a step's function.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._functions: dict[Any, Any] = {}

    def __call__(self, batches: Any) -> Any:
        """Run a step on batches, or an iterator of them."""
        spec = getattr(batches, "element_spec", batches)
        leaves = tf.nest.flatten(spec, expand_composites=True)
        ranks = tuple(getattr(getattr(x, "shape", None), "rank", None) for x in leaves)
        if ranks not in self._functions:
            self._functions[ranks] = self._make()
        return self._functions[ranks](batches)


def make_steps(task: Any, name: str, make: Callable[[bool], Any], force: bool) -> Any:
    """Make the function that runs the steps of `fit()`, `evaluate()` or `predict()`.

    Args:
        task: a task.
        name: `"train"`, `"test"` or `"predict"`.
        make: Keras's method that makes it and keeps it as an attribute.
        force: whether one that is there is made anew.

    Returns:
        What `make` returns.
    """
    if keras.backend.backend() != "tensorflow":
        return make(force)
    attribute = f"{name}_function"

    def make_one():
        make(True)
        made = getattr(task, attribute)
        setattr(task, attribute, steps)
        return made

    if force or getattr(task, attribute) is None:
        steps = StepsByRank(make_one)
        setattr(task, attribute, steps)
    return getattr(task, attribute)
