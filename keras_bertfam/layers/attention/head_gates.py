"""Gates that switch attention heads off in training."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.types import Config, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class HeadGates(keras.layers.Layer):
    """A stochastic gate for each attention head, with a penalty for open gates.

    `fit()` learns which heads the task can do without, and closes their gates. In
    training a gate is a sample of the hard concrete distribution: a number from 0 to 1,
    often exactly 0 or 1. The loss grows by `penalty` times the expected number of open
    gates. In inference gates are constant.

    Two ways lead to a model with gates: a backbone's argument `head_gates`, and
    `keras_bertfam.analysis.heads.pruning.add_head_gates`, which copies a model.

    Args:
        num_layers: int.
        num_heads: int.
        num_groups: int or `None`. Number of groups of consecutive layers. Layers of a
            group share their attention, and so their gates. `None` means `num_layers`.
        penalty: float. What an open gate adds to the loss.
        temperature: float. Temperature of the distribution: the lower, the more samples
            are 0 or 1.
        stretch: pair of floats, one below 0 and one above 1. Samples are stretched to
            this range, then clipped to 0 and 1.
        initial: float. The first `log_alpha`. From 2.4 on gates begin fully open, so
            that the model's first outputs are those of a model without gates.
        learning_rate_multiplier: float. The trained weight is `log_alpha` divided by
            this number, so that `log_alpha` moves this many times faster. Adam's steps
            don't grow with the gradient, and a gate closes at a `log_alpha` of
            about -2.4: at a fine-tuning's rate of 2e-5 the way from 3 takes far too
            long without a multiplier.
        seed: int or `None`.

    Call arguments:
        head_mask: float tensor `(num_layers, num_heads)` or `(num_layers, batch,
            num_heads)`.

    Returns:
        float32 tensor of the same shape, `head_mask` times the gates.

    Raises:
        ValueError: for an argument out of its range.

    References: [Voita et al., 2019](https://arxiv.org/abs/1905.09418), section 6;
    [Louizos et al., 2018](https://arxiv.org/abs/1712.01312), section 2.2.

    Example:

    ```python
    from keras_bertfam.layers.attention.head_gates import HeadGates
    gates = HeadGates(num_layers=2, num_heads=4)
    gates(keras.ops.ones((2, 4)))  # all open
    gates.closed_heads()  # {}
    ```
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        num_groups: int | None = None,
        penalty: float = 0.01,
        temperature: float = 0.33,
        stretch: tuple[float, float] = (-0.1, 1.1),
        initial: float = 3.0,
        learning_rate_multiplier: float = 1.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        low, high = stretch
        ranges = {
            "penalty": ("at least 0", penalty >= 0, penalty),
            "temperature": ("above 0", temperature > 0, temperature),
            "stretch": ("a pair around 0 and 1", low < 0 and high > 1, stretch),
            "learning_rate_multiplier": (
                "above 0",
                learning_rate_multiplier > 0,
                learning_rate_multiplier,
            ),
        }
        for name, (expected, right, value) in ranges.items():
            if not right:
                raise ValueError(f"`{name}` must be {expected}. Received: {value!r}.")
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.num_groups = num_groups or num_layers
        self.penalty = penalty
        self.temperature = temperature
        self.stretch = (low, high)
        self.initial = initial
        self.learning_rate_multiplier = learning_rate_multiplier
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: Shape | None = None) -> None:
        self.log_alpha = self.add_weight(
            name="log_alpha",
            shape=(self.num_groups, self.num_heads),
            initializer=keras.initializers.Constant(
                self.initial / self.learning_rate_multiplier
            ),
        )
        self.built = True

    def call(self, head_mask: Tensor, training: bool | None = None) -> Tensor:
        log_alpha = ops.cast(self.log_alpha, "float32") * self.learning_rate_multiplier
        if training:
            self.add_loss(self.penalty * ops.sum(self._open(log_alpha)))
            noise = keras.random.uniform(
                (self.num_groups, self.num_heads),
                1e-6,
                1 - 1e-6,
                dtype="float32",
                seed=self.seed_generator,
            )
            logits = ops.log(noise) - ops.log1p(-noise) + log_alpha
            log_alpha = logits / self.temperature
        low, high = self.stretch
        gates = ops.clip(ops.sigmoid(log_alpha) * (high - low) + low, 0.0, 1.0)
        layers = np.arange(self.num_layers) * self.num_groups // self.num_layers
        gates = ops.take(gates, layers.astype("int32"), axis=0)
        if len(head_mask.shape) == 3:
            gates = ops.expand_dims(gates, 1)
        return head_mask * gates

    def _open(self, log_alpha):
        low, high = self.stretch
        return ops.sigmoid(log_alpha - self.temperature * np.log(-low / high))

    def open_probabilities(self) -> np.ndarray:
        """Compute for each gate the probability that it isn't 0 in training.

        Returns:
            float32 array `(num_groups, num_heads)`.
        """
        log_alpha = ops.cast(self.log_alpha, "float32") * self.learning_rate_multiplier
        return ops.convert_to_numpy(self._open(log_alpha))

    def values(self) -> np.ndarray:
        """Compute the values that gates have in inference.

        Returns:
            float32 array `(num_layers, num_heads)`.
        """
        ones = ops.ones((self.num_layers, self.num_heads), "float32")
        return ops.convert_to_numpy(self(ones, training=False))

    def closed_heads(self) -> dict[int, list[int]]:
        """List the heads whose gates are 0 in inference, for `prune_heads`.

        Returns:
            Dict from a layer's number to the list of its closed heads. Layers without
            any are left out.
        """
        rows = enumerate(self.values() == 0)
        found = {layer: np.flatnonzero(row).tolist() for layer, row in rows}
        return {layer: heads for layer, heads in found.items() if heads}

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "num_groups": self.num_groups,
            "penalty": self.penalty,
            "temperature": self.temperature,
            "stretch": self.stretch,
            "initial": self.initial,
            "learning_rate_multiplier": self.learning_rate_multiplier,
            "seed": self.seed,
        }
