"""ELECTRA's record."""

import dataclasses

from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import (
    HeadStyle,
    Variant,
    size,
)
from keras_bertfam.presets.families.parts.tables import (
    BLOCK,
    KerasHubTable,
    TensorFlow1Table,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import (
    BERT_BLOCKS,
    BERT_CONFIG,
    DROPOUT,
    ENCODER_ARGUMENTS,
    NO_DECODER,
    embedding_weights,
    label_heads,
    masked_lm_head,
)
from keras_bertfam.presets.families.parts.weight_maps import dense

_SIZES = {
    f"electra_{name}_{part}_uncased_en": size(
        30522,
        layers,
        width,
        embedding_dim=embedding_dim,
        source=f"google/electra-{name}-{part}",
    )
    for name, layers, widths, embedding_dim in (
        ("small", 12, (256, 256), 128),
        ("base", 12, (768, 256), 768),
        ("large", 24, (1024, 256), 1024),
    )
    for part, width in zip(("discriminator", "generator"), widths, strict=True)
}

# Table 6 and section 3.2. The released code has the form of the schedule.
_BASE = PretrainingRecipe(
    task="ReplacedTokenDetection",
    source="Clark et al., 2020, appendix A, table 6; google-research/electra",
    learning_rate=2e-4,
    warmup_steps=10_000,
    total_steps=766_000,
    batch_size=256,
    schedule_form="product",
    rows="electra_segments",
    masking={
        "mask_selection_rate": 0.15,
        "mask_token_rate": 1.0,  # the released code leaves 15 % unchanged
        "random_token_rate": 0.0,
    },
    task_arguments={"generator_size": 1 / 3},
)
_SMALL = dataclasses.replace(
    _BASE,
    learning_rate=5e-4,
    total_steps=1_000_000,
    batch_size=128,
    sequence_length=128,
    task_arguments={"generator_size": 1 / 4},
)
_LARGE = dataclasses.replace(
    _BASE,
    total_steps=400_000,
    batch_size=2048,
    masking={**_BASE.masking, "mask_selection_rate": 0.25},
    task_arguments={"generator_size": 1 / 4},
)

# Table 7, for the base model. The decay of rates is that of the released code.
_FINE_TUNING = FineTuningRecipe(
    (1e-4,),
    (32,),
    (3,),
    layer_decay=0.8,
    layer_offset=2,
    end_head="conditional",
    source="Clark et al., 2020, appendix B, table 7; google-research/electra",
)


def _by_task(recipe):
    epochs = {"rte": 10, "stsb": 10, "squad": 2, "squad_v2": 2}
    tasks = {task: recipe.changed(epochs=(count,)) for task, count in epochs.items()}
    return {"": recipe, **tasks}


ELECTRA = BERT.derived(
    "electra",
    "ElectraBackbone",
    head_style=HeadStyle("electra", activation="gelu", input_dropout=True),
    arguments={"num_segments": 2, "activation": "gelu_tanh"},
    sizes=_SIZES,
    pretraining={
        "": _BASE,
        **dict.fromkeys((name for name in _SIZES if "_small_" in name), _SMALL),
        **dict.fromkeys((name for name in _SIZES if "_large_" in name), _LARGE),
    },
    fine_tuning=_by_task(_FINE_TUNING),
    variants={
        "large": Variant(
            (1024,),
            _by_task(_FINE_TUNING.changed(learning_rates=(5e-5,), layer_decay=0.9)),
        )
    },
    transformers=TransformersTable(
        title="Electra",
        prefix="electra",
        config=(*BERT_CONFIG, ("embedding_dim", "embedding_size", 128)),
        weights=embedding_weights()
        + dense("embeddings.projection", "embeddings_project")
        + BERT_BLOCKS,
        heads={
            "masked_lm": masked_lm_head(
                "generator_predictions.dense",
                "generator_predictions.LayerNorm",
                "generator_lm_head.bias",
            ),
            "detector": dense("dense", "discriminator_predictions.dense")
            + dense("output_dense", "discriminator_predictions.dense_prediction"),
            **label_heads(
                "classifier.out_proj", "classifier.dense", "sequence_summary.summary"
            ),
        },
        fixed=ENCODER_ARGUMENTS,
        required_config=NO_DECODER,
        output="generator_lm_head.weight",
        head_activation="gelu",
        dropouts={
            **dict.fromkeys(("classifier", "token"), DROPOUT),
            "choice": {"summary_last_dropout": 0.1},
        },
        required_heads={
            "choice": {
                "summary_type": ("first",),
                "summary_use_proj": (True,),
                "summary_activation": ("gelu", "gelu_python"),
            }
        },
    ),
    # KerasHub's class has a pooler, which the original and ours lack.
    keras_hub=KerasHubTable(
        "ElectraBackbone",
        {
            **keras_hub.SIZES,
            **keras_hub.SEGMENTS,
            **keras_hub.FACTORS,
            "vocab_size": "vocab_size",
        },
        keras_hub.TANH,
        (
            *keras_hub.TABLES,
            *keras_hub.dense("embeddings_projection", "embeddings_project"),
            *keras_hub.BERT_BLOCKS,
        ),
    ),
    tensorflow1=TensorFlow1Table(
        ("discriminator_predictions/", "electra/"),
        (
            *BLOCK,
            (
                r"discriminator_predictions/dense_1",
                "discriminator_predictions/dense_prediction",
            ),
            (r"generator_predictions/output_bias", "generator_lm_head/bias"),
        ),
        sizes_from_shapes=True,
        generator=True,
    ),
)
