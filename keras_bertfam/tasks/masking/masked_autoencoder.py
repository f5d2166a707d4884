"""Model masked language, with a decoder that reads one vector of each row: RetroMAE."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.heads.bottleneck_decoder import BottleneckDecoder
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.masking.masked_autoencoder_preprocessor import (
    MaskedAutoencoderPreprocessor,
)
from keras_bertfam.tasks.masking.masked_lm import (
    FillMask,
    check_encoder,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedAutoencoder(FillMask, PretrainingTask):
    """Predicts masked tokens, and all tokens from the first token's state: RetroMAE.

    Call `fit()` to train, and `fill_mask()` to fill masks in texts.

    It prepares an encoder for search: the first token's state learns to represent the
    whole text. A decoder of one layer predicts each token from this state, the token's
    position, and half of the other words of the row. After training, save a preset and
    load it as a `DualEncoder` or a `TextEmbedder`; they drop the decoder.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone` that isn't causal.
        preprocessor: `MaskedAutoencoderPreprocessor`, or `None` for batches that are
            masked already.
        decoder_positions: int or `None`. Rows of the decoder's own table of positions.
            `None` uses the backbone's table, as published. If the backbone has no table
            as wide as its states (ModernBERT, DeBERTa, ALBERT), the decoder gets one
            for rows of the preprocessor's length; without a preprocessor, for 512
            tokens.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone; `mask_positions`, int `(batch,
            count)` (without it, every position is predicted); and for the decoder
            `target_ids`, int `(batch, length)`, the original tokens, and `contexts`,
            bool `(batch, length, length)`: `contexts[b, i, j]` tells whether token `i`
            is predicted from token `j`.

    Returns:
        Dict of float32 logits: `masked_lm` `(batch, count, vocabulary_size)`, and with
        `target_ids` `reconstruction` `(batch, length, vocabulary_size)`.

    `fit()` takes the batches of `MaskedAutoencoderPreprocessor.dataset()`. The loss is
    the sum of two mean cross-entropies: over masked tokens, and over all tokens except
    special ones.

    Reference: [Xiao et al., 2022](https://arxiv.org/abs/2205.12035), section 3. Later
        versions of its code also pass the decoder's queries through the norm and
        dropout of the embeddings. We follow the paper, which doesn't.

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    model = keras_bertfam.tasks.MaskedAutoencoder(backbone)
    outputs = model({
        "token_ids": keras.ops.array([[101, 103, 2158, 102]]),
        "mask_positions": keras.ops.array([[1]]),
        "target_ids": keras.ops.array([[101, 1037, 2158, 102]]),
        "contexts": 1 - keras.ops.eye(4)[None],
    })
    outputs["reconstruction"].shape  # (1, 4, 30522)
    ```
    """

    preprocessor_cls = MaskedAutoencoderPreprocessor
    label_kind = {"masked_lm": "token", "reconstruction": "token"}
    reads_labels = True
    extra_inputs = ("mask_positions",)
    fixed_arguments = ("decoder_positions",)

    def __init__(
        self,
        backbone: Model,
        preprocessor: MaskedAutoencoderPreprocessor | None = None,
        decoder_positions: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_encoder(backbone)
        super().__init__(backbone, preprocessor, **kwargs)
        if decoder_positions is None and not _has_positions(backbone):
            decoder_positions = getattr(preprocessor, "sequence_length", 512)
        self.decoder_positions = decoder_positions
        self.head = masked_lm_head(backbone)
        config = backbone.config
        self.decoder = BottleneckDecoder(
            config.num_heads,
            config.head_dim,
            config.intermediate_dim,
            max_positions=decoder_positions,
            activation=config.activation,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            layer_norm_epsilon=config.layer_norm_epsilon,
            initializer=backbone.make_initializer(),
            dtype=backbone.dtype_policy,
            name="decoder",
        )
        self.decoder.build((None, 1, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        targets, contexts = inputs.pop("target_ids", None), inputs.pop("contexts", None)
        labels = inputs.pop(LABELS, {})
        if positions is not None:  # and the first token's state before them
            positions = ops.pad(ops.cast(positions, "int32"), [[0, 0], [1, 0]])
        states = self.backbone(
            inputs, positions=positions, return_pooled=False, training=training
        )["sequence_output"]
        masked = states if positions is None else states[:, 1:]
        outputs = {
            "masked_lm": self.predict_tokens(
                self.head, masked, labels=labels.get("masked_lm")
            )
        }
        if targets is None and contexts is None:
            return outputs
        if targets is None or contexts is None:
            raise ValueError(
                "`inputs` must have both `target_ids` and `contexts`, or neither. "
                f"Received: no `{'target_ids' if targets is None else 'contexts'}`."
            )
        rows = {**inputs, "token_ids": targets}
        decoded = self._decode(states[:, :1], rows, contexts, training)
        outputs["reconstruction"] = self.predict_tokens(
            self.head, decoded, labels=labels.get("reconstruction")
        )
        return outputs

    def _decode(self, summaries, rows, contexts, training):
        """Compute a state for each token from the rows' vectors and the contexts."""
        places = None
        if self.decoder_positions is None:
            places = self.backbone.position_vectors(rows)
        elif (length := rows["token_ids"].shape[1] or 0) > self.decoder_positions:
            raise ValueError(
                f"`target_ids` must have at most decoder_positions="
                f"{self.decoder_positions} tokens. Received: {length}."
            )
        embeddings = self.backbone.embed(rows, training)
        contexts = ops.cast(contexts, "bool")
        if rows.get("padding_mask") is not None:
            there = ops.expand_dims(ops.cast(rows["padding_mask"], "bool"), 1)
            contexts = ops.logical_and(contexts, there)
        return self.decoder(summaries, embeddings, contexts, places, training=training)

    @property
    def loss_counts(self) -> int:
        return 2

    @staticmethod
    def vector_pooling(config: Config) -> str:
        """Give the pooling for a `TextEmbedder`."""
        return "cls"

    def default_loss(self) -> dict[str, MaskedCrossentropy]:
        return {
            "masked_lm": MaskedCrossentropy(),
            "reconstruction": MaskedCrossentropy(name="reconstruction_crossentropy"),
        }

    def default_metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        return {name: token_metrics() for name in ("masked_lm", "reconstruction")}

    def published_recipe(self) -> PretrainingRecipe:
        return RETROMAE_RECIPE

    def get_config(self) -> Config:
        return {**super().get_config(), "decoder_positions": self.decoder_positions}


def _has_positions(backbone):
    """Tell whether a backbone has vectors of positions as wide as its states."""
    table = backbone.embeddings.position_table
    return table is not None and backbone.config.embedding_dim == backbone.hidden_dim


# The paper gives no number of steps: 8 epochs of Wikipedia and BookCorpus, on 8 GPUs.
RETROMAE_RECIPE = PretrainingRecipe(
    task="MaskedAutoencoder",
    source="Xiao et al., 2022, section 4.1; staoxiao/RetroMAE, README",
    learning_rate=1e-4,
    warmup_steps=0.1,
    total_steps=None,
    batch_size=256,
    masking={"mask_selection_rate": 0.3, "hiding_rate": 0.5, "strategy": "words"},
    rows="doc_sentences",
)
