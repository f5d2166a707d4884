"""Muon: updates of matrices are made orthogonal."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.optimizers.lamb import BertAdamW, check_betas
from keras_bertfam.types import Config, Tensor

# Of the polynomial whose repetition brings singular values near 1, and their number.
_COEFFICIENTS = 3.4445, -4.7750, 2.0315
_STEPS = 5
# The size of Adam's usual updates: root of the mean square of their numbers.
_SIZE = 0.2
# Of matrices that are made orthogonal together, which takes memory.
_NUMBERS_AT_ONCE = 1 << 23


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class Muon(BertAdamW):
    """Muon for the matrices of Transformer blocks, and AdamW for all other variables.

    The update of a matrix is its gradient's moving mean, with all singular values
    brought near 1. It is scaled to the usual size of Adam's updates, so one learning
    rate and weight decay serve both. A kernel that joins several projections, such as
    those of queries, keys and values, is updated as separate matrices.

    `keras.optimizers.Muon` differs: it takes a joined kernel for one matrix, and every
    other 2-D variable without "embedding" in its path for a matrix as well, such as
    classifiers and tables of positions.

    Args:
        learning_rate: float or schedule.
        weight_decay: float or `None`.
        momentum: float in `[0, 1)`, decay of a matrix's moving mean. The update looks
            one step ahead, as Nesterov's does.
        beta_1: float in `[0, 1)`, AdamW's decay of the first moment.
        beta_2: float in `[0, 1)`, AdamW's decay of the second moment.
        epsilon: float, AdamW's, beside the root of the second moment.
        product_dtype: in what the products are computed that make an update
            orthogonal: `"float32"`, or `"bfloat16"`, as in the released code, which
            changes singular values by .02. Defaults to `None`: bfloat16 for matrices of
            layers that compute in it.
        **kwargs: other arguments of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: for a `momentum`, `beta_1` or `beta_2` out of its range, or another
            `product_dtype`; in `build()` if none of the variables is a matrix of a
            Transformer block.

    Example:

    ```python
    optimizer = keras_bertfam.optimizers.Muon(2e-3, weight_decay=0.1)
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.compile(optimizer)
    ```

    Reference: [Jordan et al., 2024](https://kellerjordan.github.io/posts/muon/); the
    scale and the shared rate: [Liu et al., 2025](https://arxiv.org/abs/2502.16982),
    section 2.2.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        weight_decay: float | None = 0.1,
        momentum: float = 0.95,
        beta_1: float = 0.9,
        beta_2: float = 0.95,
        epsilon: float = 1e-8,
        product_dtype: str | None = None,
        **kwargs: Any,
    ) -> None:
        # A loaded config has it as well.
        kwargs["bias_correction"] = True
        super().__init__(learning_rate, weight_decay, beta_1, beta_2, epsilon, **kwargs)
        check_betas(momentum=momentum)
        if product_dtype not in (None, "float32", "bfloat16"):
            raise ValueError(
                '`product_dtype` must be "float32", "bfloat16" or `None`. '
                f"Received: {product_dtype!r}."
            )
        self.momentum = momentum
        self.product_dtype = product_dtype

    def build(self, variables: Sequence[Any]) -> None:
        if self.built:
            return
        # Of a variable that isn't updated as matrices `None`.
        self._widths = [getattr(each, "matrix_widths", None) for each in variables]
        if not any(self._widths):
            raise ValueError(
                "`variables` must have matrices of this library's attention or "
                "feed-forward layers, which are what Muon is for. Received: "
                f"{[each.path for each in variables]}. Take `AdamW` for these, or "
                "`keras.optimizers.Muon` for layers of Keras."
            )
        # `BertAdamW` would add a second moment of each matrix.
        keras.optimizers.Optimizer.build(self, variables)
        self._momentums, self._velocities = [], []
        for variable, widths in zip(variables, self._widths, strict=True):
            names = ["momentum"] if widths else ["momentum", "velocity"]
            slots = [self.add_variable_from_reference(variable, n) for n in names]
            self._momentums.append(slots[0])
            self._velocities.append(None if widths else slots[1])

    def _backend_update_step(
        self, grads: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        pairs = [*zip(grads, variables, strict=True)]
        if self._is_fused():  # which is of Adam's updates
            matrices = [pair for pair in pairs if self._widths_of(pair[1])]
            pairs = [pair for pair in pairs if not self._widths_of(pair[1])]
            self._update_matrices(matrices, learning_rate)
        grads, variables = [[pair[k] for pair in pairs] for k in (0, 1)]
        super()._backend_update_step(grads, variables, learning_rate)

    def _widths_of(self, variable):
        return self._widths[self._get_variable_index(variable)]

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        if self._widths_of(variable):
            self._update_matrices([(gradient, variable)], learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _update_matrices(self, pairs, learning_rate):
        """Update variables; matrices of one shape are made orthogonal together."""
        # Example: a kernel of queries, keys and values, (4, 12), and one of outputs,
        # (4, 4), give one group of four matrices, (4, 4). Kernels (4, 16) and (16, 4)
        # of feed-forward layers give another group of two, the second one transposed.
        alike: dict[Any, list[Any]] = {}
        for number, (gradient, variable) in enumerate(pairs):
            ahead, start = self._look_ahead(gradient, variable), 0
            dtype = self.product_dtype or getattr(variable, "matrix_dtype", "float32")
            for width in self._widths_of(variable):
                part = ahead[:, start : start + width]
                tall = part.shape[0] > width
                part = ops.transpose(part) if tall else part
                group = alike.setdefault((dtype, *part.shape), [])
                group.append((number, start, tall, part))
                start += width
        steps: list[list[Any]] = [[] for _ in pairs]
        for (dtype, rows, columns), group in alike.items():
            count = max(1, _NUMBERS_AT_ONCE // (rows * columns))
            for at in range(0, len(group), count):
                some = group[at : at + count]
                made = orthogonalized(ops.stack([part for *_, part in some]), dtype)
                made = made * (_SIZE * columns**0.5)
                for each, (number, start, tall, _) in zip(
                    ops.unstack(made), some, strict=True
                ):
                    each = ops.transpose(each) if tall else each
                    steps[number].append((start, each))
        for (_, variable), parts in zip(pairs, steps, strict=True):
            parts = [each for _, each in sorted(parts, key=lambda part: part[0])]
            step = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=1)
            weights = ops.cast(variable, "float32")
            if self.weight_decay and self._use_weight_decay(variable):
                step = step + self.weight_decay * weights
            weights = weights - ops.cast(learning_rate, "float32") * step
            self.assign(variable, ops.cast(weights, variable.dtype))

    def _look_ahead(self, gradient, variable):
        """Move a matrix's mean of gradients, and give the mean one step ahead."""
        mean = self._momentums[self._get_variable_index(variable)]
        m, gradient = (ops.cast(x, "float32") for x in (mean, gradient))
        m = self.momentum * m + (1 - self.momentum) * gradient
        self.assign(mean, ops.cast(m, mean.dtype))
        return self.momentum * m + (1 - self.momentum) * gradient

    def get_config(self) -> Config:
        own = {"momentum": self.momentum, "product_dtype": self.product_dtype}
        return {**super().get_config(), **own}


def orthogonalized(matrices: Tensor, dtype: str = "float32") -> Tensor:
    """Bring the singular values of matrices near 1, and leave their directions.

    The values of `diag(3, 4)` become .7229 and 1.1192. Values end between .68 and 1.21,
    if they are above .002 of the matrix's norm.

    Args:
        matrices: float32 tensor of shape `(..., rows, columns)`. It is fastest if there
            are at least as many columns as rows.
        dtype: str, in what the products are computed.

    Returns:
        Float32 tensor of the same shape.
    """
    norms = ops.sqrt(ops.sum(ops.square(matrices), axis=(-2, -1), keepdims=True))
    x = ops.cast(matrices / (norms + 1e-7), dtype)
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        square = ops.matmul(x, ops.swapaxes(x, -1, -2))
        x = a * x + ops.matmul(b * square + c * ops.matmul(square, square), x)
    return ops.cast(x, "float32")
