"""Share code among tasks whose head reads one state of each sequence."""

from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.layers.heads.summary_heads import SummaryHead
from keras_bertfam.models.exported import row_specs
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.parts.record import HeadStyle
from keras_bertfam.tasks.finetuning.fine_tuning import FineTuningTask
from keras_bertfam.tasks.summary import (
    check_layout,
    flat_rows,
    mean_states,
    states_of,
    summary_states,
    summary_token,
    token_positions,
    with_second_global,
    with_summaries_global,
)
from keras_bertfam.tasks.task import LABELS
from keras_bertfam.tasks.token_heads import language_model_head
from keras_bertfam.types import Config, Model, Tensor

# A head of no family: dropout and logits on the first token's state.
LINEAR = HeadStyle("linear", activation=None)


def head_styles() -> dict[str, HeadStyle]:
    """List the styles of the families' heads, and `LINEAR`, by name."""
    records = FAMILIES.values()
    styles = [style for r in records for style in (r.head_style, *r.other_styles)]
    return {style.name: style for style in (*styles, LINEAR)}


class SummaryTask(FineTuningTask):
    """Base class of the tasks whose head reads one state of each sequence.

    The last block of the backbone computes only that state, unless a language model's
    loss is added.

    Args:
        backbone: a backbone.
        num_outputs: int. Width of the head's output.
        preprocessor: see `FineTuningTask`.
        head_style: a name in `head_styles()`, or `None` for the family's own.
        dropout: float or `None`. Dropout rate in the head; `None` means the
            published one.
        lm_weight: float or `None`, see `TextClassifier`.
        **kwargs: arguments of `keras.Model`.

    GPT is fine-tuned with a language model's loss added: the tokens of the rows are
    predicted as well. In `fit()` and `evaluate()` the loss of an example is then the
    task's loss plus `lm_weight` times the mean cross-entropy of its tokens, except the
    first one and padding. For an example of several rows, it is the mean over the rows.

    Raises:
        ValueError: for an unknown `head_style`, a preprocessor that puts the token that
            the head reads into another place, or an `lm_weight` with a backbone that
            can't predict next tokens.
    """

    fixed_arguments: tuple[str, ...] = ("head_style", "dropout", "lm_weight")
    has_global_tokens = True
    choices = False  # whether each row of a group gets its own score

    def __init__(
        self,
        backbone: Model,
        num_outputs: int,
        preprocessor: Any = None,
        head_style: str | None = None,
        dropout: float | None = None,
        lm_weight: float | None = None,
        **kwargs: Any,
    ) -> None:
        styles = head_styles()
        if head_style is None and backbone.record is not None:
            style = backbone.record.head_style
        elif head_style in styles:
            style = styles[head_style]
        else:
            raise ValueError(
                f"`head_style` must be one of {sorted(styles)}. "
                f"Received: head_style={head_style!r}."
            )
        super().__init__(backbone, preprocessor, **kwargs)
        self.head_style = style.name
        self.dropout = style.dropout if dropout is None else dropout
        self._token = summary_token(backbone, style.token)
        check_layout(preprocessor, self._token)
        self.lm_weight = _checked_lm_weight(self, lm_weight)
        self.lm_head: Any = (
            language_model_head(self.backbone) if self.lm_weight else None
        )
        self.reads_labels = bool(
            self.lm_weight
        )  # only a training or test step has labels
        self.reads_pooler = bool(style.pooler and backbone.pooler)
        layers = style.layers(backbone)
        if self.reads_pooler:
            layers["hidden_dim"] = None
        self.head = SummaryHead(
            num_outputs,
            **layers,
            dropout=self.dropout,
            input_dropout=self.dropout if style.input_dropout else 0.0,
            initializer=backbone.make_initializer(),
            dtype=backbone.dtype_policy,
            name="head",
        )
        self.head.build((None, backbone.hidden_dim))
        self.built = True

    def input_signature(self) -> dict[str, keras.InputSpec]:
        grouped = self.choices or getattr(self.preprocessor, "both_orders", False)
        signature = super().input_signature()
        return row_specs(signature, rank=3) if grouped else signature

    def as_outputs(self, scores: Tensor) -> Tensor:
        """Turn the head's float32 `(..., num_outputs)` into the model's output."""
        return scores

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        rows, group = dict(inputs), None
        rows.pop(LABELS, None)
        if len(inputs["token_ids"].shape) == 3:
            rows, group = flat_rows(rows)
        if self.choices:
            rows = with_second_global(self.backbone, rows)
        else:
            rows = with_summaries_global(self.backbone, rows, self._token)
        states, losses = self._states(rows, LABELS in inputs, training)
        is_late = self._token == "late"
        if is_late:
            states = self.head.transformed(states, training)
            states = mean_states(states, rows.get("padding_mask"))
        if group is not None:
            states = ops.reshape(states, (*group, self.backbone.hidden_dim))
            if not self.choices:
                states = ops.sum(states, axis=1, keepdims=True)
        if self.reads_pooler:  # the head itself would read only each row's first state
            states = self.backbone.pooler.dense(states)
        head = self.head.logits_of if is_late else self.head
        scores = head(states, training=training)
        one = not self.choices and inputs.get("sequence_starts") is None
        outputs = self.as_outputs(scores[:, 0] if one else scores)
        if losses is None:
            return outputs
        if group is not None:
            losses = ops.mean(ops.reshape(losses, group), axis=1)
        return {"outputs": outputs, "token_losses": losses}

    def _states(self, rows, in_step, training):
        """Give the states for the head, and each row's loss of tokens or `None`."""
        if not in_step:
            states = summary_states(self.backbone, rows, self._token, training)
            return states, None
        states = states_of(self.backbone, rows, training=training)
        if self._token == "mean":
            read = mean_states(states, rows.get("padding_mask"))
        elif self._token == "late":
            read = states
        else:
            read = take_positions(states, token_positions(rows, self._token))
        return read, self.token_losses(rows, states)

    def token_losses(self, rows: dict[str, Tensor], states: Tensor) -> Tensor:
        """Compute the mean cross-entropy of the tokens of each row, float32 `(batch,)`.

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

    def own_loss(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any
    ) -> Tensor | None:
        if not isinstance(y_pred, dict):
            return None
        outputs, losses = y_pred["outputs"], y_pred["token_losses"]
        weights = ops.ones_like(losses)
        if sample_weight is not None:
            weights *= ops.reshape(ops.cast(sample_weight, "float32"), (-1,))
        total = self.compute_loss(x, y, outputs, sample_weight)
        mean = distribution.global_mean(ops.sum(losses * weights), ops.sum(weights))
        return total + self.lm_weight * mean

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        outputs = y_pred["outputs"] if isinstance(y_pred, dict) else y_pred
        return super().compute_metrics(x, y, outputs, sample_weight)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "head_style": self.head_style,
            "dropout": self.dropout,
            "lm_weight": self.lm_weight,
        }


def _checked_lm_weight(task, lm_weight):
    """Check the weight of a language model's loss; `None` stands for the recipe's."""
    causal = getattr(task.backbone, "causal", False)
    if lm_weight is None:
        lm_weight = task.published_recipe().lm_weight if causal else 0.0
    if not lm_weight >= 0 or lm_weight and not causal:
        name = type(task.backbone).__name__
        raise ValueError(
            "`lm_weight` must not be negative, and 0 or `None` for a backbone "
            "whose tokens see those after them. Received: "
            f"lm_weight={lm_weight}, {name} with causal={causal}."
        )
    return lm_weight
