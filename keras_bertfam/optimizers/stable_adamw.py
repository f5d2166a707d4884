"""AdamW whose updates are bounded, as ModernBERT was trained with."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.optimizers.base import SettableRate, exclude_norms_and_biases
from keras_bertfam.optimizers.lamb import check_betas
from keras_bertfam.types import Config, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class StableAdamW(SettableRate, keras.optimizers.Optimizer):
    """AdamW that lowers a variable's rate when its gradient is unusually large.

    With the corrected moments `m` and `v` of the gradient `g`, the size of a variable's
    gradient is `s = sqrt(mean(g**2 / max(v, epsilon**2)))`, about 1 in a calm training.
    The variable's rate is `rate / max(1, s)`, so gradients need no clipping. By this
    rate, `w` becomes `w - rate * (m / (sqrt(v) + epsilon) + weight_decay * w)`. Weights
    of normalisation layers and biases don't decay, also after saving and loading.

    ModernBERT, Ettin and mmBERT give the weight decay of an update at the peak rate:
    ModernBERT's 1e-5 at a rate of 8e-4 is `weight_decay=1e-5 / 8e-4` here.

    Args:
        learning_rate: float or schedule.
        weight_decay: float or `None`, as in AdamW: it is multiplied by the rate.
        beta_1: float in `[0, 1)`, decay of the first moment.
        beta_2: float in `[0, 1)`, decay of the second moment.
        epsilon: float, beside the root of the second moment.
        **kwargs: other arguments of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: for a `beta_1` or `beta_2` out of its range.

    Example:

    ```python
    optimizer = keras_bertfam.optimizers.StableAdamW(8e-4, weight_decay=0.0125)
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.compile(optimizer)
    ```

    Reference: [Wortsman et al., 2023](https://arxiv.org/abs/2304.13013), algorithm 2;
    the optimizer in AnswerDotAI/ModernBERT.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        weight_decay: float | None = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, **kwargs)
        check_betas(beta_1=beta_1, beta_2=beta_2)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        exclude_norms_and_biases(self)

    def build(self, variables: Sequence[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def _apply_weight_decay(self, variables):
        """Do nothing: `update_step` decays, by the variable's own rate."""

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        # As Keras's own optimizers find their slots.
        index = self._get_variable_index(variable)
        slots = self._momentums[index], self._velocities[index], variable
        m, v, weights, gradient = (ops.cast(x, "float32") for x in (*slots, gradient))
        square = ops.square(gradient)
        m = self._corrected_mean(m, gradient, self.beta_1)
        v = self._corrected_mean(v, square, self.beta_2)
        size = ops.sqrt(ops.mean(square / ops.maximum(v, self.epsilon**2)))
        rate = ops.cast(learning_rate, "float32") / ops.maximum(size, 1.0)
        step = m / (ops.sqrt(v) + self.epsilon)
        if self.weight_decay and self._use_weight_decay(variable):
            step = step + self.weight_decay * weights
        for slot, value in zip(slots, (m, v, weights - rate * step), strict=True):
            self.assign(slot, ops.cast(value, slot.dtype))

    def _corrected_mean(self, mean, new, beta):
        """Update a moving mean that is unbiased from the first update on."""
        count = ops.cast(self.iterations + 1, "float32")
        kept = beta * (1 - ops.power(beta, count - 1)) / (1 - ops.power(beta, count))
        return kept * mean + (1 - kept) * new

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
