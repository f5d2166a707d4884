"""What a `fit()` that ends in an error leaves, and says."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from keras_bertfam.layers.data.ranges import plain_error
from keras_bertfam.types import Mixin, Model


@contextlib.contextmanager
def usable_after_errors(model: Model) -> Iterator[None]:
    """Gives a model its values back when Keras's loop ends in an error.

    Under JAX the loop keeps them itself while it runs, and writes them back at its
    end; after an error `evaluate()` and `predict()` don't. What a dataset refuses
    is raised as a `ValueError`, as for arrays.

    Args:
        model: a model with `VariablesKept`.
    """
    jax = keras.backend.backend() == "jax"
    if jax:
        model._jax_state = None  # else what `train_on_batch()` left is written back
    try:
        yield
    except BaseException as error:
        if jax:
            model.jax_state_sync()
            model._jax_state = None
        refused = plain_error(error)
        if refused is None:
            raise
        raise refused from error


class VariablesKept(Mixin):
    """Mixin of models whose variables have their values until the first step.

    Under JAX Keras empties them before it, and an error in the first batch leaves
    them so. To empty them spares no memory, as a compiled step takes over that of
    the old values.
    """

    def _purge_model_variables(self, **kwargs: Any) -> None:
        pass
