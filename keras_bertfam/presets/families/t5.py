"""T5's record."""

from keras_bertfam.presets.families.parts.keras_hub_weights import FEED_FORWARDS
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import Family, HeadStyle, Layout, size
from keras_bertfam.presets.families.parts.seq2seq_weights import (
    T5_KERAS_HUB_WEIGHTS,
    T5_WEIGHTS,
)
from keras_bertfam.presets.families.parts.tables import (
    REQUIRED,
    KerasHubTable,
    TensorFlow1Table,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import SEQ2SEQ_ARGUMENTS

# 32,000 pieces and 100 sentinels, padded to a multiple of 128.
_EMBEDDINGS = 32128
_COMPUTES = {
    "max_sequence_length": None,
    "position_offset": 0,
    "norm_first": True,
    "norm": "rms",
    "use_bias": False,
    "embedding_norm": False,
    "attention_scale": 1.0,
    "initializer_range": None,
}


def _sizes(name, source, shapes, **arguments):
    return {
        name.format(kind): size(
            _EMBEDDINGS,
            layers,
            width,
            heads,
            intermediate_dim=inner,
            head_dim=head_dim,
            source=source.format(kind),
            **arguments,
        )
        for kind, (layers, width, inner, heads, head_dim) in shapes.items()
    }


_VERSION_1 = {
    "small": (6, 512, 2048, 8, 64),
    "base": (12, 768, 3072, 12, 64),
    "large": (24, 1024, 4096, 16, 64),
    "3b": (24, 1024, 16384, 32, 128),
    "11b": (24, 1024, 65536, 128, 128),
}
_VERSION_1_1 = {
    "small": (8, 512, 1024, 6, 64),
    "base": (12, 768, 2048, 12, 64),
    "large": (24, 1024, 2816, 16, 64),
    "xl": (24, 2048, 5120, 32, 64),
    "xxl": (24, 4096, 10240, 64, 64),
}
_GATED = {"activation": "gelu_tanh", "gated": True, "tie_embeddings": False}


def _with_scale(config):
    """Add `scale_decoder_outputs` to a config, if it lacks it.

    In older configs `tie_word_embeddings` also tells whether the decoder's states are
    scaled before the logits. Later configs of T5 1.1 say that its two tables are tied,
    though they aren't; then the tensors decide.
    """
    _check_feed_forward(config)
    scaled = config.get("scale_decoder_outputs")
    if scaled is None:
        scaled = config.get("tie_word_embeddings") is not False
    tied = config.get("tie_word_embeddings", True) if scaled else False
    return {**config, "scale_decoder_outputs": scaled, "tie_word_embeddings": tied}


def _check_feed_forward(config):
    """Raise a `ValueError` for keys that contradict `feed_forward_proj`.

    `transformers` writes them as well, and takes them in its place.
    """
    said = config.get("feed_forward_proj", "relu")
    gated, _, activation = str(said).rpartition("-")
    if said == "gated-gelu":
        activation = "gelu_new"
    expected = {"is_gated_act": gated == "gated", "dense_act_fn": activation}
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"Expected {key!r} to be {value!r}, as 'feed_forward_proj' says. "
                f"Received: {config[key]!r}."
            )


def _without_scale(config):
    """Rewrite a config in the older form, if this form can express it."""
    scaled, tied = config["scale_decoder_outputs"], config["tie_word_embeddings"]
    if scaled != tied:
        return {**config, "tie_word_embeddings": True}
    return {k: v for k, v in config.items() if k != "scale_decoder_outputs"}


# Section 3.1.2: 2^19 steps of 128 rows. The final models had 2^20 steps of 2,048 rows.
_PRETRAINING = PretrainingRecipe(
    task="TextToText",
    source="Raffel et al., 2019, section 3.1.2; text-to-text-transfer-transformer",
    learning_rate=1.0,
    warmup_steps=10_000,
    total_steps=524_288,
    batch_size=128,
    optimizer="adafactor",
    schedule_form="rsqrt",
    weight_decay=0.0,
    global_clipnorm=None,
    masking={"objective": "random_spans"},
    task_arguments={"z_loss": 1e-4},
)

