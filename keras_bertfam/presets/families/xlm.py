"""XLM's record."""

import dataclasses
from typing import Any

from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.presets.families.parts.record import HeadStyle, size
from keras_bertfam.presets.families.parts.tables import REQUIRED, TransformersTable
from keras_bertfam.presets.families.parts.transformers_weights import ENCODER_ARGUMENTS
from keras_bertfam.presets.families.parts.weight_maps import dense, norm, same
from keras_bertfam.presets.families.roberta import ROBERTA


def as_bert(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the config of an XLM with the keys of other families.

    Raises:
        ValueError: for values of a wrong type, and for two names of one size that
            differ.
    """
    config = dict(config)
    if "n_words" in config:  # in older files
        words = config.pop("n_words")
        if config.setdefault("vocab_size", words) != words:
            raise ValueError(
                "Expected 'n_words' to equal 'vocab_size', its other name. "
                f"Received: {words!r}, {config['vocab_size']!r}."
            )
    for key in ("gelu_activation", "use_lang_emb"):
        if type(config.get(key, True)) is not bool:
            raise ValueError(
                f"Expected {key!r} to be true or false. Received: {config[key]!r}."
            )
    count = config.get("n_langs", 1)
    if type(count) is not int or count < 1:
        raise ValueError(
            f"Expected 'n_langs' to be an int of at least 1. Received: {count!r}."
        )
    many = count > 1 and config.get("use_lang_emb", True)
    width = config.get("emb_dim", 2048)
    return {
        **config,
        "num_languages": count if many else 0,
        "hidden_act": "gelu" if config.get("gelu_activation", True) else "relu",
        "intermediate_size": 4 * width if type(width) is int else None,
    }


def as_xlm(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `as_bert`.

    Raises:
        ValueError: for a value for which XLM of `transformers` has no key.
    """
    config = dict(config)
    activation, inner = config.pop("hidden_act"), config.pop("intermediate_size")
    languages = config.pop("num_languages")
    # A model of one language has no table of languages.
    for name, value, fits in (
        ("activation", activation, activation in ("gelu", "relu")),
        ("intermediate_dim", inner, inner == 4 * config["emb_dim"]),
        ("num_languages", languages, languages != 1),
        ("max_sequence_length", None, config["max_position_embeddings"] is not None),
    ):
        if not fits:
            raise ValueError(
                "XLM of `transformers` has gelu or relu, an inner width of four times "
                "its own, no table of languages or one of several, and a table of "
                f"positions. Received: {name}={value!r}."
            )
    more = {"gelu_activation": activation == "gelu", "use_lang_emb": languages > 0}
    return {**config, **more, "n_langs": languages or 1}


_LAYER, _FFN = "attentions.{layer}", "ffns.{layer}"
_ATTENTION = "encoder.attention_layers.{layer}"
_FEED_FORWARD = "encoder.feedforward_layers.{layer}"

# The number of steps wasn't published.
_PRETRAINING = PretrainingRecipe(
    task="MaskedLM",
    source="facebookresearch/XLM, README; Conneau and Lample, 2019, section 5.1",
    learning_rate=1e-4,
    warmup_steps=4000,
    total_steps=None,
    batch_size=64,
    sequence_length=256,
    schedule_form="inverse_sqrt",
    beta_2=0.98,
    epsilon=1e-8,
    global_clipnorm=5.0,
    weight_decay=0.0,
    masking={
        "mask_selection_rate": 0.15,
        "mask_special_tokens": True,
        "random_special_tokens": True,
    },
    mix_exponent=0.7,
)
_ENGLISH = dataclasses.replace(
    _PRETRAINING,
    source="facebookresearch/XLM, README, 2019",
    warmup_steps=30_000,
    beta_2=0.999,
    epsilon=1e-6,
    weight_decay=0.01,
    mix_exponent=None,
)


def _of_fifteen(source):
    return size(95000, 12, 1024, 8, source=source, num_languages=15)


XLM = ROBERTA.derived(
    "xlm",
    "XlmBackbone",
    license="CC-BY-NC-4.0",
    head_style=HeadStyle("xlm", activation=None),
    token_head="bias",
    arguments={"truncated_initializer": False},
    sizes={
        "xlm_mlm_tlm_1024_multi": _of_fifteen("FacebookAI/xlm-mlm-tlm-xnli15-1024"),
        "xlm_mlm_1024_multi": _of_fifteen("FacebookAI/xlm-mlm-xnli15-1024"),
        "xlm_mlm_2048_en": size(
            30145, 12, 2048, 16, source="FacebookAI/xlm-mlm-en-2048"
        ),
    },
    pretraining={"": _PRETRAINING, "xlm_mlm_2048_en": _ENGLISH},
    transformers=TransformersTable(
        title="XLM",
        prefix="transformer",
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "n_layers", 12),
            ("num_heads", "n_heads", 16),
            ("hidden_dim", "emb_dim", 2048),
            ("intermediate_dim", "intermediate_size", REQUIRED),
            ("max_sequence_length", "max_position_embeddings", 512),
            ("num_languages", "num_languages", 0),
            ("activation", "hidden_act", "gelu"),
            ("dropout", "dropout", 0.1),
            ("attention_dropout", "attention_dropout", 0.1),
            ("layer_norm_epsilon", "layer_norm_eps", 1e-12),
            ("initializer_range", "init_std", 0.02),
        ),
        weights=(
            *same("embeddings.token_embedding.embeddings", "embeddings.weight"),
            *same("embeddings.position_table", "position_embeddings.weight"),
            *same("embeddings.language_table", "lang_embeddings.weight"),
            *norm("embeddings.norm", "layer_norm_emb"),
            *dense(f"{_ATTENTION}.sublayer.qkv", *(f"{_LAYER}.{n}_lin" for n in "qkv")),
            *dense(f"{_ATTENTION}.sublayer.output_dense", f"{_LAYER}.out_lin"),
            *norm(f"{_ATTENTION}.norm", "layer_norm1.{layer}"),
            *dense(f"{_FEED_FORWARD}.sublayer.intermediate", f"{_FFN}.lin1"),
            *dense(f"{_FEED_FORWARD}.sublayer.output_dense", f"{_FFN}.lin2"),
            *norm(f"{_FEED_FORWARD}.norm", "layer_norm2.{layer}"),
        ),
        heads={
            "masked_lm": same("bias", "pred_layer.proj.bias"),
            "classifier": dense("logits", "sequence_summary.summary"),
            "token": dense("logits", "classifier"),
        },
        fixed=ENCODER_ARGUMENTS,
        required_config={"causal": False, "asm": False, "is_encoder": True},
        endings={"ForMaskedLM": "WithLMHeadModel"},
        dropouts={
            "classifier": {"summary_first_dropout": 0.1},
            "token": {"dropout": 0.1},
        },
        required_heads={
            "classifier": {
                "summary_type": ("first",),
                "summary_use_proj": (True,),
                "summary_proj_to_labels": (True,),
                "summary_activation": (None,),
                "summary_last_dropout": (None, 0, 0.1),
            }
        },
        output="pred_layer.proj.weight",
        copies={"pred_layer.proj.weight": "embeddings.weight"},
        constants=("position_ids",),
        forms=(as_bert, as_xlm),
        signs=("emb_dim", "n_langs"),
        no_tokenizer=(
            "XLM's tokenizer splits words by the rules of Moses, and by other "
            "libraries for Chinese, Thai and Japanese. Make ids with `XLMTokenizer` "
            "of `transformers` and pass them as `token_ids`, or pre-train with a "
            "tokenizer of your own."
        ),
    ),
)
