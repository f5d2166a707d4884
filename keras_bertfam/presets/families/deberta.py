"""The record of DeBERTa's first version."""

import dataclasses

import numpy as np

from keras_bertfam.presets.families.deberta_v2 import (
    CONFIG,
    DEBERTA_V2,
    HEADS,
    MASKED_LM,
    TABLE,
    fine_tuning,
    with_positions,
    without_positions,
)
from keras_bertfam.presets.families.parts.record import Variant, size
from keras_bertfam.presets.families.parts.weight_maps import (
    KERNEL,
    Transform,
    WeightMap,
    dense,
    same,
)


def _by_parts(arrays, heads):
    """Reorder a joint kernel: queries of all heads, then keys, then values."""
    (array,) = arrays
    parts = array.reshape(heads, 3, -1, array.shape[1])
    return parts.transpose(1, 0, 2, 3).reshape(array.shape).T


def _by_heads(array, count, backbone):
    parts = array.T.reshape(3, -1, backbone.head_dim, array.shape[0])
    return [parts.transpose(1, 0, 2, 3).reshape(array.T.shape)]


PACKED = Transform(_by_parts, _by_heads, takes_heads=True)
BIASES = Transform(
    lambda arrays, heads: np.stack([a.reshape(heads, -1) for a in arrays]),
    lambda a, *_: [part.reshape(-1) for part in a],
    takes_heads=True,
)

_SUBLAYER = "encoder.attention_layers.{layer}.sublayer"
_SELF = "encoder.layer.{layer}.attention.self"
_QKV = f"{_SUBLAYER}.qkv."

_PRETRAINING = dataclasses.replace(
    MASKED_LM,
    source="microsoft/DeBERTa of 2020, experiments/language_model, deberta-base",
    warmup_steps=10_000,
    batch_size=256,
)
_LARGE = {"mnli": (1e-5, 64, 3), "cola": (7e-6, 32, 6), "rte": (8e-6, 32, 6)}
_EXTRA_LARGE = {"mnli": (5e-6, 64, 3), "cola": (5e-6, 32, 8), "rte": (7e-6, 48, 6)}

DEBERTA = DEBERTA_V2.derived(
    "deberta",
    "DebertaBackbone",
    tokenizer="byte_pair",
    tokenizer_class="DebertaTokenizer",
    arguments={
        **DEBERTA_V2.arguments,
        "disentangled": "separate",
        "relative_buckets": 1024,
    },
    sizes={
        f"deberta_{ours}_en": size(
            50265,
            layers,
            width,
            16 if width == 1024 else 12,
            source=f"microsoft/{name}",
        )
        for ours, name, layers, width in (
            ("base", "deberta-base", 12, 768),
            ("large", "deberta-large", 24, 1024),
            ("extra_large", "deberta-xlarge", 48, 1024),
        )
    },
    pretraining={"": _PRETRAINING},
    fine_tuning=fine_tuning(mnli=(3e-5, 64, 3), cola=(2e-5, 32, 6), rte=(2e-5, 32, 6)),
    variants={
        "extra_large": Variant((1024,), fine_tuning(**_EXTRA_LARGE), num_layers=48),
        "large": Variant((1024,), fine_tuning(**_LARGE)),
    },
    transformers=dataclasses.replace(
        TABLE,
        title="Deberta",
        config=CONFIG,
        weights=(
            *(w for w in TABLE.weights if not w.ours.startswith(_QKV)),
            WeightMap(f"{_QKV}kernel", (f"{_SELF}.in_proj.weight",), PACKED),
            WeightMap(
                f"{_SUBLAYER}.biases", (f"{_SELF}.q_bias", f"{_SELF}.v_bias"), BIASES
            ),
            *same(
                f"{_SUBLAYER}.relative_key.kernel",
                f"{_SELF}.pos_proj.weight",
                transform=KERNEL,
            ),
            *dense(f"{_SUBLAYER}.relative_query", f"{_SELF}.pos_q_proj"),
        ),
        heads={role: maps for role, maps in HEADS.items() if role != "choice"},
        fixed={**TABLE.fixed, "disentangled": "separate", "convolution": 0},
        required_config={"talking_head": False},
        dropouts={k: v for k, v in TABLE.dropouts.items() if k != "choice"},
        required_heads={"classifier": TABLE.required_heads["classifier"]},
        # Version 5 of `transformers` puts two [SEP] between texts.
        other_layouts=("roberta",),
        forms=(with_positions, without_positions),
    ),
)
