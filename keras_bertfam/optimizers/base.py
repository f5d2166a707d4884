"""Share code among the optimizers, and extend Keras's `AdamW` with it."""

import contextlib
import math
import numbers
import re
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import check_numbers
from keras_bertfam.types import Mixin, Tensor

# Endings of the names of biases and normalisation weights. With TensorFlow, a
# variable's name begins with its layer's name and ends with its device.
_NO_DECAY = r"(bias(es)?|gamma|beta|scale)(/replica_\d+)?(:\d+)?$"


def exclude_norms_and_biases(optimizer: keras.optimizers.Optimizer) -> None:
    """Switch weight decay off for biases and normalisation weights.

    They are recognised by the ends of the variables' own names (`bias`, `biases`,
    `gamma`, `beta`, `scale`). A layer's name, such as "LayerNorm", isn't part of a
    variable's name.

    Args:
        optimizer: A `keras.optimizers.Optimizer` that isn't built yet, or a
            `LossScaleOptimizer` around one.

    Raises:
        ValueError: if the optimizer has been built (its decay is fixed then).
    """
    optimizer = inner(optimizer)
    if optimizer.built:
        raise ValueError(
            "`optimizer` must not be built yet: weight decay is fixed when its "
            f"variables are made. Received: optimizer={optimizer}."
        )
    optimizer.exclude_from_weight_decay(var_names=[_NO_DECAY])


def excludes_norms_and_biases(optimizer: keras.optimizers.Optimizer) -> bool:
    """Tell whether `exclude_norms_and_biases` was called on an optimizer, or `None`."""
    # Keras has no public access to the exclusions.
    pattern = getattr(inner(optimizer), "_exclude_from_weight_decay_pattern", None)
    return pattern is not None and pattern.pattern == _NO_DECAY


def decays(variable: keras.Variable) -> bool:
    """Tell whether a variable is decayed: all are, except biases and norms."""
    return re.search(_NO_DECAY, variable.name) is None


