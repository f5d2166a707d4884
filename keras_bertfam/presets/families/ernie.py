"""ERNIE 1.0's record."""

import dataclasses
from typing import Any

from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import size

# Rate, steps and masking are those of the released code. Its batches have 8,192 tokens.
_PRETRAINING = PretrainingRecipe(
    task="MaskedLMSentencePair",
    source="Sun et al., 2019, section 3; PaddlePaddle/ERNIE, release r2.0",
    learning_rate=1e-4,
    warmup_steps=5_000,
    total_steps=1_000_000,
    batch_size=16,
    rows="segment_pairs",
    masking={"mask_selection_rate": 0.15, "strategy": "knowledge"},
    task_arguments={"sentence_objective": "nsp"},
)

_THEIRS: Any = BERT.transformers

ERNIE = BERT.derived(
    "ernie",
    "ErnieBackbone",
    arguments={**BERT.arguments, "activation": "relu", "max_sequence_length": 513},
    # There are 17,964 characters; the table has 18,000 rows.
    sizes={"ernie_base_zh": size(18000, 12, 768, source="nghuyong/ernie-1.0-base-zh")},
    pretraining={"": _PRETRAINING},
    fine_tuning={"": FineTuningRecipe(source="of BERT: Devlin et al., 2018, A.3")},
    # Later ERNIEs add a table of tasks.
    transformers=dataclasses.replace(
        _THEIRS,
        title="Ernie",
        prefix="ernie",
        required_config={**_THEIRS.required_config, "use_task_id": False},
        signs=(),
    ),
)
