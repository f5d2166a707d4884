"""Model masked and permuted language: MPNet."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.attention.masks import two_stream_mask
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.masking.masked_lm import FillMask
from keras_bertfam.tasks.masking.masked_permuted_lm_preprocessor import (
    MaskedPermutedLMPreprocessor,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.types import Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedPermutedLM(FillMask, PretrainingTask):
    """Predicts masked tokens one after the other, each from the earlier ones, as MPNet.

    Call `fit()` to train, and `fill_mask()` to fill masks in texts.

    A masked language model predicts each masked token without knowing the others. Here
    the masked tokens have a random order. Each prediction sees the tokens before it in
    that order, and masks in the places of those after it. So it sees as many positions
    as the text has, as in fine-tuning (position compensation). The backbone computes
    two streams in one row. One stream has the tokens and the masks; the other has
    queries, to which nothing attends.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone` that attends to whole rows: not
            causal, without windows and global tokens, and not a DeBERTa.
        preprocessor: `MaskedPermutedLMPreprocessor`, or `None` for batches that are
            preprocessed already.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone; `mask_positions`, int `(batch,
            count)`, the positions to predict in their order; `masked_ids`, int of that
            shape, the tokens in their places; and `mask_weights`, of that shape, 0 for
            empty slots. Without `masked_ids` the task predicts like a `MaskedLM`:
            `token_ids` contain the masks, and the tokens at `mask_positions`, or all,
            are predicted.

    Returns:
        float32 tensor `(batch, count or length, vocabulary_size)`: logits.

    Raises:
        ValueError: for another backbone, and for `masked_ids` without the others.

    `fit()` takes the batches of `MaskedPermutedLMPreprocessor.dataset()`, which masks
    and permutes anew in each epoch. `compile()` without arguments sets up the training
    of the backbone's family. `from_preset()` also loads the head of a masked language
    model, and `MaskedLM.from_preset()` loads this task's head.

    Reference: [Song et al., 2020](https://arxiv.org/abs/2004.09297), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.MPNetBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.MaskedPermutedLM(backbone)
    logits = model({
        "token_ids": keras.ops.array([[0, 5, 6, 7, 2]]),
        "mask_positions": keras.ops.array([[3, 1]]),
        "masked_ids": keras.ops.array([[99, 99]]),
        "mask_weights": keras.ops.array([[1.0, 1.0]]),
    })  # (1, 2, 100)
    ```
    """

    preprocessor_cls = MaskedPermutedLMPreprocessor
    label_kind = "token"
    extra_inputs = ("mask_positions",)
    reads_labels = True

    def __init__(
        self,
        backbone: Model,
        preprocessor: MaskedPermutedLMPreprocessor | None = None,
        **kwargs: Any,
    ) -> None:
        _check_backbone(backbone)
        super().__init__(backbone, preprocessor, **kwargs)
        self.head = masked_lm_head(backbone)
        self.built = True
        self.compile_by_default()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        names = ("mask_positions", "masked_ids", "mask_weights")
        positions, masked, weights = (inputs.pop(name, None) for name in names)
        labels = inputs.pop(LABELS, None)
        if masked is None:
            states = self.backbone(
                inputs, positions=positions, return_pooled=False, training=training
            )["sequence_output"]
        elif positions is None or weights is None:
            raise ValueError(
                "`inputs` must have `mask_positions` and `mask_weights` beside "
                f"`masked_ids`. Received: {sorted(inputs)}."
            )
        else:
            filled = ops.cast(weights, "bool")
            states = self._query_states(inputs, positions, masked, filled, training)
        return self.predict_tokens(self.head, states, labels=labels)

    def _query_states(self, inputs, positions, masked, filled, training):
        """Compute the states of the queries, `(batch, count, hidden_dim)`."""
        # Tokens keep their order in the row. Only masks and positions determine who
        # sees whom.
        token_ids, positions, masked = (
            ops.cast(x, "int32") for x in (inputs["token_ids"], positions, masked)
        )
        length, count = ops.shape(token_ids)[1], ops.shape(positions)[1]

        def parts(x):
            x = ops.cast(x, "int32")
            at = ops.take_along_axis(x, positions, axis=1)
            return x, at, at

        def streams(x):
            return ops.concatenate(parts(x), axis=1)

        places = ops.zeros_like(token_ids) + ops.arange(length, dtype="int32")
        mask, position_ids, table_ids = self.backbone.mask_and_places(inputs)
        position_ids = places if position_ids is None else position_ids
        table_ids = position_ids if table_ids is None else table_ids
        seen = two_stream_mask(positions, filled, length)
        if mask is not None:
            there = ops.ones_like(filled, dtype="bool")
            there = ops.concatenate([mask, there, there], axis=1)
            seen = ops.logical_and(seen, ops.expand_dims(there, 1))
        sequences = inputs.get("sequence_ids")
        if sequences is not None:
            numbers = streams(sequences)
            same = ops.expand_dims(numbers, 2) == ops.expand_dims(numbers, 1)
            seen = ops.logical_and(seen, same)
        segments, languages = (
            (None,) * 3 if (own := inputs.get(name)) is None else parts(own)
            for name in ("segment_ids", "language_ids")
        )
        rows = (token_ids, masked, masked), segments, parts(table_ids), languages
        embedded = [
            self.backbone.embeddings(
                ids,
                segment_ids=segment,
                position_ids=at,
                language_ids=language,
                training=training,
            )
            for ids, segment, at, language in zip(*rows, strict=True)
        ]
        queries = length + count + ops.arange(count, dtype="int32")
        states: Tensor = self.backbone.encoder(
            ops.concatenate(embedded, axis=1),
            attention_mask=seen,
            positions=ops.zeros_like(positions) + queries,
            position_ids=streams(position_ids),
            places=streams(places),
            training=training,
        )
        return states

    def default_loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()


def _check_backbone(backbone):
    fits = isinstance(backbone, EncoderBackbone)
    if fits:
        config = backbone.config
        others = (config.is_local, config.disentangled, config.convolution)
        fits = not (config.causal or any(others))
    if not fits:
        raise ValueError(
            "`backbone` must be an `EncoderBackbone` that isn't causal, without "
            "windows, global tokens, disentangled attention and convolution. "
            f"Received: {type(backbone).__name__}."
        )
