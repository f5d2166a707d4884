"""Losses and gradients of tasks as arrays, on any backend."""

import keras
import numpy as np


def loss_and_gradients(task, x, y=None, weights=None):
    """A task's loss and its gradient by each of its trainable variables.

    Args:
        task: a compiled task.
        x: dict of arrays; `y` and `weights` as for `compute_loss`.

    Returns:
        A float and a list of arrays, of zeros where the loss doesn't depend on it.
    """
    variables = task.trainable_variables
    values = [v.value for v in variables]

    def loss():
        return task.compute_loss(x, y, task(x, training=True), weights)

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, values)
    elif backend == "torch":
        import torch

        value = loss()
        gradients = torch.autograd.grad(value, values, allow_unused=True)
    else:
        import jax

        def stateless(values):
            pairs = zip(variables, values, strict=True)
            with keras.StatelessScope(list(pairs)):
                return loss()

        value, gradients = jax.jit(jax.value_and_grad(stateless))(values)
    arrays = [
        np.zeros(v.shape) if g is None else keras.ops.convert_to_numpy(g)
        for v, g in zip(variables, gradients, strict=True)
    ]
    return float(keras.ops.convert_to_numpy(value)), arrays