T5 = Family(
    name="t5",
    backbone="T5Backbone",
    license="Apache-2.0",
    tokenizer="sentence_piece",
    tokenizer_class="T5Tokenizer",
    layout=Layout("t5", start_token=""),  # A </s>
    head_style=HeadStyle("t5", activation="tanh", input_dropout=True, token="end"),
    arguments={
        **_COMPUTES,
        "layer_norm_epsilon": 1e-6,
        "activation": "relu",
        "activation_dropout": None,
        "output_dropout": None,
        "relative_buckets": 32,
    },
    sizes={
        **_sizes("t5_{}_multi", "google-t5/t5-{}", _VERSION_1),
        **_sizes("t5_1.1_{}", "google/t5-v1_1-{}", _VERSION_1_1, **_GATED),
        **_sizes("flan_{}_multi", "google/flan-t5-{}", _VERSION_1_1, **_GATED),
    },
    start_token_ids=(0,),
    pretraining={"": _PRETRAINING},
    fine_tuning={
        "": FineTuningRecipe(
            (1e-3,),
            (128,),
            (3,),
            warmup_steps=0.0,
            weight_decay=0.0,
            source="Raffel et al., 2019, section 3.1.2",
        )
    },
    transformers=TransformersTable(
        title="T5",
        prefix="",
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "num_layers", REQUIRED),
            ("num_decoder_layers", "num_decoder_layers", None),
            ("num_heads", "num_heads", REQUIRED),
            ("hidden_dim", "d_model", REQUIRED),
            ("head_dim", "d_kv", 64),
            ("intermediate_dim", "d_ff", REQUIRED),
            ("feed_forward", "feed_forward_proj", "relu"),
            ("dropout", "dropout_rate", 0.1),
            ("attention_dropout", "dropout_rate", 0.1),
            ("activation_dropout", "dropout_rate", 0.1),
            ("output_dropout", "dropout_rate", 0.1),
            ("layer_norm_epsilon", "layer_norm_epsilon", 1e-6),
            ("relative_buckets", "relative_attention_num_buckets", 32),
            ("relative_distance", "relative_attention_max_distance", 128),
            ("scale_outputs", "scale_decoder_outputs", REQUIRED),
        ),
        weights=T5_WEIGHTS,
        output="lm_head.weight",
        heads={"seq2seq_lm": ()},
        fixed={**SEQ2SEQ_ARGUMENTS, **_COMPUTES},
        copies={
            "lm_head.weight": "shared.weight",
            "encoder.embed_tokens.weight": "shared.weight",
            "decoder.embed_tokens.weight": "shared.weight",
        },
        forms=(_with_scale, _without_scale),
        constants=(
            r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\."
            "weight",
        ),
        signs=("d_model", "d_kv"),
    ),
    keras_hub=KerasHubTable(
        "T5Backbone",
        {
            "vocab_size": "vocabulary_size",
            "num_layers": "num_layers",
            "num_decoder_layers": "num_layers",
            "num_heads": "num_heads",
            "d_model": "hidden_dim",
            "d_kv": "key_value_dim",
            "d_ff": "intermediate_dim",
            "dropout_rate": "dropout",
            "layer_norm_epsilon": "layer_norm_epsilon",
            "tie_word_embeddings": "tie_embedding_weights",
        },
        {
            "relative_attention_num_buckets": 32,
            "relative_attention_max_distance": 128,
        },
        T5_KERAS_HUB_WEIGHTS,
        {"Seq2SeqLM": ()},
        choices={"feed_forward_proj": FEED_FORWARDS},
    ),
    tensorflow1=TensorFlow1Table(
        signs=("shared/embedding",),
        names=(
            (r"^shared/embedding$", "shared/weight"),
            (r"/block_0*(\d+)/", r"/block/\1/"),
            # Later code names sub-layers by their kinds.
            (r"/self_attention/", "/layer_000/"),
            (r"/enc_dec_attention/", "/layer_001/"),
            (r"^(encoder/.*)/dense_relu_dense/", r"\1/layer_001/"),
            (r"^(decoder/.*)/dense_relu_dense/", r"\1/layer_002/"),
            (r"/layer_0*(\d+)/", r"/layer/\1/"),
            (r"/rms_norm/", "/layer_norm/"),
            (r"^(encoder|decoder)/layer_norm/", r"\1/final_layer_norm/"),
            (r"/scale$", "/weight"),
            (r"Attention/(q|k|v|o|relative_attention_bias)$", r"Attention/\1/weight"),
            (r"^decoder/logits/", "lm_head/"),
        ),
        kernels=r"/(kernel|q|k|v|o|relative_attention_bias)$",
        gin=True,
    ),
)
