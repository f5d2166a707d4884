"""XLM-R XL's record."""

import dataclasses
from typing import Any

from keras_bertfam.presets.families.parts.record import size
from keras_bertfam.presets.families.parts.transformers_weights import (
    POOLER,
    block_weights,
    embedding_weights,
    with_defaults,
)
from keras_bertfam.presets.families.parts.weight_maps import norm
from keras_bertfam.presets.families.xlm_roberta import XLM_ROBERTA

_THEIRS: Any = XLM_ROBERTA.transformers
_PRE_NORM = {"norm_first": True, "embedding_norm": False}

XLM_ROBERTA_XL = XLM_ROBERTA.derived(
    "xlm-roberta-xl",
    "XLMRobertaXLBackbone",
    arguments={**XLM_ROBERTA.arguments, **_PRE_NORM},
    sizes={
        "xlm_roberta_xl_multi": size(
            250880,
            36,
            2560,
            32,
            source="facebook/xlm-roberta-xl",
            tokenizer="sentence_piece_bpe",
        ),
        "xlm_roberta_xxl_multi": size(
            250880,
            48,
            4096,
            32,
            source="facebook/xlm-roberta-xxl",
            tokenizer="sentence_piece_bpe",
        ),
    },
    transformers=dataclasses.replace(
        _THEIRS,
        title="XLMRobertaXL",
        config=with_defaults(
            _THEIRS.config,
            max_sequence_length=514,
            num_segments=1,
            layer_norm_epsilon=1e-5,
        ),
        weights=(
            *embedding_weights(normalised=False),
            *block_weights(
                "encoder.layer.{layer}",
                [f"attention.self.{part}" for part in ("query", "key", "value")],
                "attention.output.dense",
                "attention.self_attn_layer_norm",
                "intermediate.dense",
                "output.dense",
                "LayerNorm",
            ),
            *norm("encoder.final_norm", "encoder.LayerNorm"),
            *POOLER,
        ),
        fixed={**_THEIRS.fixed, **_PRE_NORM},
        signs=(),
    ),
)
