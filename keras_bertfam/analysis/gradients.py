"""Compute gradients with respect to inputs, on three backends."""

from collections.abc import Callable
from typing import Any

import keras

from keras_bertfam.types import Model, Tensor


def gradient_of(function: Callable[..., Tensor], model: Model) -> Callable[..., Tensor]:
    """Make the function that computes the gradient with respect to the first argument.

    Args:
        function: takes a float tensor and any other arguments, arrays or structures of
            arrays, and returns a scalar tensor. It may call `model`, but not in
            training.
        model: the model that it calls. JAX compiles the function for each shape.

    Returns:
        A function of the same arguments. It returns a tensor of the first one's shape.

    Example:

    ```python
    from keras_bertfam.analysis.gradients import gradient_of

    layer = keras.layers.Dense(1)
    layer.build((None, 2))
    slope = gradient_of(lambda x: keras.ops.sum(layer(x)), layer)
    slope(keras.ops.ones((1, 2)))  # the kernel, as a row
    ```
    """
    return _KINDS[keras.backend.backend()](function, model)


def _by_tape(function, model):
    import tensorflow as tf

    def gradient(value, *args):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(value)
            result = function(value, *args)
        return tape.gradient(result, value)

    return gradient


def _by_autograd(function, model):
    import torch

    def gradient(value, *args):
        value = value.detach().requires_grad_()
        return torch.autograd.grad(function(value, *args), value)[0]

    return gradient


def _by_tracing(function, model):
    import jax

    def stateless(value, weights, *args):
        pairs = list(zip(model.variables, weights, strict=True))
        with keras.StatelessScope(pairs):  # no traced tensor stays in the model
            return function(value, *args)

    compiled = jax.jit(jax.grad(stateless))

    def gradient(value: Any, *args: Any) -> Any:
        return compiled(value, [v.value for v in model.variables], *args)

    return gradient


_KINDS = {"tensorflow": _by_tape, "torch": _by_autograd, "jax": _by_tracing}
