"""Longformer's record."""

import dataclasses
from typing import Any

from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.presets.families.parts.record import size
from keras_bertfam.presets.families.parts.tables import TransformersTable
from keras_bertfam.presets.families.parts.transformers_weights import label_heads
from keras_bertfam.presets.families.parts.weight_maps import dense
from keras_bertfam.presets.families.roberta import ROBERTA

# Enough for the questions and choices of this library's tasks.
GLOBAL_TOKENS = 160


def with_values_by_layer(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite a config with `EncoderBackbone`'s `attention_window`.

    Raises:
        ValueError: for a number of windows that isn't that of the layers.
    """
    count = config.get("num_hidden_layers")
    windows = config.get("attention_window", 512)
    if type(windows) is int and type(count) is int:
        windows = [windows] * min(count, 2**10)
    if not isinstance(windows, list) or len(windows) != count:
        raise ValueError(
            f"Expected 'attention_window' to be an int, or one for each of {count} "
            "layers. "
            f"Received: {config.get('attention_window')!r}."
        )
    if any(type(window) is not int or window < 2 for window in windows):
        raise ValueError(
            f"Expected each 'attention_window' to be at least 2. Received: {windows!r}."
        )
    return {**config, "attention_window": tuple(windows)}


def as_in_transformers(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `with_values_by_layer`.

    Raises:
        ValueError: for layers without a window, or without global tokens.
    """
    windows = config["attention_window"]
    if not windows or not all(windows) or not config["max_global_tokens"]:
        raise ValueError(
            "Longformer of `transformers` has a window in each layer, and global "
            f"tokens. Received: attention_window={windows!r}, "
            f"max_global_tokens={config['max_global_tokens']}."
        )
    return {**config, "attention_window": list(windows)}


# Section 5. This pre-training began with RoBERTa's weights.
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
