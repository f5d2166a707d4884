"""BART's record."""

from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import Family, HeadStyle, size
from keras_bertfam.presets.families.parts.seq2seq_weights import (
    BART_KERAS_HUB_WEIGHTS,
    BART_WEIGHTS,
)
from keras_bertfam.presets.families.parts.tables import (
    REQUIRED,
    KerasHubTable,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import (
    SEQ2SEQ_ARGUMENTS,
    label_heads,
)
from keras_bertfam.presets.families.roberta import ROBERTA

# Section 5.1 has the rows and the steps. The rate and all other settings weren't
# published. They are those of RoBERTa, whose batches are as large.
_PRETRAINING = PretrainingRecipe(
    task="TextToText",
    source="Lewis et al., 2019, section 5.1; the rest as Liu et al., 2019, table 9",
    learning_rate=4e-4,
    warmup_steps=30_000,
    total_steps=500_000,
    batch_size=8000,
    beta_2=0.98,
    global_clipnorm=None,
    masking={"objective": "bart"},
)

_HEADS = label_heads("classification_head.out_proj", "classification_head.dense")

BART = Family(
    name="bart",
    backbone="BartBackbone",
    license="MIT",
    tokenizer="byte_pair",
    tokenizer_class="BartTokenizer",
    layout=ROBERTA.layout,
    head_style=HeadStyle("bart", activation="tanh", input_dropout=True, token="end"),
    arguments={
        "position_offset": 2,
        "max_sequence_length": 1024,
        "layer_norm_epsilon": 1e-5,
        "truncated_initializer": False,
        "attention_dropout": 0.0,
    },
    sizes={
        "bart_base_en": size(50265, 6, 768, source="facebook/bart-base"),
        "bart_large_en": size(50265, 12, 1024, source="facebook/bart-large"),
    },
    start_token_ids=(2,),
    pretraining={"": _PRETRAINING},
    fine_tuning={
        "": FineTuningRecipe(
            (5e-6, 1e-5, 2e-5),
            (32, 128),
            (10,),
            0.06,
            source="fairseq, examples/bart, README",
        )
    },
    transformers=TransformersTable(
        title="Bart",
        prefix="model",
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "encoder_layers", REQUIRED),
            ("num_decoder_layers", "decoder_layers", REQUIRED),
            ("num_heads", "encoder_attention_heads", REQUIRED),
            ("num_heads", "decoder_attention_heads", REQUIRED),
            ("hidden_dim", "d_model", REQUIRED),
            ("intermediate_dim", "encoder_ffn_dim", REQUIRED),
            ("intermediate_dim", "decoder_ffn_dim", REQUIRED),
            ("max_sequence_length", "max_position_embeddings", 1024),
            ("activation", "activation_function", "gelu"),
            ("dropout", "dropout", 0.1),
            ("attention_dropout", "attention_dropout", 0.0),
            ("activation_dropout", "activation_dropout", 0.0),
            ("initializer_range", "init_std", 0.02),
        ),
        weights=BART_WEIGHTS,
        heads={
            "seq2seq_lm": (),
            "classifier": _HEADS["classifier"],
            "span": _HEADS["span"],
        },
        dropouts={"classifier": {"classifier_dropout": 0.0}},
        fixed={**SEQ2SEQ_ARGUMENTS, "position_offset": 2, "layer_norm_epsilon": 1e-5},
        required_config={
            "scale_embedding": False,
            "add_final_layer_norm": False,
            "normalize_before": False,
            "normalize_embedding": True,
            "static_position_embeddings": False,
        },
        output="lm_head.weight",
        copies={
            "lm_head.weight": "shared.weight",
            "encoder.embed_tokens.weight": "shared.weight",
            "decoder.embed_tokens.weight": "shared.weight",
            "model.encoder.embed_tokens.weight": "shared.weight",
            "model.decoder.embed_tokens.weight": "shared.weight",
        },
        constants=(r"(encoder|decoder)\.version",),
        zeros=("final_logits_bias",),
        signs=("d_model", "encoder_ffn_dim"),
    ),
    # KerasHub's class also has dropout of attention, which changes no result.
    keras_hub=KerasHubTable(
        "BartBackbone",
        {
            "vocab_size": "vocabulary_size",
            "encoder_layers": "num_layers",
            "decoder_layers": "num_layers",
            "encoder_attention_heads": "num_heads",
            "decoder_attention_heads": "num_heads",
            "d_model": "hidden_dim",
            "encoder_ffn_dim": "intermediate_dim",
            "decoder_ffn_dim": "intermediate_dim",
            "max_position_embeddings": "max_sequence_length",
            "dropout": "dropout",
        },
        {
            "activation_function": "gelu",
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
        },
        BART_KERAS_HUB_WEIGHTS,
        {"Seq2SeqLM": ()},
    ),
)
