"""Masked language modelling."""

from collections.abc import Callable
from typing import Any

import keras

from keras_bertfam.layers.modeling.heads import MaskedLMHead
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.pretraining.fill_mask import FillMask
from keras_bertfam.tasks.pretraining.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.tasks.task import PretrainingTask
from keras_bertfam.types import Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLM(FillMask, PretrainingTask):
    """Predicts masked tokens with any backbone of the library.

    Only the masked positions are computed in the last block and projected onto
    the vocabulary.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        preprocessor: `MaskedLMPreprocessor`, or `None` for batches that are
            masked already.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone and `mask_positions`, int
            `(batch, count)`, the positions to predict. Without
            `mask_positions` every position is predicted.

    Returns:
        float32 tensor of shape `(batch, count or length, vocabulary_size)`,
        logits.

    `fit()` takes what `MaskedLMPreprocessor.dataset()` gives, which masks anew in
    each epoch, or raw strings, whose masks depend on the text alone.
    `compile()` without arguments is BERT's training: AdamW with linear warm-up
    and decay, `sum(weight * crossentropy) / sum(weight)`, masked accuracy and
    perplexity.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    3.1.

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    model = keras_bertfam.tasks.MaskedLM(backbone)
    logits = model({
        "token_ids": keras.ops.array([[101, 103, 102]]),
        "mask_positions": keras.ops.array([[1]]),
    })  # (1, 1, 30522)
    ```
    """

    preprocessor_cls = MaskedLMPreprocessor

    def __init__(
        self,
        backbone: Model,
        preprocessor: MaskedLMPreprocessor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        self.head = masked_lm_head(backbone)
        self.built = True
        self.compile()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        outputs = self.backbone(
            inputs, positions=positions, return_pooled=False, training=training
        )
        return self.head(outputs["sequence_output"])

    def default_loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()


def masked_lm_head(
    backbone: Model,
    cls: Callable[..., Any] = MaskedLMHead,
    name: str = "masked_lm_head",
) -> Any:
    """A built vocabulary head, tied to a backbone's table and of its kind.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        cls: `MaskedLMHead` or a subclass.
        name: str.

    Returns:
        A layer.
    """
    head = cls(
        backbone.token_embedding,
        activation=backbone.activation,
        layer_norm_epsilon=backbone.layer_norm_epsilon,
        initializer=backbone.make_initializer(),
        dtype=backbone.dtype_policy,
        name=name,
    )
    head.build((None, None, backbone.hidden_dim))
    return head
