"""Model masked language together with the span boundary objective: SpanBERT."""

import functools
from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.layers.heads.span_boundary import SpanBoundaryHead
from keras_bertfam.tasks.losses import token_crossentropy, token_metrics
from keras_bertfam.tasks.masking.masked_lm import FillMask
from keras_bertfam.tasks.masking.span_boundary_lm_preprocessor import (
    SpanBoundaryLMPreprocessor,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class SpanBoundaryLM(FillMask, PretrainingTask):
    """Predicts masked tokens from their own states, and from their spans' borders.

    Call `fit()` to train, and `fill_mask()` to fill masks in texts.

    It is SpanBERT's pre-training, for any backbone of the library.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        preprocessor: `SpanBoundaryLMPreprocessor`, or `None` for batches that are
            masked already.
        max_span_length: int or `None`. Rows of the table of places within a span.
            `None` takes the preprocessor's, or 15 without a preprocessor.
        position_dim: int. Width of that table. Defaults to `200`.
        span_boundary_weight: float. Weight of the span boundary loss. Defaults to
            `1.0`.
        reduction: `"per_token"`, as in the paper: the mean over masked tokens of the
            sum of their two losses; the second is 0 for a token without a span boundary
            target. Or `"separate"`, as in SpanBERT's code: the sum of two means, each
            over its own targets. Defaults to `"per_token"`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone; `mask_positions`, int
            `(batch, count)`; and `span_bounds`, int `(batch, count, 2)`, the first and
            last position of each masked token's span. Without `span_bounds` there is no
            span boundary output.

    Returns:
        Dict of float32 logits, each `(batch, count, vocabulary_size)`:
        `masked_lm`, and `span_boundary` from the states before and after the
        spans.

    Raises:
        ValueError: for an unknown `reduction`, or a `max_span_length` that is less
            than the preprocessor's.

    `fit()` takes the batches of `SpanBoundaryLMPreprocessor.dataset()`. The task has
    its own loss, so that `compile()` takes none. Each objective has its own metrics.

    Reference: [Joshi et al., 2019](https://arxiv.org/abs/1907.10529), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.SpanBertBackbone.from_preset(
        "spanbert_base_en_cased", load_weights=False)
    model = keras_bertfam.tasks.SpanBoundaryLM(backbone)
    outputs = model({
        "token_ids": keras.ops.array([[101, 103, 103, 119, 102]]),
        "mask_positions": keras.ops.array([[1, 2]]),
        "span_bounds": keras.ops.array([[[1, 2], [1, 2]]]),
    })
    outputs["span_boundary"].shape  # (1, 2, 28996)
    ```
    """

    preprocessor_cls = SpanBoundaryLMPreprocessor
    recipe_family = "spanbert"
    label_kind = {"masked_lm": "token", "span_boundary": "token"}
    reads_labels = True
    extra_inputs = ("mask_positions",)
    fixed_arguments = ("max_span_length", "position_dim")

    def __init__(
        self,
        backbone: Model,
        preprocessor: SpanBoundaryLMPreprocessor | None = None,
        max_span_length: int | None = None,
        position_dim: int = 200,
        span_boundary_weight: float = 1.0,
        reduction: str = "per_token",
        **kwargs: Any,
    ) -> None:
        longest = getattr(preprocessor, "max_span_length", None)
        if max_span_length is None:
            max_span_length = longest or 15
        if max_span_length < (longest or 1):
            raise ValueError(
                "`max_span_length` must be at least the preprocessor's, "
                f"{longest or 1}. Received: {max_span_length}."
            )
        if reduction not in ("per_token", "separate"):
            raise ValueError(
                '`reduction` must be "per_token" or "separate". '
                f"Received: {reduction!r}."
            )
        super().__init__(backbone, preprocessor, **kwargs)
        self.max_span_length = max_span_length
        self.position_dim = position_dim
        self.span_boundary_weight = span_boundary_weight
        self.reduction = reduction
        self.head = masked_lm_head(backbone)
        head = functools.partial(
            SpanBoundaryHead,
            max_span_length=max_span_length,
            position_dim=position_dim,
        )
        self.span_boundary_head = masked_lm_head(backbone, head, "span_boundary_head")
        self.built = True
        self.compile_by_default()

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        bounds = inputs.pop("span_bounds", None)
        labels = inputs.pop(LABELS, {})
        if bounds is None:
            states = self._states(inputs, positions, training)
            return {"masked_lm": self.head(states)}
        bounds = ops.cast(bounds, "int32")
        positions = ops.cast(positions, "int32")
        last = ops.shape(inputs["token_ids"])[1] - 1
        left = ops.maximum(bounds[..., 0] - 1, 0)
        right = ops.minimum(bounds[..., 1] + 1, last)
        asked = ops.concatenate([positions, left, right], axis=1)
        states = self._states(inputs, asked, training)
        count = ops.shape(positions)[1]
        return {
            "masked_lm": self.predict_tokens(
                self.head, states[:, :count], labels=labels.get("masked_lm")
            ),
            "span_boundary": self.predict_tokens(
                self.span_boundary_head,
                states[:, count : 2 * count],
                states[:, 2 * count :],
                positions - bounds[..., 0],
                labels=labels.get("span_boundary"),
            ),
        }

    def _states(self, inputs, positions, training):
        outputs = self.backbone(
            inputs, positions=positions, return_pooled=False, training=training
        )
        return outputs["sequence_output"]

    @property
    def loss_counts(self) -> int:
        return 1 if self.reduction == "per_token" else 2

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        if "span_boundary" not in y_pred:
            raise ValueError(
                f"`x` must have `span_bounds` for the loss. Received: {sorted(x)}."
            )
        totals, weights = {}, {}
        for name in ("masked_lm", "span_boundary"):
            losses = token_crossentropy(y[name], y_pred[name])
            weight = ops.ones_like(losses)
            if sample_weight is not None:
                weight *= ops.cast(sample_weight[name], "float32")
            totals[name], weights[name] = ops.sum(losses * weight), ops.sum(weight)
        counted = "masked_lm" if self.reduction == "per_token" else "span_boundary"
        loss = distribution.global_mean(totals["masked_lm"], weights["masked_lm"])
        loss += self.added_losses()
        return loss + self.span_boundary_weight * distribution.global_mean(
            totals["span_boundary"], weights[counted]
        )

    def default_loss(self) -> None:
        return None

    def default_metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        return {name: token_metrics() for name in ("masked_lm", "span_boundary")}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_span_length": self.max_span_length,
            "position_dim": self.position_dim,
            "span_boundary_weight": self.span_boundary_weight,
            "reduction": self.reduction,
        }
