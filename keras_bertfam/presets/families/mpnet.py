"""MPNet's record."""

from typing import Any

from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import size
from keras_bertfam.presets.families.parts.tables import TransformersTable
from keras_bertfam.presets.families.parts.transformers_weights import (
    BERT_CONFIG,
    ENCODER_ARGUMENTS,
    POOLER,
    block_weights,
    embedding_weights,
    label_heads,
    masked_lm_head,
)
from keras_bertfam.presets.families.parts.weight_maps import same
from keras_bertfam.presets.families.roberta import ROBERTA

# Rows of the table of positions before the first token's row.
_OFFSET = 2


def without_offset(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite a config with the number of positions, without the rows before them.

    Raises:
        ValueError: for a table without rows for positions.
    """
    rows = config.get("max_position_embeddings", 512)
    if type(rows) is not int or rows <= _OFFSET:
        raise ValueError(
            f"Expected 'max_position_embeddings' to be an int greater than {_OFFSET}. "
            f"Received: {rows!r}."
        )
    return {**config, "max_position_embeddings": rows - _OFFSET}


def with_offset(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `without_offset`.

    Raises:
        ValueError: for a model without a table of positions.
    """
    longest = config["max_position_embeddings"]
    if longest is None:
        raise ValueError(
            "MPNet of `transformers` has a table of positions. "
            "Received: max_sequence_length=None."
        )
    return {**config, "max_position_embeddings": longest + _OFFSET}


_BIAS = {"relative_buckets": 32, "relative_distance": 128}

# From the released command, except the batch, which is the paper's. The command's batch
# depends on the number of GPUs.
_PRETRAINING = PretrainingRecipe(
    task="MaskedPermutedLM",
    source="microsoft/MPNet, README, pre-training; Song et al., 2020, section 4.1",
    learning_rate=5e-4,
    warmup_steps=10_000,
    total_steps=125_000,
    batch_size=8192,
    beta_2=0.98,
    global_clipnorm=None,
    masking={
        "mask_selection_rate": 0.15,
        "mask_special_tokens": True,
        "random_special_tokens": False,
    },
)

_FINE_TUNING = FineTuningRecipe(
    (1e-5,),
    (16, 32),
    (10,),
    0.06,
    0.1,
    source="microsoft/MPNet, README, fine-tuning on GLUE and SQuAD",
)
_SMALL = _FINE_TUNING.changed(learning_rates=(2e-5,))

MPNET = ROBERTA.derived(
    "mpnet",
    "MPNetBackbone",
    tokenizer="word_piece",
    tokenizer_class="MPNetTokenizer",
    arguments={**ROBERTA.arguments, **_BIAS},
    sizes={
        "mpnet_base_en_uncased": size(30527, 12, 768, source="microsoft/mpnet-base")
    },
    pretraining={"": _PRETRAINING},
    fine_tuning={
        "": _FINE_TUNING,
        "rte": _SMALL,
        "stsb": _SMALL,
        "squad_v2": _FINE_TUNING.changed(learning_rates=(2e-5,), batch_sizes=(48,)),
    },
    transformers=TransformersTable(
        title="MPNet",
        prefix="mpnet",
        config=tuple(entry for entry in BERT_CONFIG if entry[0] != "num_segments"),
        weights=(
            *embedding_weights(segments=False),
            *same(
                "encoder.relative_bias.table", "encoder.relative_attention_bias.weight"
            ),
            *block_weights(
                "encoder.layer.{layer}",
                [f"attention.attn.{part}" for part in "qkv"],
                "attention.attn.o",
                "attention.LayerNorm",
                "intermediate.dense",
                "output.dense",
                "output.LayerNorm",
            ),
            *POOLER,
        ),
        heads={
            "masked_lm": masked_lm_head(
                "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"
            ),
            **label_heads(
                "classifier.out_proj", "classifier.dense", "mpnet.pooler.dense"
            ),
        },
        fixed={**ENCODER_ARGUMENTS, **_BIAS, "position_offset": _OFFSET},
        # `transformers` always computes with this number of buckets.
        required_config={"relative_attention_num_buckets": _BIAS["relative_buckets"]},
        output="lm_head.decoder.weight",
        pooled=("Model", "ForMultipleChoice"),
        head_activation="gelu",
        dropouts=dict.fromkeys(
            ("classifier", "token", "choice"), {"hidden_dropout_prob": 0.1}
        ),
        forms=(without_offset, with_offset),
    ),
)
