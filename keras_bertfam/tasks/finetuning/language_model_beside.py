"""The language model's loss beside that of a task, as GPT is fine-tuned."""

from typing import Any

from keras import ops

from keras_bertfam import distribution
from keras_bertfam.tasks.pretraining.language_model import make_head
from keras_bertfam.types import Config, Mixin, Tensor


class LanguageModelBeside(Mixin):
    """Mixin of tasks that may predict each token of their rows as well.

    In `fit()` and `evaluate()` the loss of an example is that of the task and
    `lm_weight` times the mean cross-entropy of its tokens, but the first and padding;
    of an example of several rows, the mean of theirs.

    Attributes:
        lm_weight: float.
    """

    def _set_language_model(self, lm_weight):
        """Sets the weight, the recipe's for `None`, and makes the head."""
        causal = getattr(self.backbone, "causal", False)
        if lm_weight is None:
            lm_weight = self.published_recipe().lm_weight if causal else 0.0
        if not lm_weight >= 0 or lm_weight and not causal:
            name = type(self.backbone).__name__
            raise ValueError(
                "`lm_weight` must not be negative, and 0 or `None` for a backbone "
                "whose tokens see those after them. Received: "
                f"lm_weight={lm_weight}, {name} with causal={causal}."
            )
        self.lm_weight = lm_weight
        self.reads_labels = bool(lm_weight)  # to know a step
        self.lm_head = make_head(self.backbone) if lm_weight else None

    def token_losses(self, rows: dict[str, Tensor], states: Tensor) -> Tensor:
        """The mean cross-entropy of the tokens of each row, float32 `(batch,)`.

        Args:
            rows: dict of tensors `(batch, length)`.
            states: float tensor `(batch, length, hidden_dim)`.
        """
        token_ids = ops.cast(rows["token_ids"], "int32")
        mask = rows.get("padding_mask")
        mask = ops.ones_like(token_ids) if mask is None else mask
        mask = ops.cast(mask, "float32")
        weights = mask[:, :-1] * mask[:, 1:]
        losses = self.lm_head(states[:, :-1], targets=token_ids[:, 1:])[..., 0]
        total = ops.sum(losses * weights, axis=1)
        return total / ops.maximum(ops.sum(weights, axis=1), 1.0)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        if not isinstance(y_pred, dict):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        outputs, losses = y_pred["outputs"], y_pred["token_losses"]
        weights = ops.ones_like(losses)
        if sample_weight is not None:
            weights *= ops.reshape(ops.cast(sample_weight, "float32"), (-1,))
        total = super().compute_loss(x, y, outputs, sample_weight, training)
        mean = distribution.global_mean(ops.sum(losses * weights), ops.sum(weights))
        return total + self.lm_weight * mean

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        outputs = y_pred["outputs"] if isinstance(y_pred, dict) else y_pred
        return super().compute_metrics(x, y, outputs, sample_weight)

    def get_config(self) -> Config:
        return {**super().get_config(), "lm_weight": self.lm_weight}
