"""ModernBERT's record."""

import dataclasses
import math
from typing import Any

from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import (
    Family,
    HeadStyle,
    Layout,
    PublishedSize,
    size,
)
from keras_bertfam.presets.families.parts.tables import (
    REQUIRED,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import ENCODER_ARGUMENTS
from keras_bertfam.presets.families.parts.weight_maps import (
    WeightMaps,
    dense,
    norm,
    same,
)

_FULL, _SLIDING = "full_attention", "sliding_attention"
_BASES = {_FULL: 160_000.0, _SLIDING: 10_000.0}


def with_values_by_layer(config: dict[str, Any], less: int = 0) -> dict[str, Any]:
    """Rewrite a config with `EncoderBackbone`'s `attention_window` and `rotary_base`.

    The config may have the older form, with `global_attn_every_n_layers` and two bases,
    or the newer one, with `layer_types` and `rope_parameters`.

    Args:
        config: dict.
        less: int. On each side a token sees this many tokens fewer than half of
            `local_attention`.

    Raises:
        ValueError: for layers or positions that no model here has.
    """
    count = config.get("num_hidden_layers", 22)
    types = config.get("layer_types")
    if types is None:
        every = config.get("global_attn_every_n_layers", 3)
        types = [_SLIDING if layer % every else _FULL for layer in range(count)]
    if len(types) != count or not {*types} <= {_FULL, _SLIDING}:
        raise ValueError(
            f"Expected 'layer_types' to be {count} of {_FULL!r} and {_SLIDING!r}. "
            f"Received: {types!r}."
        )
    window = config.get("local_attention", 128)
    least = 2 + 2 * less
    if type(window) is not int or window < least:
        raise ValueError(
            f"Expected 'local_attention' to be an int of at least {least}. "
            f"Received: {window!r}."
        )
    near = (window // 2 - less) * 2
    # `transformers` takes it in the place of `local_attention`, and writes both.
    each_side = config.get("sliding_window")
    if each_side is not None:
        if type(each_side) is not int or each_side < 1 + less:
            raise ValueError(
                f"Expected 'sliding_window' to be an int of at least {1 + less}. "
                f"Received: {each_side!r}."
            )
        near = (each_side - less) * 2
    windows = [near if kind == _SLIDING else 0 for kind in types]
    bases = _bases(config)
    return {
        **config,
        "attention_window": tuple(windows) if any(windows) else None,
        "rotary_base": (bases[_FULL], bases[_SLIDING]),
    }


def _bases(config):
    given = config.get("rope_parameters") or {}
    old = {_FULL: "global_rope_theta", _SLIDING: "local_rope_theta"}
    bases = {}
    for kind, name in old.items():
        rope = given.get(kind) or {}
        form = rope.get("rope_type", rope.get("type", "default"))
        base = rope.get("rope_theta", config.get(name) or _BASES[kind])
        number = isinstance(base, int | float) and not isinstance(base, bool)
        if form != "default" or config.get("rope_scaling") is not None:
            raise ValueError(
                "Expected rotary positions of the type 'default', without scaling. "
                f"Received: rope_parameters={given!r}."
            )
        if not number or not 0 < base < math.inf:
            raise ValueError(f"Expected a positive {name!r}. Received: {base!r}.")
        bases[kind] = float(base)
    return bases


def as_in_transformers(config: dict[str, Any], less: int = 0) -> dict[str, Any]:
    """Undo `with_values_by_layer`.

    Raises:
        ValueError: for windows of several lengths, and for positions that aren't
            rotary.
    """
    config = dict(config)
    windows, bases = config.pop("attention_window"), config.pop("rotary_base")
    windows = windows or (0,) * config["num_hidden_layers"]
    lengths = {window for window in windows if window} or {128 - 2 * less}
    if len(lengths) > 1 or bases is None:
        raise ValueError(
            "ModernBERT of `transformers` has rotary positions, and windows of one "
            f"length. Received: rotary_base={bases!r}, attention_window={windows!r}."
        )
    rope = zip((_FULL, _SLIDING), bases, strict=True)
    config |= {
        "local_attention": lengths.pop() + 2 * less,
        "layer_types": [_SLIDING if window else _FULL for window in windows],
        "rope_parameters": {
            kind: {"rope_theta": base, "rope_type": "default"} for kind, base in rope
        },
    }
    # The id of padding in the published models.
    if config["vocab_size"] <= 50283:
        config["pad_token_id"] = None
    return config


# Section 2.1, except vocabulary, sizes and windows.
_ARGUMENTS = {
    "activation": "gelu",
    "gated": True,
    "use_bias": False,
    "norm_bias": False,
    "norm_first": True,
    "first_norm": False,
    "layer_norm_epsilon": 1e-5,
    "dropout": 0.0,
}


def _size(*shape: int, intermediate_dim: int, source: str) -> PublishedSize:
    return size(
        50368,
        *shape,
        intermediate_dim=intermediate_dim,
        source=f"answerdotai/ModernBERT-{source}",
        tokenizer="tokenizer_json",
    )


# Section 2.2 and its tables. Rows have 1,024 tokens first, with one base; then they
# have 8,192 tokens, with another base in the layers that see all tokens. A step has
# 4.7 M tokens in both phases. The published decay, 1e-5, is an update's at the peak
# rate. The optimizer bounds updates, so gradients aren't clipped.
_LONG = PretrainingRecipe(
    task="MaskedLM",
    source="Warner et al., 2024, section 2.2: 250 B tokens, and 50 B of the decay",
    learning_rate=3e-4,
    warmup_steps=0,
    total_steps=63_600,
    batch_size=576,
    sequence_length=8192,
    optimizer="stable_adamw",
    schedule_form="stable",
    decay_steps=10_600,
    weight_decay=1e-5 / 3e-4,
    beta_2=0.98,
    global_clipnorm=None,
    masking={"mask_selection_rate": 0.3},
    backbone_arguments={"rotary_base": (160_000.0, 10_000.0)},
)
_PRETRAINING = dataclasses.replace(
    _LONG,
    source="Warner et al., 2024, section 2.2: 1.7 T tokens of rows of 1,024",
    learning_rate=8e-4,
    weight_decay=1e-5 / 8e-4,
    warmup_steps=640,
    total_steps=360_000,
    batch_size=4608,
    sequence_length=1024,
    decay_steps=0,
    backbone_arguments={"rotary_base": (10_000.0, 10_000.0)},
    phases=(_LONG,),
)

_HEAD = dense("dense", "head.dense") + norm("norm", "head.norm")
_LABELS = _HEAD + dense("logits", "classifier")
_ATTENTION = "encoder.attention_layers.{layer}"
_FEED_FORWARD = "encoder.feedforward_layers.{layer}"
_WEIGHTS: WeightMaps = (
    *same("embeddings.token_embedding.embeddings", "embeddings.tok_embeddings.weight"),
    *norm("embeddings.norm", "embeddings.norm"),
    *dense(f"{_ATTENTION}.sublayer.qkv", "layers.{layer}.attn.Wqkv"),
    *dense(f"{_ATTENTION}.sublayer.output_dense", "layers.{layer}.attn.Wo"),
    *norm(f"{_ATTENTION}.norm", "layers.{layer}.attn_norm"),
    *dense(f"{_FEED_FORWARD}.sublayer.gated_intermediate", "layers.{layer}.mlp.Wi"),
    *dense(f"{_FEED_FORWARD}.sublayer.output_dense", "layers.{layer}.mlp.Wo"),
    *norm(f"{_FEED_FORWARD}.norm", "layers.{layer}.mlp_norm"),
    *norm("encoder.final_norm", "final_norm"),
)
_STYLE = HeadStyle("modernbert", activation="gelu", dropout=0.0, norm=True, tokens=True)

MODERNBERT = Family(
    name="modernbert",
    backbone="ModernBertBackbone",
    license="Apache-2.0",
    tokenizer="byte_pair",
    tokenizer_class="ModernBertTokenizer",
    layout=Layout("bert", start_token="[CLS]"),
    head_style=_STYLE,
    other_styles=(dataclasses.replace(_STYLE, name="modernbert_mean", token="mean"),),
    arguments={
        **_ARGUMENTS,
        "max_sequence_length": 8192,
        "attention_window": (0, 128, 128),
        "rotary_base": (160_000.0, 10_000.0),
    },
    sizes={
        "modernbert_base_en": _size(22, 768, intermediate_dim=1152, source="base"),
        "modernbert_large_en": _size(28, 1024, intermediate_dim=2624, source="large"),
    },
    pretraining={"": _PRETRAINING},
    fine_tuning={
        "": FineTuningRecipe(
            (1e-5, 3e-5, 5e-5, 8e-5),
            weight_decay=1e-5,
            source="Warner et al., 2024, appendix on GLUE: rates and weight decay",
        )
    },
    transformers=TransformersTable(
        title="ModernBert",
        prefix="model",
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "num_hidden_layers", 22),
            ("num_heads", "num_attention_heads", 12),
            ("hidden_dim", "hidden_size", 768),
            ("intermediate_dim", "intermediate_size", 1152),
            ("max_sequence_length", "max_position_embeddings", 8192),
            ("activation", "hidden_activation", "gelu"),
            ("dropout", "embedding_dropout", 0.0),
            ("attention_dropout", "attention_dropout", 0.0),
            ("activation_dropout", "mlp_dropout", 0.0),
            ("layer_norm_epsilon", "norm_eps", 1e-5),
            ("initializer_range", "initializer_range", 0.02),
            ("attention_window", "attention_window", REQUIRED),
            ("rotary_base", "rotary_base", REQUIRED),
        ),
        weights=_WEIGHTS,
        heads={
            "masked_lm": _HEAD + same("bias", "decoder.bias"),
            "classifier": _LABELS,
            "choice": _LABELS,
            "token": _LABELS,
            "span": _LABELS,
        },
        fixed={**ENCODER_ARGUMENTS, **_ARGUMENTS},
        required_config={
            "norm_bias": False,
            "attention_bias": False,
            "mlp_bias": False,
            "classifier_bias": False,
            "decoder_bias": True,
            "classifier_activation": "gelu",
        },
        head_activation="gelu",
        dropouts=dict.fromkeys(
            ("classifier", "token", "choice"), {"classifier_dropout": 0.0}
        ),
        output="decoder.weight",
        copies={"decoder.weight": "embeddings.tok_embeddings.weight"},
        forms=(with_values_by_layer, as_in_transformers),
        styles={"classifier_pooling": {"cls": "modernbert", "mean": "modernbert_mean"}},
    ),
)
