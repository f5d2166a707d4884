"""DistilBERT's record, and DistilRoBERTa's sizes."""

from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import HeadStyle, size
from keras_bertfam.presets.families.parts.tables import (
    REQUIRED,
    KerasHubTable,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import (
    ENCODER_ARGUMENTS,
    block_weights,
    embedding_weights,
    label_heads,
    masked_lm_head,
)
from keras_bertfam.presets.families.roberta import ROBERTA

# The released code's defaults, and its command for one GPU, with 5 x 50 rows a step.
_PRETRAINING = PretrainingRecipe(
    task="Distiller",
    source="Sanh et al., 2019, section 3; its released code, train.py",
    learning_rate=5e-4,
    warmup_steps=0.05,
    total_steps=None,
    batch_size=250,
    weight_decay=0.0,
    beta_2=0.98,
    global_clipnorm=5.0,
    rows="doc_sentences",
    # Tokens are drawn by weights `count ** -0.7`. The rate is that of the whole batch.
    masking={"mask_selection_rate": 0.15, "strategy": "smoothed_tokens"},
    task_arguments={
        "ce_weight": 5.0,
        "mlm_weight": 2.0,
        "cosine_weight": 1.0,
        "mse_weight": 0.0,
    },
)

DISTILBERT = BERT.derived(
    "distilbert",
    "DistilBertBackbone",
    head_style=HeadStyle("distilbert", activation="relu", dropout=0.2),
    arguments={},
    sizes={
        "distil_bert_base_en_uncased": size(
            30522, 6, 768, source="distilbert/distilbert-base-uncased"
        ),
        "distil_bert_base_en": size(
            28996, 6, 768, source="distilbert/distilbert-base-cased"
        ),
        "distil_bert_base_multi": size(
            119547, 6, 768, source="distilbert/distilbert-base-multilingual-cased"
        ),
        "distil_roberta_base_en": size(
            50265,
            6,
            768,
            source="distilbert/distilroberta-base",
            tokenizer="byte_pair",
            **ROBERTA.arguments,
        ),
    },
    pretraining={"": _PRETRAINING},
    fine_tuning={"": FineTuningRecipe()},
    transformers=TransformersTable(
        title="DistilBert",
        prefix="distilbert",
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "n_layers", REQUIRED),
            ("num_heads", "n_heads", REQUIRED),
            ("hidden_dim", "dim", REQUIRED),
            ("intermediate_dim", "hidden_dim", REQUIRED),
            ("max_sequence_length", "max_position_embeddings", 512),
            ("activation", "activation", "gelu"),
            ("dropout", "dropout", 0.1),
            ("attention_dropout", "attention_dropout", 0.1),
            ("initializer_range", "initializer_range", 0.02),
        ),
        weights=embedding_weights(segments=False)
        + block_weights(
            "transformer.layer.{layer}",
            [f"attention.{part}_lin" for part in "qkv"],
            "attention.out_lin",
            "sa_layer_norm",
            "ffn.lin1",
            "ffn.lin2",
            "output_layer_norm",
        ),
        heads={
            "masked_lm": masked_lm_head(
                "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
            ),
            **label_heads("classifier", "pre_classifier", "pre_classifier"),
        },
        output="vocab_projector.weight",
        fixed={**ENCODER_ARGUMENTS, "layer_norm_epsilon": 1e-12},
        dropouts={
            **dict.fromkeys(("classifier", "choice"), {"seq_classif_dropout": 0.2}),
            "token": {"dropout": 0.1},
        },
        signs=("dim", "n_heads"),
    ),
    reads=("roberta",),
    keras_hub=KerasHubTable(
        "DistilBertBackbone",
        {
            "vocab_size": "vocabulary_size",
            "n_layers": "num_layers",
            "n_heads": "num_heads",
            "dim": "hidden_dim",
            "hidden_dim": "intermediate_dim",
            "max_position_embeddings": "max_sequence_length",
            "dropout": "dropout",
            "attention_dropout": "dropout",
        },
        {"activation": "gelu"},
        (
            *keras_hub.joint_tables(
                "token_and_position_embedding",
                ("embeddings.position_embeddings.weight",),
                keras_hub.SAME,
            ),
            *keras_hub.block_weights(
                "transformer_layer_{layer}",
                "transformer.layer.{layer}",
                [f"attention.{part}_lin" for part in "qkv"],
                "attention.out_lin",
                "sa_layer_norm",
                "ffn.lin1",
                "ffn.lin2",
                "output_layer_norm",
            ),
        ),
        {
            "MaskedLM": keras_hub.masked_lm_head(
                "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
            ),
            "TextClassifier": keras_hub.classifier_head("classifier", "pre_classifier"),
        },
    ),
)
