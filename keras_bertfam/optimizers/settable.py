"""Learning rates of schedules that callbacks and users can set."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import check_numbers
from keras_bertfam.optimizers.fused import FusedUpdate
from keras_bertfam.optimizers.weight_decay import inner
from keras_bertfam.types import Mixin, Tensor


class SettableRate(Mixin):
    """Mixin of optimizers whose `learning_rate` can be set though it is a schedule.

    Keras refuses to set it. Here a float takes the place of the schedule from then
    on, as it would in an optimizer that was made with a float; a schedule takes its
    place again. While `follows_schedule`, the schedule goes on at another level:
    all its rates are multiplied by what makes the present one the one that is set.

    What is set is in variables of the optimizer, and so in `.keras` files and backups.
    They are there only if it was made with a schedule.

    Attributes:
        follows_schedule: bool. Whether a float that is set scales the schedule.

    Example:

    ```python
    optimizer = keras_bertfam.optimizers.pretraining_optimizer(total_steps=1000)
    optimizer.learning_rate = 1e-5
    ```
    """

    follows_schedule = False
    _log_factor: Any = None
    _is_fixed: Any = None
    _fixed_rate: Any = None

    def __init__(self, learning_rate: Any, *args: Any, **kwargs: Any) -> None:
        check_numbers({**kwargs, "learning_rate": learning_rate})
        super().__init__(learning_rate, *args, **kwargs)
        if isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            # All 0 for the schedule itself: who resets an optimizer sets them so.
            self._log_factor, self._is_fixed, self._fixed_rate = (
                self.add_variable(
                    (), "zeros", "float32", "only_first_replica", name=name
                )
                for name in ("rate_log_factor", "rate_is_fixed", "fixed_rate")
            )

    def _get_current_learning_rate(self) -> Tensor:
        rate = super()._get_current_learning_rate()
        if self._log_factor is None:
            return rate
        fixed = ops.convert_to_tensor(self._fixed_rate)
        rate = ops.where(ops.convert_to_tensor(self._is_fixed) > 0, fixed, rate)
        return rate * ops.exp(ops.convert_to_tensor(self._log_factor))

    @property
    def learning_rate(self) -> Tensor:
        return self._get_current_learning_rate()

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        if self._log_factor is None or callable(rate):
            keras.optimizers.Optimizer.learning_rate.fset(self, rate)
            if self._log_factor is not None:
                self._level(0.0, 0.0, 0.0)
            return
        if not rate >= 0:
            raise ValueError(f"`learning_rate` must not be negative. Received: {rate}.")
        present = _number(self.learning_rate) if self.follows_schedule else 0.0
        if rate and present:
            self._log_factor.assign_add(math.log(rate / present))
        else:  # 0 isn't at any level of a schedule
            self._level(0.0, 1.0, float(rate))

    def _level(self, log_factor, is_fixed, fixed):
        self._log_factor.assign(log_factor)
        self._is_fixed.assign(is_fixed)
        self._fixed_rate.assign(fixed)


@keras.saving.register_keras_serializable("keras_bertfam")
class AdamW(FusedUpdate, SettableRate, keras.optimizers.AdamW):
    """Keras's `AdamW`, whose learning rate can be set though it is a schedule.

    Args:
        learning_rate: float or schedule.
        *args: as in `keras.optimizers.AdamW`.
        **kwargs: as in `keras.optimizers.AdamW`.

    Example:

    ```python
    schedule = keras_bertfam.optimizers.WarmupPolynomialDecay(1e-4, 100, 1000)
    optimizer = keras_bertfam.optimizers.AdamW(schedule, weight_decay=0.01)
    optimizer.learning_rate = 1e-5
    ```
    """

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype not in ("bfloat16", "float16") or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        # In bfloat16 .999 is 1, so that Keras's step has no length.
        index = self._get_variable_index(variable)
        moments = self._momentums[index], self._velocities[index]
        m, v, old, new = (
            ops.cast(x, "float32") for x in (*moments, variable, gradient)
        )
        count = ops.cast(self.iterations + 1, "float32")
        # Never in place, which under PyTorch would change the rate of other variables.
        m = m + (new - m) * (1 - self.beta_1)
        v = v + (ops.square(new) - v) * (1 - self.beta_2)
        root = ops.sqrt(1 - ops.power(self.beta_2, count))
        rate = ops.cast(learning_rate, "float32") * root
        rate = rate / (1 - ops.power(self.beta_1, count))
        new = old - rate * m / (ops.sqrt(v) + self.epsilon)
        for each, value in zip((*moments, variable), (m, v, new), strict=True):
            self.assign(each, ops.cast(value, dtype))


@contextlib.contextmanager
def rates_set_by(
    optimizer: keras.optimizers.Optimizer | None,
    callbacks: list[keras.callbacks.Callback],
) -> Iterator[None]:
    """Let the callbacks of a `fit()` set the rates of a schedule as they mean it.

    `ReduceLROnPlateau` lowers the rest of the schedule. `LearningRateScheduler`, and
    whatever else sets a rate, sets that rate, until it sets the next.

    Args:
        optimizer: optimizer or `None`.
        callbacks: list of callbacks.

    Returns:
        A context manager for the time of the `fit()`.
    """
    optimizer = inner(optimizer)
    if not isinstance(optimizer, SettableRate):
        yield
        return
    reduces, sets = (
        any(isinstance(callback, kind) for callback in callbacks)
        for kind in (
            keras.callbacks.ReduceLROnPlateau,
            keras.callbacks.LearningRateScheduler,
        )
    )
    optimizer.follows_schedule = reduces and not sets
    try:
        yield
    finally:
        optimizer.follows_schedule = False


def _number(value):
    return float(ops.convert_to_numpy(value))
