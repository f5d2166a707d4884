"""What every fine-tuning task shares: raw inputs, defaults, and heads by family."""

from typing import Any

import keras
from keras import ops

from keras_bertfam import optimizers
from keras_bertfam.layers.data.length_batches import length_buckets
from keras_bertfam.layers.data.pipelines import checked_batch_size, remember_count
from keras_bertfam.layers.modeling.dense import take_positions
from keras_bertfam.layers.modeling.summary_head import SummaryHead
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.models.exported import row_specs
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.recipes import FineTuningRecipe
from keras_bertfam.presets.families.record import HeadStyle
from keras_bertfam.tasks.finetuning.language_model_beside import LanguageModelBeside
from keras_bertfam.tasks.finetuning.packed_preprocessor import check_packed
from keras_bertfam.tasks.finetuning.reporting import Reporting
from keras_bertfam.tasks.global_tokens import (
    with_second_global,
    with_summaries_global,
)
from keras_bertfam.tasks.inputs import (
    is_arrays,
    is_preprocessed,
    remember_shapes,
)
from keras_bertfam.tasks.resizing import with_new_tokens
from keras_bertfam.tasks.summary import (
    check_layout,
    flat_rows,
    is_encoder_decoder,
    mean_states,
    states_of,
    summary_states,
    summary_token,
    token_positions,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.types import Config, Model, Tensor

# Dropout and logits on the first token's state, of no family.
LINEAR = HeadStyle("linear", activation=None)


def head_styles() -> dict[str, HeadStyle]:
    """The styles of the families' heads, and `LINEAR`, by name."""
    records = FAMILIES.values()
    styles = [style for r in records for style in (r.head_style, *r.other_styles)]
    return {style.name: style for style in (*styles, LINEAR)}


class FineTuningTask(Reporting, PretrainingTask):
    """Base of the fine-tuning tasks, for any backbone of the library.

    `fit()`, `evaluate()` and `predict()` take raw inputs. Arrays and lists given to
    `fit()` go through `preprocessor.dataset`, shuffled and in batches of like
    length, unless `shuffle=False`; a `tf.data.Dataset` is taken as it comes. Default
    metrics count each example once: `class_weight` and `sample_weight` weigh the
    loss, and only examples of weight 0 are left out.

    Args:
        backbone: a backbone.
        preprocessor: a `FineTuningPreprocessor`, or `None` for data that is
            preprocessed already.
        **kwargs: arguments of `keras.Model`.

    Attributes:
        data_kind: kind of the tasks of `keras_bertfam.datasets` that it is fine-tuned
            on, `None` for none of them.
        usual_learning_rate: what `compile()` takes by default; `None` is the greatest
            rate that the backbone's family was tried with.
        one_row_each: whether each example is one row.
    """

    backbone_cls = TokenBackbone
    data_kind: str | None = None
    one_row_each = True
    usual_learning_rate: float | None = None

    def __init__(
        self, backbone: Model, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        check_packed(preprocessor, backbone)
        backbone = with_new_tokens(backbone, preprocessor)
        super().__init__(backbone, preprocessor, **kwargs)

    def input_signature(self) -> dict[str, keras.InputSpec]:
        if not is_encoder_decoder(self.backbone):
            return super().input_signature()
        return row_specs(("token_ids", "padding_mask", *self.extra_inputs))

    @property
    def optimizer_defaults(self) -> dict[str, Any]:
        recipe = self.published_recipe()
        return {
            "learning_rate": self.usual_learning_rate or max(recipe.learning_rates),
            "warmup_steps": recipe.warmup_steps,
            "weight_decay": recipe.weight_decay,
            "epsilon": optimizers.fine_tuning_epsilon(self),
        }

    def published_recipe(self) -> FineTuningRecipe:
        record = self.backbone.record or FAMILIES["bert"]
        return record.fine_tuning_recipes(self.backbone.hidden_dim)[""]

    def make_optimizer(self, **arguments: Any) -> keras.optimizers.Optimizer:
        recipe = self.published_recipe()
        if recipe.layer_decay == 1:
            return super().make_optimizer(**arguments)
        return optimizers.fine_tuning_optimizer(
            self, **{**recipe.optimizer_arguments(), **arguments}
        )

    def unused_variables(self) -> list[keras.Variable]:
        # The state that XLNet's tokens to predict start from.
        query = getattr(self.backbone, "query_embedding", None)
        return [*super().unused_variables(), *(query.variables if query else [])]

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """As `PretrainingTask.compile`; `metrics` take the place of the default ones.

        `optimizer="auto"` is the family's fine-tuning: its greatest rate, its warm-up
        and weight decay, and its smaller rates of lower layers, if it has any.

        Metrics given as `weighted_metrics` leave out what has weight 0, such as the
        rows that fill up the last batch of `preprocessor.dataset`.
        """
        if metrics is not None:
            kwargs.setdefault("weighted_metrics", None)
        super().compile(optimizer, loss, metrics=metrics, **kwargs)

    def _takes_raw(self, x):
        raw = is_arrays(x) and not is_preprocessed(x)
        return self.preprocessor is not None and raw

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        if self._takes_raw(x) and kwargs.get("class_weight") is not None:
            if kwargs.get("sample_weight") is not None:
                raise ValueError(
                    "`class_weight` and `sample_weight` can't both be given."
                )
            weights = self.preprocessor.weights_of_classes(y, kwargs["class_weight"])
            kwargs |= {"sample_weight": weights, "class_weight": None}
        return super().fit(x, y, batch_size, epochs, **kwargs)

    def _rows(self, x, y=None, sample_weight=None):
        if not self._takes_raw(x):
            return super()._rows(x, y, sample_weight)
        return self.preprocessor.from_arrays(x, y, sample_weight)

    def _batched(self, data, batch_size, position=None):
        x, *_ = keras.utils.unpack_x_y_sample_weight(data.element_spec)
        if not self._takes_raw(x):
            return super()._batched(data, batch_size, position)
        training = position is not None
        packed = training and getattr(self.preprocessor, "packed", False)
        if packed:  # it may have been set since
            check_packed(self.preprocessor, self.backbone)
        batches = self.preprocessor.dataset(data, batch_size, training=training)
        if self.one_row_each and not packed:
            remember_count(batches, -(-len(data) // batch_size))
        lengths = length_buckets(
            self.preprocessor.buckets, self.preprocessor.sequence_length
        )
        return remember_shapes(batches, len(lengths))

    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        if not self._takes_raw(x):
            return super().predict(x, batch_size=batch_size, **kwargs)
        batches, places = self.preprocessor.inputs(
            x, checked_batch_size(batch_size), kwargs.get("steps")
        )
        outputs = super().predict(batches, **kwargs)
        return keras.tree.map_structure(lambda part: part[places], outputs)


class SummaryTask(LanguageModelBeside, FineTuningTask):
    """Base of the tasks whose head reads one state of each sequence.

    The last block of the backbone computes that state only, unless a language model's
    loss is beside.

    Args:
        backbone: a backbone.
        num_outputs: int. Width of the head's output.
        preprocessor: see `FineTuningTask`.
        head_style: a name in `head_styles()`, or `None`: the backbone's family's.
        dropout: float or `None`. Dropout rate in the head; `None` means the
            published one.
        lm_weight: float or `None`, see `TextClassifier`.
        **kwargs: arguments of `keras.Model`.

    Raises:
        ValueError: for an unknown `head_style`, a preprocessor whose rows have
            the token that the head reads elsewhere, or an `lm_weight` that a backbone
            can't have.
    """

    fixed_arguments: tuple[str, ...] = ("head_style", "dropout", "lm_weight")
    has_global_tokens = True
    choices = False  # whether each of a group of rows has a score of its own

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
        self._set_language_model(lm_weight)
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
        """What the model returns, of the head's float32 `(..., num_outputs)`."""
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
        if group is not None:
            states = ops.reshape(states, (*group, self.backbone.hidden_dim))
            if not self.choices:
                states = ops.sum(states, axis=1, keepdims=True)
        if self.reads_pooler:  # which itself would read each row's first state alone
            states = self.backbone.pooler.dense(states)
        scores = self.head(states, training=training)
        one = not self.choices and inputs.get("sequence_starts") is None
        outputs = self.as_outputs(scores[:, 0] if one else scores)
        if losses is None:
            return outputs
        if group is not None:
            losses = ops.mean(ops.reshape(losses, group), axis=1)
        return {"outputs": outputs, "token_losses": losses}

    def _states(self, rows, in_step, training):
        """The states that the head reads, and the losses of tokens by row or `None`."""
        if not in_step:
            states = summary_states(self.backbone, rows, self._token, training)
            return states, None
        states = states_of(self.backbone, rows, training=training)
        if self._token == "mean":
            read = mean_states(states, rows.get("padding_mask"))
        else:
            read = take_positions(states, token_positions(rows, self._token))
        return read, self.token_losses(rows, states)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "head_style": self.head_style,
            "dropout": self.dropout,
        }
