"""Calls of a model that answer, and from which nothing is learned.

Seen in Keras 3.15: under PyTorch `predict` keeps nothing for a gradient. A call of a
model does: a batch holds the inputs of every layer until it is answered.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import keras

Args = ParamSpec("Args")
Found = TypeVar("Found")


def without_gradients(function: Callable[Args, Found]) -> Callable[Args, Found]:
    """Decorate a function that calls models, so that PyTorch keeps nothing for later.

    Args:
        function: any, but a generator, whose body runs after the call.

    Returns:
        The function; under TensorFlow and JAX, which keep nothing outside a tape or a
        transformation, it is called as it is.
    """

    @functools.wraps(function)
    def run(*args: Args.args, **kwargs: Args.kwargs) -> Found:
        if keras.backend.backend() != "torch":
            return function(*args, **kwargs)
        import torch

        with torch.no_grad():
            return function(*args, **kwargs)

    return run
