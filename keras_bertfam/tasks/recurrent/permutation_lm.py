"""Model permuted language: XLNet."""

from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.layers.heads.vocabulary_logits import TiedLogits
from keras_bertfam.layers.recurrent.memory import SegmentMemory, without_padding
from keras_bertfam.models.families.xlnet import XLNetBackbone
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.recurrent.permutation_lm_preprocessor import (
    PermutationLMPreprocessor,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class PermutationLM(PretrainingTask):
    """Predicts tokens in random orders with XLNet's two streams.

    Call `fit()` to train, and `evaluate()` for its perplexity.

    With `memory_length` each layer's inputs for the first `reuse_length` tokens of a
    batch are kept as memory, and rows of the next batch continue from it. The data says
    which rows continue (`continues`). Rows of an epoch's first batch don't, so each
    epoch starts with an empty memory. `evaluate()` and `predict()` don't change the
    memory, but `test_on_batch()` does.

    Args:
        backbone: `keras_bertfam.models.XLNetBackbone`.
        preprocessor: `PermutationLMPreprocessor`, or `None` for data that is
            preprocessed already.
        memory_length: int. Tokens remembered; the paper has 384 for rows of 512.
            Defaults to `0`, no memory. With memory `fit()` doesn't shuffle arrays.
        reuse_length: int or `None`. How many tokens of each row go to the memory.
            `None` means the preprocessor's.
        batch_size: int or `None`. Rows of a batch, over all replicas; needed for
            memory.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone, with `mask_positions` and
            `perm_ranks`, and with memory `continues`, bool `(batch,)`. Without
            `continues` memory is neither read nor changed.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`, logits.

    Raises:
        ValueError: for memory without a `batch_size` that is a multiple of the
            replicas, or without a `reuse_length`; for inputs without an order.

    `compile()` without arguments sets up XLNet's training: AdamW with 8 % of warm-up
    and linear decay, `sum(weight * crossentropy) / sum(weight)`, accuracy and
    perplexity. After training, `model.backbone` is a plain encoder for other tasks.

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237), section 2.

    Example:

    ```python
    backbone = keras_bertfam.models.XLNetBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.PermutationLM(backbone)
    logits = model({
        "token_ids": keras.ops.array([[5, 6, 7, 8]]),
        "perm_ranks": keras.ops.array([[3, 1, 0, 2]]),
        "mask_positions": keras.ops.array([[3, 0]]),
    })  # (1, 2, 100)
    ```
    """

    backbone_cls = XLNetBackbone
    preprocessor_cls = PermutationLMPreprocessor
    recipe_family = "xlnet"
    label_kind = "token"
    reads_labels = True
    extra_inputs = ("perm_ranks", "mask_positions")
    fixed_arguments = ("memory_length", "batch_size")

    def __init__(
        self,
        backbone: Model,
        preprocessor: PermutationLMPreprocessor | None = None,
        memory_length: int = 0,
        reuse_length: int | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        if reuse_length is None and preprocessor is not None:
            reuse_length = preprocessor.reuse_length
        self.memory_length = memory_length
        self.reuse_length = reuse_length
        self.batch_size = batch_size
        self.memory = None
        if memory_length:
            self.memory = SegmentMemory(
                backbone.num_layers,
                self._rows_of_a_replica(),
                memory_length,
                backbone.hidden_dim,
                dtype=backbone.dtype_policy,
                name="memory",
            )
            self.memory.build()
        self.head = TiedLogits(
            backbone.token_embedding, dtype=backbone.dtype_policy, name="logits"
        )
        self.head.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def _rows_of_a_replica(self):
        replicas = distribution.num_replicas()
        if not self.batch_size or self.batch_size % replicas:
            raise ValueError(
                "`batch_size` must be given for memory, as a multiple of the "
                f"{replicas} replicas. Received: batch_size={self.batch_size}."
            )
        if not self.reuse_length:
            raise ValueError(
                "`reuse_length` must be positive for memory. "
                f"Received: reuse_length={self.reuse_length}."
            )
        return self.batch_size // replicas

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        continues = inputs.pop("continues", None)
        labels = inputs.pop(LABELS, None)
        if not {"mask_positions", "target_mapping"} & inputs.keys():
            raise ValueError(
                "`inputs` must have `mask_positions`, the tokens to predict. "
                f"Received: {sorted(inputs)}."
            )
        if self.memory is None or continues is None:
            states = self.backbone(inputs, training=training)["sequence_output"]
            return self.predict_tokens(self.head, states, labels=labels)
        continues = ops.cast(continues, "bool")
        self._check_rows(inputs["token_ids"])
        outputs = self.backbone(
            {**inputs, **self.memory(continues)},
            memory_length=self.memory_length,
            reuse_length=self.reuse_length,
            training=training,
        )
        new = without_padding(inputs)[:, : self.reuse_length]
        self.memory.remember(outputs["memory"], continues, new)
        return self.predict_tokens(self.head, outputs["sequence_output"], labels=labels)

    def _check_rows(self, token_ids):
        rows = self.memory.batch_size
        if token_ids.shape[0] not in (None, rows):
            raise ValueError(
                f"A batch must have {rows} rows on each replica, as the memory has. "
                f"Received: token_ids.shape={tuple(token_ids.shape)}."
            )

    def default_loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "memory_length": self.memory_length,
            "reuse_length": self.reuse_length,
            "batch_size": self.batch_size,
        }
