"""A step's function for each rank of inputs, where TensorFlow would trace one for all.

Keras's functions of steps are traced by TensorFlow with `reduce_retracing`.
"""

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


class StepsByRank:
    """Calls a step's function in TensorFlow, another for tensors of another rank.

    A function that TensorFlow traced for tensors of rank 2, and then gets some of rank
    3, it traces once more for any rank, and a model can't read how many axes these
    have. The same goes for how many texts there are in rows `(batch, texts, length)`.

    Args:
        make: function without arguments that makes a step's function.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._functions: dict[Any, Any] = {}

    def __call__(self, batches: Any) -> Any:
        """Run a step on batches, or an iterator of them."""
        if inspect.isgenerator(batches):  # of `train_on_batch`
            first = next(batches)
            spec, batches = first, itertools.chain([first], batches)
        else:
            spec = getattr(batches, "element_spec", batches)
        leaves = tf.nest.flatten(spec, expand_composites=True)
        shapes = tuple(_middle(getattr(leaf, "shape", None)) for leaf in leaves)
        if shapes not in self._functions:
            self._functions[shapes] = self._make()
        return self._functions[shapes](batches)


def _middle(shape):
    """Give the axes that there are, and how long those are but the first and last."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return len(shape), *tuple(shape)[1:-1]


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
