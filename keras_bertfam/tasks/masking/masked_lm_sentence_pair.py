"""Model masked language together with a sentence objective."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.layers.data.pairs.sentence_pairs import SENTENCE_CLASSES
from keras_bertfam.layers.heads.heads import Pooler, SentencePairHead
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.masking.masked_lm import FillMask
from keras_bertfam.tasks.masking.masked_lm_sentence_pair_preprocessor import (
    MaskedLMSentencePairPreprocessor,
)
from keras_bertfam.tasks.recipes import recipe_of
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.types import Config, Model, Path, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLMSentencePair(FillMask, PretrainingTask):
    """Predicts masked tokens, and whether two segments are in their original form.

    Call `fit()` to train, and `fill_mask()` to fill masks in texts.

    It is BERT's pre-training with `"nsp"`, and ALBERT's with `"sop"`, for any backbone
    of the library. A backbone without a pooler gets a new one.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        preprocessor: `MaskedLMSentencePairPreprocessor`, or `None` for batches that
            are masked already.
        sentence_objective: `"nsp"` (next sentence prediction), `"sop"` (sentence
            order prediction), `"structural"` (next, previous or random: StructBERT), or
            `None` for the preprocessor's; without a preprocessor, `"sop"` for ALBERT
                and `"nsp"` for others. In all three, the label 0 means the original
                text.
        masked_lm_weight: float. Weight of the masked LM loss. Defaults to `1.0`.
        sentence_weight: float. Weight of the sentence loss. Defaults to `1.0`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone and `mask_positions`, int
            `(batch, count)`, the positions to predict. Without
            `mask_positions` every position is predicted. Rows with several pairs, which
            `sequence_ids` keep apart, have `sequence_starts`, int `(batch, pairs)`,
            where each pair begins.

    Returns:
        Dict of float32 logits: `masked_lm` `(batch, count or length, vocabulary_size)`
        and `sentence` `(batch, 2)`; with `sequence_starts`, `(batch, pairs, 2)`. The
        structural objective has 3 in place of 2.

    Raises:
        ValueError: for an unknown objective, or one that differs from the
            preprocessor's.

    `fit()` takes the batches of `MaskedLMSentencePairPreprocessor.dataset()`.
    `compile()` without arguments sets up the family's training: the loss is
    `masked_lm_weight` times the mean over masked tokens plus `sentence_weight` times
    the mean over labelled pairs. Each of the two has its own metrics.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 3.1;
        [Wang et al., 2019](https://arxiv.org/abs/1908.04577), section 2.

    Example:

    ```python
    backbone = keras_bertfam.models.AlbertBackbone.from_preset(
        "albert_base_en_uncased", load_weights=False)
    model = keras_bertfam.tasks.MaskedLMSentencePair(
        backbone, sentence_objective="sop")
    outputs = model({
        "token_ids": keras.ops.array([[2, 4, 3, 9, 3]]),
        "segment_ids": keras.ops.array([[0, 0, 0, 1, 1]]),
        "mask_positions": keras.ops.array([[1]]),
    })
    outputs["masked_lm"].shape, outputs["sentence"].shape  # (1, 1, 30000), (1, 2)
    ```
    """

    preprocessor_cls = MaskedLMSentencePairPreprocessor
    label_kind = {"masked_lm": "token", "sentence": "pair"}
    reads_labels = True
    extra_inputs = ("mask_positions",)
    reads_pooler = True

    def __init__(
        self,
        backbone: Model,
        preprocessor: MaskedLMSentencePairPreprocessor | None = None,
        sentence_objective: str | None = None,
        masked_lm_weight: float = 1.0,
        sentence_weight: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        prepared = getattr(preprocessor, "sentence_objective", None)
        usual = recipe_of(self).task_arguments.get("sentence_objective", "nsp")
        objective = sentence_objective or prepared or usual
        if objective not in SENTENCE_CLASSES:
            raise ValueError(
                '`sentence_objective` must be "nsp", "sop" or "structural". '
                f"Received: {sentence_objective!r}."
            )
        if preprocessor is not None and prepared != objective:
            raise ValueError(
                f"`sentence_objective` must be the preprocessor's, {prepared!r}. "
                f"Received: {sentence_objective!r}."
            )
        self.sentence_objective = objective
        self.masked_lm_weight = masked_lm_weight
        self.sentence_weight = sentence_weight

        # === Layers ===
        common = {"dtype": backbone.dtype_policy}
        self.masked_lm_head = masked_lm_head(backbone)
        self.new_pooler: Any = None
        if backbone.pooler is None:
            self.new_pooler = Pooler(
                backbone.hidden_dim,
                backbone.make_initializer(),
                name="pooler",
                **common,
            )
            self.new_pooler.build((None, None, backbone.hidden_dim))
        self.sentence_head = SentencePairHead(
            SENTENCE_CLASSES[objective],
            initializer=backbone.make_initializer(),
            name="sentence_head",
            **common,
        )
        self.sentence_head.build((None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        starts = inputs.pop("sequence_starts", None)
        labels = inputs.pop(LABELS, {})
        pairs = 1 if starts is None else ops.shape(starts)[1]
        if positions is not None:
            # The states of first tokens, for the pooler, come before those of masked
            # tokens.
            positions = ops.cast(positions, "int32")
            first = ops.zeros_like(positions[:, :1]) if starts is None else starts
            first = ops.cast(first, "int32")
            positions = ops.concatenate([first, positions], axis=1)
        states = self.backbone(
            inputs, positions=positions, return_pooled=False, training=training
        )["sequence_output"]
        masked = states if positions is None else states[:, pairs:]
        first = states[:, :pairs]
        if positions is None and starts is not None:
            first = take_positions(states, starts)
        return {
            "masked_lm": self.predict_tokens(
                self.masked_lm_head, masked, labels=labels.get("masked_lm")
            ),
            "sentence": self._sentence_logits(first, packed=starts is not None),
        }

    def _sentence_logits(self, first, packed):
        pooler = self.backbone.pooler or self.new_pooler
        # The pooler itself would read only each row's first state.
        logits = self.sentence_head(pooler.dense(first))
        return logits if packed else logits[:, 0]

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "auto",
        loss: Any = "auto",
        **kwargs: Any,
    ) -> None:
        if loss == "auto":
            weights = {
                "masked_lm": self.masked_lm_weight,
                "sentence": self.sentence_weight,
            }
            kwargs.setdefault("loss_weights", weights)
        super().compile(optimizer, loss, **kwargs)

    @property
    def loss_counts(self) -> int:
        return 2

    def default_loss(self) -> dict[str, MaskedCrossentropy]:
        return {
            "masked_lm": MaskedCrossentropy(),
            "sentence": MaskedCrossentropy(name="sentence_crossentropy"),
        }

    def default_metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return {"masked_lm": token_metrics(), "sentence": [accuracy]}

    def export_to_transformers(self, path: Path) -> None:
        if self.sentence_head.num_classes != 2:
            raise ValueError(
                "`transformers` has no sentence objective of three classes: export the "
                "backbone, or a `MaskedLM`. Received: "
                f"sentence_objective={self.sentence_objective!r}."
            )
        super().export_to_transformers(path)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "sentence_objective": self.sentence_objective,
            "masked_lm_weight": self.masked_lm_weight,
            "sentence_weight": self.sentence_weight,
        }
