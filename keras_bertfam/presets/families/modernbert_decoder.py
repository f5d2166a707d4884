"""The record of ModernBERT's decoder, which Ettin published."""

import dataclasses
import functools
from typing import Any

from keras_bertfam.presets.families.ettin import ETTIN, pretraining, sizes
from keras_bertfam.presets.families.modernbert import (
    MODERNBERT,
    as_in_transformers,
    with_values_by_layer,
)
from keras_bertfam.presets.families.parts.weight_maps import dense, norm, same

_THEIRS: Any = MODERNBERT.transformers
_QKV = "encoder.attention_layers.{layer}.sublayer.qkv"


MODERNBERT_DECODER = ETTIN.derived(
    "modernbert-decoder",
    "ModernBertDecoderBackbone",
    # In `transformers` a token sees itself and the 63 tokens before it. Ettin was
    # trained with one token more.
    arguments={
        **ETTIN.arguments,
        "causal": True,
        "attention_window": (0, 126, 126),
    },
    token_head="transform",
    sizes=sizes("decoder"),
    pretraining=pretraining("decoder"),
    transformers=dataclasses.replace(
        _THEIRS,
        title="ModernBertDecoder",
        weights=(
            *(w for w in _THEIRS.weights if not w.ours.startswith(_QKV)),
            *dense(_QKV, *(f"layers.{{layer}}.attn.{p}_proj" for p in "qkv")),
        ),
        heads={
            "causal_lm": dense("dense", "lm_head.dense")
            + norm("norm", "lm_head.norm")
            + same("bias", "decoder.bias")
        },
        fixed={**_THEIRS.fixed, "causal": True},
        endings={"LMHeadModel": "ForCausalLM"},
        dropouts={},
        styles={},
        needed={"pad_token_id": 0},
        forms=(
            functools.partial(with_values_by_layer, less=1),
            functools.partial(as_in_transformers, less=1),
        ),
    ),
)
