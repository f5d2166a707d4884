"""Which variables weight decay is of."""

import re

import keras

# The ends of the names of biases and of the weights of normalisation layers. With
# TensorFlow, a variable's name begins with its layer's and ends with its device.
_NO_DECAY = r"(bias|gamma|beta|scale)(/replica_\d+)?(:\d+)?$"


def exclude_norms_and_biases(optimizer: keras.optimizers.Optimizer) -> None:
    """Switch weight decay off for biases and normalisation weights.

    Variables are told by the ends of their own names (`bias`, `gamma`, `beta`,
    `scale`): a layer's name, such as "LayerNorm", is no part of a variable's name.

    Args:
        optimizer: A `keras.optimizers.Optimizer` that isn't built yet, or a
            `LossScaleOptimizer` around one.

    Raises:
        ValueError: if the optimizer has been built (its decay is fixed then).
    """
    optimizer = inner(optimizer)
    if optimizer.built:
        raise ValueError(
            "`optimizer` must not be built yet: weight decay is settled when its "
            f"variables are made. Received: optimizer={optimizer}."
        )
    optimizer.exclude_from_weight_decay(var_names=[_NO_DECAY])


def excludes_norms_and_biases(optimizer: keras.optimizers.Optimizer) -> bool:
    """Tell whether `exclude_norms_and_biases` was called on an optimizer, or `None`."""
    # Keras has no public way to what is excluded.
    pattern = getattr(inner(optimizer), "_exclude_from_weight_decay_pattern", None)
    return pattern is not None and pattern.pattern == _NO_DECAY


def decays(variable: keras.Variable) -> bool:
    """Tell whether a variable is decayed: not biases and norms."""
    return re.search(_NO_DECAY, variable.name) is None


def inner(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Give the optimizer inside a `LossScaleOptimizer`, or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)
