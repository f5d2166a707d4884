"""Rewrite a text from one vector of what is left of it: TSDAE."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.blocks.transformer import TransformerStack
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.masking.denoising_autoencoder_preprocessor import (
    DenoisingAutoencoderPreprocessor,
)
from keras_bertfam.tasks.masking.masked_lm import check_encoder
from keras_bertfam.tasks.summary import summary_states
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class DenoisingAutoencoder(PretrainingTask):
    """Rewrites a text from one vector of a part of its words: TSDAE.

    Call `fit()` to train.

    It trains a sentence encoder without labels. The decoder is the encoder itself, made
    causal; its layers also attend to the vector. Only these attentions are new, and the
    decoder's bias by relative position, if the encoder has such a bias. After training,
    save a preset and load it as a `TextEmbedder`. It takes the `pooling` over and drops
    the decoder.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone` that isn't causal but can be
            made so: not a DeBERTa, without gates of heads, and with keys for each head,
            which EuroBERT lacks.
        preprocessor: `DenoisingAutoencoderPreprocessor`, or `None` for batches that
            are preprocessed already.
        pooling: `"cls"`, the first token's state, or `"mean"` of the states of all
            tokens, special ones included. Defaults to `"cls"`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone; and `target_ids`, int `(batch,
            length)`, the original text, with `target_padding_mask` of that shape.

    Returns:
        float32 tensor `(batch, length, vocabulary_size)`: the logits of the token after
        each of `target_ids`. Without `target_ids`, the vectors, `(batch, hidden_dim)`.

    `fit()` takes the batches of `DenoisingAutoencoderPreprocessor.dataset()`, or raw
    texts.

    Reference: [Wang et al., 2021](https://arxiv.org/abs/2104.06979), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    model = keras_bertfam.tasks.DenoisingAutoencoder(backbone)
    logits = model({
        "token_ids": keras.ops.array([[101, 2158, 102]]),
        "target_ids": keras.ops.array([[101, 1037, 2158, 2573]]),
    })  # (1, 4, 30522)
    ```
    """

    preprocessor_cls = DenoisingAutoencoderPreprocessor
    label_kind = "token"
    reads_labels = True
    fixed_arguments = ("pooling",)

    def __init__(
        self,
        backbone: Model,
        preprocessor: DenoisingAutoencoderPreprocessor | None = None,
        pooling: str = "cls",
        **kwargs: Any,
    ) -> None:
        if pooling not in ("cls", "mean"):
            raise ValueError(
                f'`pooling` must be "cls" or "mean". Received: {pooling!r}.'
            )
        check_encoder(backbone)
        names = ("disentangled", "convolution", "head_gates", "num_key_value_heads")
        for name in names:
            if getattr(backbone, name) not in (None, 0):
                raise ValueError(
                    f"`backbone` must have no `{name}`: the causal decoder shares its "
                    f"layers. Received: {type(backbone).__name__} with "
                    f"{name}={getattr(backbone, name)!r}."
                )
        super().__init__(backbone, preprocessor, **kwargs)
        self.pooling = pooling
        self.head = masked_lm_head(backbone)
        config = dataclasses.replace(
            backbone.config, causal=True, cross_attention=True, max_global_tokens=0
        )
        self.decoder = TransformerStack(
            config,
            initializer=backbone.make_initializer(),
            shared=backbone.encoder,
            dtype=backbone.dtype_policy,
            name="decoder",
        )
        self.decoder.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        labels = inputs.pop(LABELS, None)
        targets, mask = (
            inputs.pop(name, None) for name in ("target_ids", "target_padding_mask")
        )
        token = "mean" if self.pooling == "mean" else "first"
        vectors = summary_states(self.backbone, inputs, token, training)[:, 0]
        if targets is None:
            return vectors
        rows = {"token_ids": targets}
        if mask is not None:
            mask = rows["padding_mask"] = ops.cast(mask, "bool")
        states = self.decoder(
            self.backbone.embed(rows, training),
            attention_mask=mask,
            context=ops.expand_dims(ops.cast(vectors, self.compute_dtype), 1),
            training=training,
        )
        return self.predict_tokens(self.head, states, labels=labels)

    @staticmethod
    def vector_pooling(config: Config) -> str:
        """Give the pooling that a task's config has, for a `TextEmbedder`."""
        return str(config["pooling"])

    def default_loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()

    def published_recipe(self) -> PretrainingRecipe:
        return TSDAE_RECIPE

    def get_config(self) -> Config:
        return {**super().get_config(), "pooling": self.pooling}


TSDAE_RECIPE = PretrainingRecipe(
    task="DenoisingAutoencoder",
    source="Wang et al., 2021, section 4; sentence-transformers, TSDAE's example",
    learning_rate=3e-5,
    warmup_steps=0,
    total_steps=100_000,
    batch_size=8,
    schedule_form="constant",
    weight_decay=0.0,
    epsilon=1e-8,
    masking={"deletion_rate": 0.6},
    rows="doc_sentences",
    task_arguments={"pooling": "cls"},
)
