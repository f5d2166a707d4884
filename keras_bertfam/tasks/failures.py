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

    What a dataset refuses is raised as a `ValueError`, as for arrays.

    Args:
        model: a model with `VariablesKept`.
    """
    _give_values_back(model)
    try:
        yield
    except BaseException as error:
        _give_values_back(model)
        refused = plain_error(error)
        if refused is None:
            raise
        raise refused from error


def _give_values_back(model):
    """Writes the values that JAX's loop keeps while it runs to the variables.

    After an error `evaluate()` and `predict()` don't. What `train_on_batch()` has
    kept is older than the values that there are.
    """
    if keras.backend.backend() == "jax":
        if any(variable.value.is_deleted() for variable in model.variables):
            model.jax_state_sync()
        model._jax_state = None


class VariablesKept(Mixin):
    """Mixin of models whose variables have their values until the first step.

    Under JAX Keras empties them before it, and an error in the first batch leaves
    them so. To empty them spares no memory, as a compiled step takes over that of
    the old values.
    """

    def _purge_model_variables(self, **kwargs: Any) -> None:
        pass
