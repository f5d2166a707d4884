"""XLM-R's record."""

import dataclasses
from typing import Any

from keras_bertfam.presets.families.parts.record import size
from keras_bertfam.presets.families.roberta import ROBERTA

_THEIRS: Any = ROBERTA.transformers
_KERAS_HUB: Any = ROBERTA.keras_hub
_RECIPE = dataclasses.replace(
    ROBERTA.pretraining[""],
    source="Conneau et al., 2019: steps and batches; the rest is RoBERTa's",
    total_steps=1_500_000,
    mix_exponent=0.3,
)

XLM_ROBERTA = ROBERTA.derived(
    "xlm-roberta",
    "XLMRobertaBackbone",
    tokenizer="sentence_piece",
    tokenizer_class="XLMRobertaTokenizer",
    sizes={
        "xlm_roberta_base_multi": size(
            250002,
            12,
            768,
            source="FacebookAI/xlm-roberta-base",
            tokenizer="sentence_piece_bpe",
        ),
        "xlm_roberta_large_multi": size(
            250002,
            24,
            1024,
            source="FacebookAI/xlm-roberta-large",
            tokenizer="sentence_piece_bpe",
        ),
    },
    pretraining={"": _RECIPE},
    transformers=dataclasses.replace(
        _THEIRS, title="XLMRoberta", sign_file="sentencepiece.bpe.model"
    ),
    keras_hub=dataclasses.replace(_KERAS_HUB, backbone="XLMRobertaBackbone"),
)
