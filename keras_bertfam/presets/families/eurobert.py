"""EuroBERT's record."""

import dataclasses
import math
from typing import Any

from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import HeadStyle, Layout, size
from keras_bertfam.presets.families.parts.tables import (
    REQUIRED,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import ENCODER_ARGUMENTS
from keras_bertfam.presets.families.parts.weight_maps import (
    GROUPED,
    WeightMap,
    dense,
    same,
)

_POOLING = {"late": "eurobert", "bos": "eurobert_bos", "mean": "eurobert_mean"}


def with_one_base(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite a config with `EncoderBackbone`'s `rotary_base` and heads of keys.

    The config may be that of the release, with `rope_theta` and `clf_pooling`, or that
    of `transformers`, with `rope_parameters` and `classifier_pooling`.

    Raises:
        ValueError: for positions, pooling or dropout that no model here has.
    """
    given = config.get("rope_parameters") or {}
    form = given.get("rope_type", given.get("type", "default"))
    base = given.get("rope_theta", config.get("rope_theta", 10_000.0))
    if form != "default" or config.get("rope_scaling") is not None:
        raise ValueError(
            "Expected rotary positions of the type 'default', without scaling. "
            f"Received: rope_parameters={given!r}, "
            f"rope_scaling={config.get('rope_scaling')!r}."
        )
    number = isinstance(base, int | float) and not isinstance(base, bool)
    if not number or not 0 < base < math.inf:
        raise ValueError(f"Expected a positive 'rope_theta'. Received: {base!r}.")
    names = ("classifier_pooling", "clf_pooling")
    both = [config[name] for name in names if name in config]
    if len({*map(repr, both)}) > 1:
        raise ValueError(
            "Expected the release's 'clf_pooling' to equal 'classifier_pooling', "
            f"which is {both[0]!r}. Received: {both[1]!r}."
        )
    if config.get("hidden_dropout", 0) != 0:
        raise ValueError(
            f"Expected 'hidden_dropout' to be 0. Received: {config['hidden_dropout']}."
        )
    groups = config.get("num_key_value_heads")
    own = groups == config.get("num_attention_heads", 12)
    return {
        **config,
        "rotary_base": (float(base), float(base)),
        "num_key_value_heads": None if own else groups,
    }


def _in_transformers(config):
    """Undo `with_one_base`."""
    config = dict(config)
    del config["tie_word_embeddings"]  # read off the tensors
    bases = config.pop("rotary_base")
    if bases is None or bases[0] != bases[1]:
        raise ValueError(
            "EuroBERT of `transformers` has rotary positions of one base. "
            f"Received: rotary_base={bases!r}."
        )
    config["rope_parameters"] = {"rope_theta": bases[0], "rope_type": "default"}
    if config["num_key_value_heads"] is None:
        config["num_key_value_heads"] = config["num_attention_heads"]
    # The id of padding in the published models.
    if config["vocab_size"] <= 128_001:
        config["pad_token_id"] = None
    return config


_ARGUMENTS = {
    "activation": "silu",
    "gated": True,
    "use_bias": False,
    "norm": "plain_rms",
    "norm_first": True,
    "embedding_norm": False,
    "dropout": 0.0,
}

# The settings are the defaults of the code, which has no number of rows. ModernBERT's
# steps of 4.7 M tokens are taken, by which 5 T tokens are these steps.
_ANNEALING = PretrainingRecipe(
    task="MaskedLM",
    source="Boizard et al., 2025, the annealing phase; Nicolas-BZRD/EuroBERT, docs",
    learning_rate=1e-4,
    warmup_steps=0,
    total_steps=42_400,
    batch_size=576,
    sequence_length=8192,
    schedule_form="cosine",
    weight_decay=0.1,
    beta_2=0.95,
    epsilon=1e-5,
    masking={
        "mask_selection_rate": 0.1,
        "mask_token_rate": 1.0,
        "random_token_rate": 0.0,
    },
    backbone_arguments={"rotary_base": (250_000.0, 250_000.0)},
)
_PRETRAINING = dataclasses.replace(
    _ANNEALING,
    source="Boizard et al., 2025; Nicolas-BZRD/EuroBERT, docs/trainer.md",
    warmup_steps=10_170,
    total_steps=1_017_000,
    batch_size=2304,
    sequence_length=2048,
    schedule_form="stable",
    masking={**_ANNEALING.masking, "mask_selection_rate": 0.5},
    backbone_arguments={"rotary_base": (10_000.0, 10_000.0)},
    phases=(_ANNEALING,),
)

_STYLE = HeadStyle("eurobert", activation="gelu", dropout=0.0, token="late")
_ATTENTION = "encoder.attention_layers.{layer}"
_FEED_FORWARD = "encoder.feedforward_layers.{layer}"
_QKV = tuple(f"layers.{{layer}}.self_attn.{part}_proj.weight" for part in "qkv")


def _size(name, *shape, **arguments):
    return size(
        128_256,
        *shape,
        source=f"EuroBERT/EuroBERT-{name}",
        tokenizer="tokenizer_json",
        **arguments,
    )


EUROBERT = BERT.derived(
    "eurobert",
    "EuroBertBackbone",
    license="Apache-2.0",
    tokenizer="byte_pair",
    tokenizer_class="EuroBertTokenizer",
    layout=Layout("eurobert", start_token="<|begin_of_text|>"),
    head_style=_STYLE,
    other_styles=(
        dataclasses.replace(_STYLE, name="eurobert_bos", token="first"),
        dataclasses.replace(_STYLE, name="eurobert_mean", token="mean"),
    ),
    token_head="table",
    arguments={
        **_ARGUMENTS,
        "layer_norm_epsilon": 1e-5,
        "rotary_base": (250_000.0, 250_000.0),
        "attention_dropout": 0.0,
        "max_sequence_length": 8192,
        "tie_embeddings": False,
    },
    sizes={
        "eurobert_210m_multi": _size("210m", 12, 768),
        "eurobert_610m_multi": _size(
            "610m", 26, 1152, 18, intermediate_dim=4096, num_key_value_heads=6
        ),
        "eurobert_2.1b_multi": _size(
            "2.1B", 32, 2304, 18, intermediate_dim=6144, num_key_value_heads=6
        ),
    },
    pretraining={"": _PRETRAINING},
    fine_tuning={"": FineTuningRecipe(source="of BERT: Devlin et al., 2018, A.3")},
    transformers=TransformersTable(
        title="EuroBert",
        prefix="model",
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "num_hidden_layers", 12),
            ("num_heads", "num_attention_heads", 12),
            ("num_key_value_heads", "num_key_value_heads", None),
            ("hidden_dim", "hidden_size", 768),
            ("head_dim", "head_dim", None),
            ("intermediate_dim", "intermediate_size", 3072),
            ("max_sequence_length", "max_position_embeddings", 8192),
            ("activation", "hidden_act", "silu"),
            ("attention_dropout", "attention_dropout", 0.0),
            ("layer_norm_epsilon", "rms_norm_eps", 1e-5),
            ("initializer_range", "initializer_range", 0.02),
            ("rotary_base", "rotary_base", REQUIRED),
        ),
        weights=(
            *same("embeddings.token_embedding.embeddings", "embed_tokens.weight"),
            WeightMap(f"{_ATTENTION}.sublayer.qkv.kernel", _QKV, GROUPED),
            *dense(
                f"{_ATTENTION}.sublayer.output_dense", "layers.{layer}.self_attn.o_proj"
            ),
            *same(f"{_ATTENTION}.norm.scale", "layers.{layer}.input_layernorm.weight"),
            *dense(
                f"{_FEED_FORWARD}.sublayer.gated_intermediate",
                "layers.{layer}.mlp.gate_proj",
                "layers.{layer}.mlp.up_proj",
            ),
            *dense(
                f"{_FEED_FORWARD}.sublayer.output_dense", "layers.{layer}.mlp.down_proj"
            ),
            *same(
                f"{_FEED_FORWARD}.norm.scale",
                "layers.{layer}.post_attention_layernorm.weight",
            ),
            *same("encoder.final_norm.scale", "norm.weight"),
        ),
        heads={
            "masked_lm": (),
            "classifier": dense("dense", "dense") + dense("logits", "classifier"),
            "token": dense("logits", "classifier"),
        },
        fixed={**ENCODER_ARGUMENTS, **_ARGUMENTS},
        required_config={"attention_bias": False, "mlp_bias": False},
        dropouts={"classifier": {}, "token": {}},
        output="lm_head.weight",
        copies={"lm_head.weight": "embed_tokens.weight"},
        constants=(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",),
        forms=(with_one_base, _in_transformers),
        styles={"classifier_pooling": _POOLING},
        other_names={"classifier_pooling": "clf_pooling"},
        also_read=("rope_theta", "hidden_dropout"),
        ties=False,
        other_layouts=("eurobert_start",),
    ),
)
