"""ALBERT's record."""

from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import size
from keras_bertfam.presets.families.parts.tables import (
    KerasHubTable,
    TensorFlow1Table,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import (
    ALBERT_DROPOUT,
    BERT_CONFIG,
    ENCODER_ARGUMENTS,
    block_weights,
    embedding_weights,
    label_heads,
    masked_lm_head,
    with_defaults,
)
from keras_bertfam.presets.families.parts.weight_maps import dense

_SIZES = {
    f"albert_{ours}{version}_en_uncased": size(
        30000, *shape, source=f"albert/albert-{theirs}-v{number}", dropout=dropout
    )
    for ours, theirs, shape in (
        ("base", "base", (12, 768, 12)),
        ("large", "large", (24, 1024, 16)),
        ("extra_large", "xlarge", (24, 2048, 16)),
        ("extra_extra_large", "xxlarge", (12, 4096, 64)),
    )
    # Version 1 has dropout, except in the largest.
    for version, number, dropout in (
        ("", 2, 0.0),
        ("_v1", 1, 0.0 if theirs == "xxlarge" else 0.1),
    )
}

_PRETRAINING = PretrainingRecipe(
    task="MaskedLMSentencePair",
    source="Lan et al., 2019, section 4.1; google-research/albert, lamb_optimizer.py",
    optimizer="lamb",
    learning_rate=0.00176,
    warmup_steps=3125,
    total_steps=125_000,
    batch_size=4096,
    schedule_form="hold",
    bias_correction=False,
    rows="segment_pairs",
    masking={"strategy": "ngrams", "mask_selection_rate": 0.15},
    task_arguments={"sentence_objective": "sop"},
)

# The table's steps are given as epochs here. Its dropout of the trunk, which differs by
# task, isn't set.
_FINE_TUNING = FineTuningRecipe(
    (3e-5, 2e-5, 1e-5),
    (16, 32),
    (3,),
    0.06,
    sequence_length=512,
    source="Lan et al., 2019, table 14",
)

ALBERT = BERT.derived(
    "albert",
    "AlbertBackbone",
    tokenizer="sentence_piece",
    tokenizer_class="AlbertTokenizer",
    arguments={
        "embedding_dim": 128,
        "share": "all",
        "num_segments": 2,
        "pooler": True,
        "activation": "gelu_tanh",
        "dropout": 0.0,
    },
    sizes=_SIZES,
    pretraining={"": _PRETRAINING},
    fine_tuning={
        "": _FINE_TUNING,
        "cola": _FINE_TUNING.fixed(1e-5, 16, 10),
        "stsb": _FINE_TUNING.fixed(2e-5, 16, 10),
        "sst2": _FINE_TUNING.fixed(1e-5, 32, 10),
        "mnli": _FINE_TUNING.fixed(3e-5, 128, 3, warmup_steps=0.1),
        "qnli": _FINE_TUNING.fixed(1e-5, 32, 10),
        "qqp": _FINE_TUNING.fixed(5e-5, 128, 5, warmup_steps=0.07),
        "rte": _FINE_TUNING.fixed(3e-5, 32, 10, warmup_steps=0.25),
        "mrpc": _FINE_TUNING.fixed(2e-5, 32, 7, warmup_steps=0.25),
        "wnli": _FINE_TUNING.fixed(2e-5, 16, 50, warmup_steps=0.125),
        "squad": _FINE_TUNING.fixed(5e-5, 48, 2, warmup_steps=0.1, sequence_length=384),
        "squad_v2": _FINE_TUNING.fixed(3e-5, 48, 3, warmup_steps=0.1),
        "race": _FINE_TUNING.fixed(2e-5, 32, 4, warmup_steps=0.083),
    },
    transformers=TransformersTable(
        title="Albert",
        prefix="albert",
        config=(
            *with_defaults(
                BERT_CONFIG, activation="gelu_new", dropout=0.0, attention_dropout=0.0
            ),
            ("embedding_dim", "embedding_size", 128),
            ("num_groups", "num_hidden_groups", 1),
        ),
        weights=embedding_weights()
        + dense("embeddings.projection", "encoder.embedding_hidden_mapping_in")
        + block_weights(
            "encoder.albert_layer_groups.{layer}.albert_layers.0",
            [f"attention.{part}" for part in ("query", "key", "value")],
            "attention.dense",
            "attention.LayerNorm",
            "ffn",
            "ffn_output",
            "full_layer_layer_norm",
        )
        + dense("pooler.dense", "pooler", required=False),
        heads={
            "masked_lm": masked_lm_head(
                "predictions.dense", "predictions.LayerNorm", "predictions.bias"
            ),
            "sentence": dense("dense", "sop_classifier.classifier"),
            **label_heads("classifier"),
        },
        fixed={**ENCODER_ARGUMENTS, "share": "all"},
        required_config={"inner_group_num": 1, "position_embedding_type": "absolute"},
        identities=("encoder.embedding_hidden_mapping_in",),
        refused={
            r"albert_layers\.[1-9]": "one layer in a group, as with 'inner_group_num' 1"
        },
        output="predictions.decoder.weight",
        pooled=("Model", "ForPreTraining", "ForSequenceClassification")
        + ("ForMultipleChoice",),
        dropouts=dict.fromkeys(("classifier", "token", "choice"), ALBERT_DROPOUT),
        signs=("hidden_size", "type_vocab_size", "num_hidden_groups"),
    ),
    keras_hub=KerasHubTable(
        "AlbertBackbone",
        {
            **keras_hub.SIZES,
            **keras_hub.SEGMENTS,
            **keras_hub.FACTORS,
            "num_hidden_groups": "num_groups",
            "inner_group_num": "num_inner_repetitions",
        },
        keras_hub.TANH,
        (
            *keras_hub.TABLES,
            *keras_hub.dense(
                "embedding_projection", "encoder.embedding_hidden_mapping_in"
            ),
            *keras_hub.block_weights(
                "group_{layer}_inner_layer_0",
                "encoder.albert_layer_groups.{layer}.albert_layers.0",
                [f"attention.{part}" for part in ("query", "key", "value")],
                "attention.dense",
                "attention.LayerNorm",
                "ffn",
                "ffn_output",
                "full_layer_layer_norm",
            ),
            *keras_hub.dense("pooled_dense", "pooler"),
        ),
        {
            "MaskedLM": keras_hub.masked_lm_head(
                "predictions.dense", "predictions.LayerNorm", "predictions.bias"
            ),
            "TextClassifier": keras_hub.classifier_head("classifier"),
        },
    ),
    tensorflow1=TensorFlow1Table(
        ("bert/encoder/transformer/",),
        (
            (r"^bert/", "albert/"),
            (r"/transformer/group_(\d+)/", r".albert_layer_groups.\1."),
            (r"inner_group_(\d+)/", r"albert_layers.\1."),
            (r"attention_1/self/", "attention/"),
            (r"attention_1/output/", "attention/"),
            (r"ffn_1/intermediate/output/dense", "ffn_output"),
            (r"ffn_1/intermediate/dense", "ffn"),
            (r"LayerNorm_1/", "full_layer_layer_norm/"),
            (
                r"albert_layers\.(\d+)\.LayerNorm/",
                r"albert_layers.\1.attention/LayerNorm/",
            ),
            (r"pooler/dense", "pooler"),
            (r"^cls/predictions/transform/", "predictions/"),
            (r"^cls/predictions/", "predictions/"),
            (r"^cls/seq_relationship/", "sop_classifier/classifier/"),
            (r"^output_(weights|bias)$", r"classifier/output_\1"),
            (r"^cls/squad/", "qa_outputs/"),
        ),
    ),
)
