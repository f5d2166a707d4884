"""CamemBERT's record."""

import dataclasses
from typing import Any

from keras_bertfam.presets.families.parts.record import size
from keras_bertfam.presets.families.roberta import ROBERTA

_THEIRS: Any = ROBERTA.transformers
_RECIPE = dataclasses.replace(
    ROBERTA.pretraining[""],
    source="RoBERTa's, with whole words masked as Martin et al., 2019, do",
    masking={**ROBERTA.pretraining[""].masking, "strategy": "words"},
)

CAMEMBERT = ROBERTA.derived(
    "camembert",
    "CamembertBackbone",
    tokenizer="sentence_piece",
    tokenizer_class="CamembertTokenizer",
    sizes={
        "camembert_base_fr": size(
            32005,
            12,
            768,
            source="almanach/camembert-base",
            tokenizer="sentence_piece_bpe",
        ),
        "camembert_large_fr": size(
            32005,
            24,
            1024,
            source="almanach/camembert-large",
            tokenizer="sentence_piece_bpe",
        ),
    },
    pretraining={"": _RECIPE},
    transformers=dataclasses.replace(_THEIRS, title="Camembert", signs=()),
)
