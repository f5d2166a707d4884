"""The loss of texts that a model writes token by token."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.tasks.losses import (
    MaskedCrossentropy,
    logit_statistics,
    token_crossentropy,
)
from keras_bertfam.types import Config, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LanguageModelCrossentropy(MaskedCrossentropy):
    """`MaskedCrossentropy` with T5's z-loss and label smoothing.

    With `Z` the sum of the exponentials of a token's logits, and `s` the label
    smoothing, a token's loss is `(1 - s) * -log p(target) + s * mean(-log p)`, and
    `z_loss * log(Z) ** 2` besides, which keeps logits from drifting.

    T5's released code divides by all positions, padding included; here, as everywhere,
    the divisor is the sum of the weights.

    Args:
        z_loss: float, not negative.
        label_smoothing: float in `[0, 1)`.

    Call arguments are those of `MaskedCrossentropy`.

    Raises:
        ValueError: for values out of these ranges.

    Example:

    ```python
    loss = keras_bertfam.tasks.LanguageModelCrossentropy(z_loss=1e-4)
    loss([[1, 0]], keras.ops.zeros((1, 2, 4)))  # ln 4 + 1e-4 * (ln 4) ** 2
    ```

    References: z-loss: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), its
    released code; smoothing: [Szegedy et al., 2015](https://arxiv.org/abs/1512.00567),
    section 7.
    """

    reads_scores = True

    def __init__(
        self,
        z_loss: float = 0.0,
        label_smoothing: float = 0.0,
        name: str = "crossentropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name)
        if not z_loss >= 0:
            raise ValueError(f"`z_loss` must not be negative. Received: {z_loss}.")
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"`label_smoothing` must be in [0, 1). Received: {label_smoothing}."
            )
        self.z_loss = z_loss
        self.label_smoothing = label_smoothing

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        losses = token_crossentropy(y_true, y_pred)
        if not (self.z_loss or self.label_smoothing):
            return losses
        log_sum, mean = logit_statistics(y_true, y_pred)
        if self.label_smoothing:
            losses = losses + self.label_smoothing * (log_sum - mean - losses)
        if self.z_loss:
            losses = losses + self.z_loss * ops.square(log_sum)
        return losses

    def get_config(self) -> Config:
        return {
            "name": self.name,
            "z_loss": self.z_loss,
            "label_smoothing": self.label_smoothing,
        }
