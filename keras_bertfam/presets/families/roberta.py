"""RoBERTa's record."""

import dataclasses

from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import (
    Family,
    HeadStyle,
    Layout,
    size,
)
from keras_bertfam.presets.families.parts.tables import (
    KerasHubTable,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import (
    BERT_CONFIG,
    BERT_WEIGHTS,
    DROPOUT,
    ENCODER_ARGUMENTS,
    NO_DECODER,
    POOLER,
    label_heads,
    masked_lm_head,
)

# Table 9.
_BASE = PretrainingRecipe(
    task="MaskedLM",
    source="Liu et al., 2019, sections 4.1 and 4.2, table 9; fairseq, adam.py",
    learning_rate=6e-4,
    warmup_steps=24_000,
    total_steps=500_000,
    batch_size=8192,
    beta_2=0.98,
    global_clipnorm=None,
    masking={
        "mask_selection_rate": 0.15,
        "selections_per_row": "fairseq",
        "mask_special_tokens": True,
        "random_special_tokens": False,
    },
)
_LARGE = dataclasses.replace(_BASE, learning_rate=4e-4, warmup_steps=30_000)

_FINE_TUNING = FineTuningRecipe(
    (1e-5, 2e-5, 3e-5),
    (16, 32),
    (10,),
    0.06,
    0.1,
    source="Liu et al., 2019, table 10",
)
_SQUAD = _FINE_TUNING.fixed(1.5e-5, 48, 2, weight_decay=0.01)

ROBERTA = Family(
    name="roberta",
    backbone="RobertaBackbone",
    license="MIT",
    tokenizer="byte_pair",
    tokenizer_class="RobertaTokenizer",
    layout=Layout("roberta", start_token="<s>", separators=2),  # <s> A </s> </s> B </s>
    head_style=HeadStyle("roberta", activation="tanh", input_dropout=True),
    arguments={
        "position_offset": 2,
        "layer_norm_epsilon": 1e-5,
        "truncated_initializer": False,
    },
    sizes={
        "roberta_base_en": size(50265, 12, 768, source="FacebookAI/roberta-base"),
        "roberta_large_en": size(50265, 24, 1024, source="FacebookAI/roberta-large"),
    },
    pretraining={"": _BASE, "roberta_large_en": _LARGE},
    fine_tuning={
        "": _FINE_TUNING,
        "race": _FINE_TUNING.fixed(1e-5, 16, 4),
        "squad": _SQUAD,
        "squad_v2": _SQUAD,
    },
    transformers=TransformersTable(
        title="Roberta",
        prefix="roberta",
        config=(*BERT_CONFIG, ("position_offset", "pad_token_id", 1)),
        weights=BERT_WEIGHTS + POOLER,
        heads={
            "masked_lm": masked_lm_head(
                "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"
            ),
            **label_heads(
                "classifier.out_proj", "classifier.dense", "roberta.pooler.dense"
            ),
        },
        fixed=ENCODER_ARGUMENTS,
        required_config=NO_DECODER,
        output="lm_head.decoder.weight",
        pooled=("Model", "ForMultipleChoice"),
        head_activation="gelu",
        dropouts={
            **dict.fromkeys(("classifier", "token"), DROPOUT),
            "choice": {"hidden_dropout_prob": 0.1},
        },
        signs=("hidden_size", "type_vocab_size"),
        sign_file="vocab.json",
    ),
    keras_hub=KerasHubTable(
        "RobertaBackbone",
        keras_hub.SIZES,
        {
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "type_vocab_size": 1,
            "pad_token_id": 1,
        },
        (
            *keras_hub.joint_tables(
                "embeddings",
                tuple(
                    f"embeddings.{kind}_embeddings.weight"
                    for kind in ("position", "token_type")
                ),
                keras_hub.POSITIONS,
            ),
            *keras_hub.BERT_BLOCKS,
        ),
        {
            "MaskedLM": keras_hub.masked_lm_head(
                "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"
            ),
            "TextClassifier": keras_hub.classifier_head(
                "classifier.out_proj", "classifier.dense"
            ),
        },
        first_position=2,
    ),
)