def inner(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Give the optimizer inside a `LossScaleOptimizer`, or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def has_16_bits(variable: Any) -> bool:
    """Tell whether a variable is of 16-bit floats."""
    return keras.backend.standardize_dtype(variable.dtype) in ("bfloat16", "float16")


class FusedUpdate(Mixin):
    """Mixin of Adams whose update takes one kernel under PyTorch, and trains 16 bits.

    Keras's update goes over each variable a dozen times, which took a fifth of a
    pre-training step on a CPU. The other backends' compilers merge these passes.
    """

    amsgrad = False
    # Whether the update only scales rates and decays weights.
    is_adam = True

    def _backend_update_step(
        self, grads: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        if not self._is_fused():
            super()._backend_update_step(grads, variables, learning_rate)
            return
        groups: dict[tuple[float, float], list[Any]] = {}
        for variable, gradient in zip(variables, grads, strict=True):
            rates = self._scale_and_decay(variable)
            groups.setdefault(rates, []).append((variable, gradient))
        for (scale, weight_decay), members in groups.items():
            self._update_group(members, float(learning_rate) * scale, weight_decay)

    def _is_fused(self):
        if keras.backend.backend() != "torch" or self.amsgrad or not self.is_adam:
            return False
        if any(map(has_16_bits, self._trainable_variables)):
            return False  # the kernel takes moments of the variables' dtype
        import torch

        return (
            not torch.compiler.is_compiling()
        )  # a graph would be compiled for each count

    def _update_group(self, members, rate, weight_decay):
        import torch
        from torch.optim.adamw import adamw

        updates, epsilon = self._as_torch_counts(int(self.iterations))
        indices = [self._get_variable_index(variable) for variable, _ in members]
        values = [variable.value for variable, _ in members]
        # A count for each variable, which the update increases. It is filled without a
        # copy, because a copy would wait for the GPU.
        counts = torch.full((len(values),), updates, device=values[0].device)
        with torch.no_grad():
            adamw(
                values,
                [gradient.to(variable.value.dtype) for variable, gradient in members],
                [self._momentums[index].value for index in indices],
                [self._velocities[index].value for index in indices],
                [],
                [*counts.unbind()],
                fused=True,
                amsgrad=False,
                beta1=self.beta_1,
                beta2=self.beta_2,
                lr=rate,
                weight_decay=weight_decay,
                eps=epsilon,
                maximize=False,
            )

    def _as_torch_counts(self, updates: int) -> tuple[float, float]:
        """Give the count of updates, and epsilon for the corrected second moment."""
        # Keras adds epsilon to the root of the raw moment.
        corrected = (1 - self.beta_2 ** (updates + 1)) ** 0.5
        return float(updates), self.epsilon / corrected

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        """Update a variable; in 16 bits by float32, as .999 would be rounded to 1."""
        if not has_16_bits(variable) or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        moments = self._momentums[index], self._velocities[index]
        m, v, old, new = (
            ops.cast(x, "float32") for x in (*moments, variable, gradient)
        )
        count = ops.cast(self.iterations + 1, "float32")
        # Never in place: under PyTorch that would change the rate of other variables.
        m = m + (new - m) * (1 - self.beta_1)
        v = v + (ops.square(new) - v) * (1 - self.beta_2)
        root = ops.sqrt(1 - ops.power(self.beta_2, count))
        rate = ops.cast(learning_rate, "float32") * root
        rate = rate / (1 - ops.power(self.beta_1, count))
        # So is the decay, which is less than a step of 16 bits, too.
        _, decay = self._scale_and_decay(variable)
        kept = 1 - ops.cast(learning_rate, "float32") * decay
        new = old * kept - rate * m / (ops.sqrt(v) + self.epsilon)
        for each, value in zip((*moments, variable), (m, v, new), strict=True):
            self.assign(each, ops.cast(value, each.dtype))

    def _scale_and_decay(self, variable: Any) -> tuple[float, float]:
        """Give the factor of a variable's rate, and its weight decay in the kernel."""
        return 1.0, (self.weight_decay or 0.0) * self._use_weight_decay(variable)


class SettableRate(Mixin):
    """Mixin of optimizers whose `learning_rate` can be set even if it is a schedule.

    Keras refuses to set it. Here, setting a float replaces the schedule from then on;
    setting a schedule replaces the float. While `follows_schedule` is true, a float
    changes the schedule's level instead: all its rates are multiplied by the factor
    that makes the present rate the one that is set. The optimizer's variables hold the
    setting, so `.keras` files and backups have it, too. Only an optimizer that was made
    with a schedule has these variables.

    What is set is in variables of the optimizer, and so in `.keras` files and backups.
    They are there only if it was made with a schedule.

    Attributes:
        follows_schedule: bool. Whether setting a float scales the schedule.

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
            # All are 0 for the schedule itself: resetting an optimizer sets them to 0.
            self._log_factor, self._is_fixed, self._fixed_rate = (
                self.add_variable(
                    (), "zeros", "float32", "only_first_replica", name=name
                )
                for name in ("rate_log_factor", "rate_is_fixed", "fixed_rate")
            )

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable:
        """Add a variable of the shape of another one.

        Moments of 16-bit variables are float32: a step changes them by a part in 1,000,
        which is less than half a step of bfloat16, so that they would never fall.
        """
        if name not in ("momentum", "velocity") or not has_16_bits(reference_variable):
            return super().add_variable_from_reference(
                reference_variable, name, initializer
            )
        return self.add_variable(
            reference_variable.shape,
            initializer,
            "float32",
            layout=getattr(reference_variable, "_layout", None),
            name=f"{reference_variable.path.replace('/', '_')}_{name}",
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
        if isinstance(rate, numbers.Real) and not float(rate) >= 0:
            raise ValueError(f"`learning_rate` must not be negative. Received: {rate}.")
        if self._log_factor is None or callable(rate):
            keras.optimizers.Optimizer.learning_rate.fset(self, rate)
            if self._log_factor is not None:
                self._level(0.0, 0.0, 0.0)
            return
        present = _number(self.learning_rate) if self.follows_schedule else 0.0
        if rate and present:
            self._log_factor.assign_add(math.log(rate / present))
        else:  # no level of the schedule gives this rate from a rate of 0
            self._level(0.0, 1.0, float(rate))

    def _level(self, log_factor, is_fixed, fixed):
        self._log_factor.assign(log_factor)
        self._is_fixed.assign(is_fixed)
        self._fixed_rate.assign(fixed)


@keras.saving.register_keras_serializable("keras_bertfam")
class AdamW(FusedUpdate, SettableRate, keras.optimizers.AdamW):
    """Keras's `AdamW`, whose learning rate can be set even if it is a schedule.

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

    def _apply_weight_decay(self, variables):
        if self._is_fused():
            return  # the kernel does it, in the same pass
        # `update_step` does it for 16-bit variables.
        if others := [v for v in variables if not has_16_bits(v) or self.amsgrad]:
            super()._apply_weight_decay(others)


@contextlib.contextmanager
def rates_set_by(
    optimizer: keras.optimizers.Optimizer | None,
    callbacks: list[keras.callbacks.Callback],
) -> Iterator[None]:
    """Let the callbacks of a `fit()` set a schedule's rates in their own ways.

    `ReduceLROnPlateau` lowers the rest of the schedule. `LearningRateScheduler` and
    other callbacks set a rate that holds until they set the next one.

    Args:
        optimizer: optimizer or `None`.
        callbacks: list of callbacks.

    Returns:
        A context manager for the duration of the `fit()`.
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
