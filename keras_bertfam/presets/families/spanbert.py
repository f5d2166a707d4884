"""SpanBERT's record."""

from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import size

# Section 3 and the released code's README. The paper has a weight decay of 0.1.
_PRETRAINING = PretrainingRecipe(
    task="SpanBoundaryLM",
    source="Joshi et al., 2019, section 4.2; facebookresearch/SpanBERT, README",
    learning_rate=1e-4,
    warmup_steps=10_000,
    total_steps=2_400_000,
    batch_size=256,
    epsilon=1e-8,
    rows="doc_sentences",
    masking={
        "mask_selection_rate": 0.15,
        "strategy": "spans",
        "replacement_unit": "span",
        "selections_per_row": "spanbert",
    },
)

SPANBERT = BERT.derived(
    "spanbert",
    "SpanBertBackbone",
    license="CC-BY-NC-4.0",
    arguments={
        "num_segments": 2,
        "pooler": True,
        "truncated_initializer": False,
    },
    sizes={
        "spanbert_base_en_cased": size(
            28996, 12, 768, source="SpanBERT/spanbert-base-cased"
        ),
        "spanbert_large_en_cased": size(
            28996, 24, 1024, source="SpanBERT/spanbert-large-cased"
        ),
    },
    pretraining={"": _PRETRAINING},
    fine_tuning={
        "": FineTuningRecipe(
            (2e-5,),
            (32,),
            (4,),
            sequence_length=512,
            source="facebookresearch/SpanBERT, README",
        )
    },
    reads=("bert",),
)
