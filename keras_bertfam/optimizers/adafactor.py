"""Adafactor as T5 was trained with it."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.optimizers.base import SettableRate, exclude_norms_and_biases
from keras_bertfam.types import Config, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class Adafactor(SettableRate, keras.optimizers.Optimizer):
    """Adam without a first moment, and with two vectors for a matrix's second one.

    For a matrix, `r` is the mean of the squared gradient over each row, and `c` over
    each column; at update `t` both are moving averages with decay `1 - t **
    decay_exponent`. The second moment is `v = r * c / mean(r)`. The direction is `u = g
    / sqrt(v)`, divided by `rms(u) / clip_threshold` if that is above 1. The step is
    `rate * max(epsilon_2, rms(w)) * u`. There is no momentum, and no moment of the size
    of a matrix.

    `keras.optimizers.Adafactor` differs: it keeps moments of that size, factorises
    small matrices too, and bounds the rate by `1 / sqrt(t)`.

    Args:
        learning_rate: float or schedule, relative to the size of each variable.
        decay_exponent: float, negative.
        epsilon_1: float, added to squared gradients.
        epsilon_2: float, the least size of a variable.
        clip_threshold: float.
        min_factored: int. A variable is factorised if its last two axes both have at
            least this size.
        weight_decay: float or `None`, decoupled.
        **kwargs: other arguments of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: for a `decay_exponent` that isn't negative.

    Example:

    ```python
    schedule = keras_bertfam.optimizers.InverseSquareRootDecay()
    optimizer = keras_bertfam.optimizers.Adafactor(schedule)
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.compile(optimizer)
    ```

    Reference: [Shazeer and Stern, 2018](https://arxiv.org/abs/1804.04235), algorithm 5
    without momentum; tensorflow/mesh, optimize.py.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        decay_exponent: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        min_factored: int = 128,
        weight_decay: float | None = None,
        **kwargs: Any,
    ) -> None:
        if not decay_exponent < 0:
            raise ValueError(
                "`decay_exponent` must be negative. "
                f"Received: decay_exponent={decay_exponent}."
            )
        super().__init__(learning_rate, weight_decay=weight_decay, **kwargs)
        exclude_norms_and_biases(self)
        self.decay_exponent = decay_exponent
        self.epsilon_1 = epsilon_1
        self.epsilon_2 = epsilon_2
        self.clip_threshold = clip_threshold
        self.min_factored = min_factored

    def _is_factored(self, variable):
        sides = variable.shape[-2:]
        return len(sides) == 2 and min(sides) >= self.min_factored

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._rows, self._columns, self._moments = [], [], []
        for variable in variables:
            shape = tuple(variable.shape)
            rows = columns = moment = None
            if self._is_factored(variable):
                rows = self._moment(variable, shape[:-1], "row")
                columns = self._moment(variable, (*shape[:-2], shape[-1]), "column")
            else:
                moment = self._moment(variable, shape, "moment")
            self._rows.append(rows)
            self._columns.append(columns)
            self._moments.append(moment)

    def _moment(self, variable, shape, name):
        return self.add_variable(shape, dtype="float32", name=f"{variable.name}_{name}")

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        index = self._get_variable_index(variable)
        gradient = ops.cast(gradient, "float32")
        square = ops.square(gradient) + self.epsilon_1
        count = ops.cast(self.iterations + 1, "float32")
        decay = 1.0 - ops.power(count, self.decay_exponent)
        if self._is_factored(variable):
            rows = self._decayed(self._rows[index], ops.mean(square, -1), decay)
            columns = self._decayed(self._columns[index], ops.mean(square, -2), decay)
            rows = ops.rsqrt(rows / ops.mean(rows, -1, keepdims=True))
            step = gradient * ops.expand_dims(rows, -1)
            step = step * ops.expand_dims(ops.rsqrt(columns), -2)
        else:
            step = gradient * ops.rsqrt(
                self._decayed(self._moments[index], square, decay)
            )
        step = step / ops.maximum(1.0, _size(step) / self.clip_threshold)
        size = ops.maximum(_size(ops.cast(variable, "float32")), self.epsilon_2)
        step = step * size * ops.cast(learning_rate, "float32")
        self.assign_sub(variable, ops.cast(step, variable.dtype))

    def _decayed(self, moment, new, decay):
        value = decay * ops.convert_to_tensor(moment) + (1.0 - decay) * new
        self.assign(moment, value)
        return value

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "decay_exponent": self.decay_exponent,
            "epsilon_1": self.epsilon_1,
            "epsilon_2": self.epsilon_2,
            "clip_threshold": self.clip_threshold,
            "min_factored": self.min_factored,
        }


def _size(x):
    return ops.sqrt(ops.mean(ops.square(x)))
