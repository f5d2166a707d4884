"""Adam and LAMB as BERT's and ALBERT's released code compute them."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.optimizers.base import (
    FusedUpdate,
    SettableRate,
    exclude_norms_and_biases,
)
from keras_bertfam.types import Config, Tensor


def check_betas(**betas: float) -> None:
    """Raise a `ValueError` for a decay of a moment that isn't in `[0, 1)`."""
    for name, beta in betas.items():
        if not 0 <= beta < 1:
            raise ValueError(f"`{name}` must be in [0, 1). Received: {name}={beta}.")


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class BertAdamW(FusedUpdate, SettableRate, keras.optimizers.Optimizer):
    """AdamW without correction of the moments' bias, as in BERT's released code.

    With the moments `m` and `v` of the gradient, `u = m / (sqrt(v) + epsilon)`, and
    `w` becomes `w - rate * (u + weight_decay * w)`. Weights of normalisation layers
    and biases don't decay, also after saving and loading;
    `exclude_from_weight_decay` before `build` changes that, as in Keras.

    Args:
        learning_rate: float or schedule.
        weight_decay: float or `None`.
        beta_1: float in `[0, 1)`, decay of the first moment.
        beta_2: float in `[0, 1)`, decay of the second moment.
        epsilon: float, beside the root of the second moment.
        bias_correction: bool. Divide `m` by `1 - beta_1**t` and `v` by
            `1 - beta_2**t` at update `t`. Without, the first updates are up to
            `(1 - beta_1) / sqrt(1 - beta_2)` times as large, 3.2 by default.
        **kwargs: other arguments of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: for a `beta_1` or `beta_2` out of its range.

    Example:

    ```python
    optimizer = keras_bertfam.optimizers.BertAdamW(1e-4, global_clipnorm=1.0)
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.compile(optimizer)
    ```

    Reference: `AdamWeightDecayOptimizer` in google-research/bert, optimization.py.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-4,
        weight_decay: float | None = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        bias_correction: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, **kwargs)
        check_betas(beta_1=beta_1, beta_2=beta_2)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        exclude_norms_and_biases(self)

    def build(self, variables: Sequence[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def _apply_weight_decay(self, variables):
        """Do nothing: `update_step` decays, where LAMB's ratio can reach it."""

    def _as_torch_counts(self, updates: int) -> tuple[float, float]:
        # Moments after many updates have no bias to correct.
        return float(updates) if self.bias_correction else 1e9, self.epsilon

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        # 16-bit variables have float32 moments.
        dtype = self._momentums[self._get_variable_index(variable)].dtype
        update = self._direction(ops.cast(gradient, dtype), variable)
        decayed, weights = self._use_weight_decay(variable), ops.cast(variable, dtype)
        if decayed and self.weight_decay:
            update = ops.add(update, ops.multiply(weights, self.weight_decay))
        rate = ops.cast(learning_rate, "float32")
        if decayed:
            rate = ops.multiply(rate, self._ratio(weights, update))
        step = ops.multiply(update, ops.cast(rate, dtype))
        self.assign_sub(variable, ops.cast(step, variable.dtype))

    def _direction(self, gradient, variable):
        # Keras's own optimizers find their slots by this method. A subclass has no
        # public way to the number of a variable.
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign_add(m, ops.multiply(ops.subtract(gradient, m), 1 - self.beta_1))
        self.assign_add(
            v, ops.multiply(ops.subtract(ops.square(gradient), v), 1 - self.beta_2)
        )
        if not self.bias_correction:
            return ops.divide(m, ops.add(ops.sqrt(v), self.epsilon))
        step = ops.cast(ops.add(self.iterations, 1), "float32")
        m = ops.divide(m, ops.cast(1 - ops.power(self.beta_1, step), m.dtype))
        v = ops.divide(v, ops.cast(1 - ops.power(self.beta_2, step), v.dtype))
        return ops.divide(m, ops.add(ops.sqrt(v), self.epsilon))

    def _ratio(self, variable, update):
        """Compute the factor of the rate of a variable with weight decay."""
        return 1.0

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "bias_correction": self.bias_correction,
        }


@keras.saving.register_keras_serializable("keras_bertfam")
class Lamb(BertAdamW):
    """LAMB as ALBERT was trained with: each variable's step is as long as the variable.

    To the update `u` of `BertAdamW` comes the trust ratio: with
    `d = u + weight_decay * w`, `w` becomes `w - rate * ratio * d`, where
    `ratio = ||w|| / ||d||`, or 1 if either norm is 0. Norms are of whole variables.
    Variables without weight decay, biases and normalisation weights, have ratio 1.

    `keras.optimizers.Lamb` differs: it decays outside the ratio, corrects the
    moments' bias and has a ratio for every variable.

    Args:
        learning_rate: float or schedule. ALBERT's peak is .00176, at a batch of 4096.
        weight_decay: float or `None`.
        beta_1: float in `[0, 1)`, decay of the first moment.
        beta_2: float in `[0, 1)`, decay of the second moment.
        epsilon: float, beside the root of the second moment.
        bias_correction: bool. The paper's algorithm 2 corrects the moments' bias,
            and its appendix E says that warm-up has the same effect and the
            correction can go. The released code has none.
        **kwargs: other arguments of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: for a `beta_1` or `beta_2` out of its range.

    Example:

    ```python
    schedule = keras_bertfam.optimizers.WarmupPolynomialDecay(
        0.00176, warmup_steps=3125, total_steps=125_000)
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.compile(keras_bertfam.optimizers.Lamb(schedule, global_clipnorm=1.0))
    ```

    Reference: [You et al., 2019](https://arxiv.org/abs/1904.00962); Lan et al. 2019,
    section 4.1; google-research/albert, lamb_optimizer.py.
    """

    is_adam = False  # a ratio for each variable

    def _ratio(self, variable, update):
        length, step = _norm(variable), _norm(update)
        both = ops.logical_and(length > 0, step > 0)
        return ops.where(both, length / ops.where(both, step, 1.0), 1.0)


def _norm(tensor):
    # The squares of a float16's values may be beyond its range.
    return ops.sqrt(ops.sum(ops.square(ops.cast(tensor, "float32"))))
