"""Calls of a layer through the backend's compiler, where that is faster."""

import keras
import numpy as np


def compiled(layer):
    """The layer as a function of arrays.

    Eager JAX compiles each operation for each shape, which takes longer than
    compiling the whole.

    Args:
        layer: a built `keras.Layer`.

    Returns:
        Callable with the layer's call arguments, of which only the first may
        hold arrays.
    """
    if keras.backend.backend() != "jax":
        return layer
    import jax

    def call(inputs, **kwargs):
        def run(values, arrays):
            outputs, _ = layer.stateless_call(*values, arrays, **kwargs)
            return outputs

        values = [
            [v.value for v in variables]
            for variables in (layer.trainable_variables, layer.non_trainable_variables)
        ]
        return jax.jit(run)(values, keras.tree.map_structure(np.asarray, inputs))

    return call
