"""Longformer's record."""

import dataclasses

from keras_bertfam.presets.families.longformer_config import (
    GLOBAL_TOKENS,
    as_in_transformers,
    with_values_by_layer,
)
from keras_bertfam.presets.families.recipes import PretrainingRecipe
from keras_bertfam.presets.families.record import size
from keras_bertfam.presets.families.roberta import ROBERTA
from keras_bertfam.presets.families.rows import dense
from keras_bertfam.presets.families.transformers_rows import label_heads
from keras_bertfam.presets.families.transformers_table import TransformersTable

# Section 5: pre-training that went on from RoBERTa's weights.
_PRETRAINING = PretrainingRecipe(
    task="MaskedLM",
    source="Beltagy et al., 2020, section 5",
    learning_rate=3e-5,
    warmup_steps=500,
    total_steps=65_000,
    batch_size=64,
    sequence_length=4096,
    power=3.0,
    beta_2=0.98,
    global_clipnorm=None,
    masking=ROBERTA.pretraining[""].masking,
)

_THEIRS: TransformersTable = ROBERTA.transformers  # type: ignore[assignment]
_SELF = "encoder.layer.{layer}.attention.self"
_GLOBAL = [f"{_SELF}.{part}_global" for part in ("query", "key", "value")]

LONGFORMER = ROBERTA.derived(
    "longformer",
    "LongformerBackbone",
    license="Apache-2.0",
    arguments={
        **ROBERTA.arguments,
        "max_sequence_length": 4096,
        "attention_window": 512,
        "max_global_tokens": GLOBAL_TOKENS,
    },
    sizes={
        "longformer_base_en": size(
            50265, 12, 768, source="allenai/longformer-base-4096"
        ),
        "longformer_large_en": size(
            50265, 24, 1024, source="allenai/longformer-large-4096"
        ),
    },
    pretraining={"": _PRETRAINING},
    transformers=dataclasses.replace(
        _THEIRS,
        title="Longformer",
        prefix="longformer",
        config=(
            *_THEIRS.config,
            ("attention_window", "attention_window", 512),
            ("max_global_tokens", "max_global_tokens", GLOBAL_TOKENS),
        ),
        weights=(
            *_THEIRS.weights,
            *dense("encoder.attention_layers.{layer}.sublayer.global_qkv", *_GLOBAL),
        ),
        heads={
            **_THEIRS.heads,
            **label_heads(
                "classifier.out_proj", "classifier.dense", "longformer.pooler.dense"
            ),
        },
        required_config={},
        forms=(with_values_by_layer, as_in_transformers),
        sign_file=None,
        signs=("attention_window", "hidden_size"),
    ),
)
