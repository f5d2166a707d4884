"""Share code among tasks that write texts token by token: head, loss, defaults."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.tasks.generation.defaults import (
    checked_generation,
    generation_config,
)
from keras_bertfam.tasks.losses import (
    MaskedCrossentropy,
    logit_statistics,
    token_crossentropy,
    token_metrics,
)
from keras_bertfam.tasks.recipes import recipe_of
from keras_bertfam.tasks.task import PretrainingTask
from keras_bertfam.tasks.token_heads import language_model_head
from keras_bertfam.types import Config, Model, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LanguageModelCrossentropy(MaskedCrossentropy):
    """`MaskedCrossentropy` with T5's z-loss and label smoothing.

    A token's loss is `(1 - s) * -log p(target) + s * mean(-log p) + z_loss * log(Z) **
    2`, where `s` is the label smoothing and `Z` the sum of the exponentials of the
    token's logits. The last term keeps logits from drifting.

    The sum over tokens is divided by the sum of the weights, as everywhere in this
    library. T5's released code divides by the number of positions, padding included.

    Args:
        z_loss: float, not negative.
        label_smoothing: float in `[0, 1)`.

    Call arguments are those of `MaskedCrossentropy`.

    Raises:
        ValueError: for values out of these ranges.

    Example:

    ```python
    from keras_bertfam.tasks.generation.language_model import (
        LanguageModelCrossentropy,
    )
    loss = LanguageModelCrossentropy(z_loss=1e-4)
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


class LanguageModel(PretrainingTask):
    """Base class of the tasks whose targets are the next tokens.

    Args:
        backbone: a backbone with a token embedding.
        preprocessor: makes batches from texts; or `None`.
        z_loss: float or `None`, see `LanguageModelCrossentropy`; `None` for that of the
            recipe.
        label_smoothing: float, see `LanguageModelCrossentropy`.
        generation: dict or `None`. Defaults of `generate()`: keys and values of a
            `generation_config.json` of `transformers`, such as `{"num_beams": 4,
            "max_new_tokens": 60, "forced_bos_token_id": 0}`. It is read from folders of
            `transformers`, and written to them.
        **kwargs: arguments of `keras.Model`.
    """

    label_kind = "token"
    reads_labels = True

    def __init__(
        self,
        backbone: Model,
        preprocessor: Any = None,
        z_loss: float | None = None,
        label_smoothing: float = 0.0,
        generation: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        if z_loss is None:
            z_loss = recipe_of(self).task_arguments.get("z_loss", 0.0)
        self.z_loss = z_loss
        self.label_smoothing = label_smoothing
        self.generation = checked_generation(generation, backbone.vocabulary_size)
        self.default_loss()  # or an error
        self.head = language_model_head(backbone)
        self.built = True
        self.compile_by_default()

    def default_loss(self) -> LanguageModelCrossentropy:
        return LanguageModelCrossentropy(self.z_loss, self.label_smoothing)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "z_loss": self.z_loss,
            "label_smoothing": self.label_smoothing,
            **generation_config(self),
        }
