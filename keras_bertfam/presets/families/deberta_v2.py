"""The record of DeBERTa's second and third versions."""

import dataclasses
from typing import Any

from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import (
    HeadStyle,
    PublishedSize,
    Variant,
    size,
)
from keras_bertfam.presets.families.parts.tables import (
    REQUIRED,
    KerasHubTable,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import (
    BERT_CONFIG,
    ENCODER_ARGUMENTS,
    block_weights,
    embedding_weights,
    label_heads,
    masked_lm_head,
)
from keras_bertfam.presets.families.parts.weight_maps import (
    Transform,
    WeightMap,
    dense,
    norm,
    same,
)

# The terms of disentangled attention in a config's `pos_att_type`.
_TERMS = {"c2p", "p2c"}


def _of_both_versions(config: dict[str, Any], rows: int | None) -> dict[str, Any]:
    """Rewrite a config's keys on positions as arguments of `EncoderBackbone`.

    Args:
        config: dict.
        rows: int, half of the rows of the table. With `None` there are as many as
            distances.

    Raises:
        ValueError: for attention without both terms, and for other positions or widths
            than models here have.
    """
    terms = config.get("pos_att_type") or []
    terms = terms.lower().split("|") if isinstance(terms, str) else terms
    if config.get("relative_attention") is not True or {*terms} != _TERMS:
        raise ValueError(
            "Expected 'relative_attention' with both terms of 'pos_att_type', 'c2p' "
            f"and 'p2c'. Received: {config.get('relative_attention')!r}, {terms!r}."
        )
    if config.get("embedding_size", config.get("hidden_size")) != config["hidden_size"]:
        raise ValueError(
            "Expected an 'embedding_size' that equals the 'hidden_size'. "
            f"Received: {config['embedding_size']!r}."
        )
    positions = config.get("max_position_embeddings", 512)
    distance = config.get("max_relative_positions", -1)
    if type(distance) is not int or distance < 1:
        distance = positions
    if type(distance) is not int:
        raise ValueError(f"Expected an int of positions. Received: {distance!r}.")
    rows = distance if rows is None else rows
    biased = config.get("position_biased_input", True)
    return {
        **config,
        "relative_buckets": 2 * rows,
        "relative_distance": distance,
        "max_sequence_length": positions if biased else None,
        "token_types": config.get("type_vocab_size", 0),
    }


def _in_transformers(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `_of_both_versions`."""
    config = dict(config)
    del config["relative_buckets"]
    longest, distance, types = (
        config.pop(name)
        for name in ("max_sequence_length", "relative_distance", "token_types")
    )
    return {
        **config,
        "type_vocab_size": types,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": longest is not None,
        "max_position_embeddings": longest or distance,
        "max_relative_positions": distance if longest not in (None, distance) else -1,
        "pooler_hidden_size": config["hidden_size"],
    }


def with_positions(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite a config of the first version with arguments of `EncoderBackbone`."""
    return _of_both_versions(config, None)


def without_positions(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `with_positions`.

    Raises:
        ValueError: for a table without a row for each distance.
    """
    if config["relative_buckets"] != 2 * config["relative_distance"]:
        raise ValueError(
            "DeBERTa of `transformers` has a row for each distance. Received: "
            f"relative_buckets={config['relative_buckets']}, "
            f"relative_distance={config['relative_distance']}."
        )
    return _in_transformers(config)


def with_buckets(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite a config of the second version with arguments of `EncoderBackbone`.

    Raises:
        ValueError: for a value that no model here has.
    """
    buckets = config.get("position_buckets", -1)
    if type(buckets) is not int:
        raise ValueError(f"Expected 'position_buckets' to be an int, not {buckets!r}.")
    ours = _of_both_versions(config, buckets if buckets > 0 else None)
    if 0 < ours["relative_distance"] <= buckets:
        raise ValueError(
            f"Expected fewer 'position_buckets' than the {ours['relative_distance']} "
            f"positions. Received: {buckets}."
        )
    width = config.get("conv_kernel_size", 0)
    if width and config.get("conv_act", "tanh") != config.get("hidden_act", "gelu"):
        raise ValueError(
            "Expected 'conv_act' to equal 'hidden_act'. "
            f"Received: {config.get('conv_act', 'tanh')!r}."
        )
    norms = str(config.get("norm_rel_ebd", "none")).lower().split("|")
    if config.get("share_att_key") is not True or "layer_norm" not in norms:
        raise ValueError(
            "Expected 'share_att_key' to be true and 'norm_rel_ebd' 'layer_norm'. "
            f"Received: {config.get('share_att_key')!r}, {norms!r}."
        )
    return {**ours, "conv_kernel_size": width}


def without_buckets(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `with_buckets`.

    Raises:
        ValueError: for a table with rows for more distances than there are.
    """
    rows, distance = config["relative_buckets"] // 2, config["relative_distance"]
    if rows > distance:
        raise ValueError(
            "DeBERTa of `transformers` has at most two rows for each distance. "
            f"Received: relative_buckets={2 * rows}, relative_distance={distance}."
        )
    return {
        **_in_transformers(config),
        "position_buckets": rows if rows < distance else -1,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "conv_act": config["hidden_act"],
    }


# `(outputs, inputs, width)`; here the neighbours' inputs are side by side.
CONVOLUTION = Transform(
    lambda arrays: arrays[0].transpose(2, 1, 0).reshape(-1, len(arrays[0])),
    lambda a, *_: [a.reshape(-1, a.shape[1], a.shape[1]).transpose(2, 1, 0)],
)
_MASKED_LM = (
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
)
HEADS: dict[str, tuple[WeightMap, ...]] = {
    "masked_lm": masked_lm_head(*_MASKED_LM),
    # `transformers` leaves this tensor out, though files have it.
    "decoder": same("table", "deberta.embeddings.position_embeddings.weight"),
    **label_heads("classifier", "pooler.dense", "pooler.dense"),
}
# The third version's head that finds replaced tokens.
_DETECTOR = (
    *norm("norm", "mask_predictions.LayerNorm"),
    *dense("dense", "mask_predictions.dense"),
    *dense("output_dense", "mask_predictions.classifier"),
)
LEFT_OUT = {
    "decoder": (
        "no enhanced mask decoder. It ignores the table of positions in this file, and "
        "predicts other tokens."
    ),
    "detector": "no head of DeBERTa that finds replaced tokens, and ignores it.",
}
# Names in the released files, and names in `transformers`.
COPIES = {
    f"lm_predictions.lm_head.{ours}": f"cls.predictions.{theirs}"
    for ours, theirs in (
        ("dense.weight", "transform.dense.weight"),
        ("dense.bias", "transform.dense.bias"),
        ("LayerNorm.weight", "transform.LayerNorm.weight"),
        ("LayerNorm.bias", "transform.LayerNorm.bias"),
        ("bias", "bias"),
    )
} | {
    # The released code spells it so.
    f"mask_predictions.classifer.{part}": f"mask_predictions.classifier.{part}"
    for part in ("weight", "bias")
}
_LABELS: dict[str, float | None] = {"cls_dropout": None, "hidden_dropout_prob": 0.1}
DROPOUTS: dict[str, dict[str, float | None]] = {
    "classifier": _LABELS,
    "choice": _LABELS,
    "token": {"hidden_dropout_prob": 0.1},
}
_POOLED = {"pooler_hidden_act": ("gelu",)}
_OWN = ("max_sequence_length", "num_segments", "layer_norm_epsilon")
CONFIG = (
    *(entry for entry in BERT_CONFIG if entry[0] not in _OWN),
    ("layer_norm_epsilon", "layer_norm_eps", 1e-7),
    ("num_segments", "token_types", REQUIRED),
    ("max_sequence_length", "max_sequence_length", None),
    ("relative_buckets", "relative_buckets", REQUIRED),
    ("relative_distance", "relative_distance", REQUIRED),
)
_FIXED = {
    name: value
    for name, value in ENCODER_ARGUMENTS.items()
    if name not in ("num_segments", "relative_buckets", "relative_distance")
}
_AT = "encoder.layer.{layer}"
_QKV = [f"attention.self.{part}_proj" for part in ("query", "key", "value")]
_PARTS = (
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
TABLE = TransformersTable(
    title="DebertaV2",
    prefix="deberta",
    config=(
        *CONFIG,
        ("head_dim", "attention_head_size", None),
        ("convolution", "conv_kernel_size", 0),
    ),
    weights=(
        *embedding_weights(segments=False),
        *same("embeddings.segment_table", "embeddings.token_type_embeddings.weight"),
        *same("encoder.relative_table.table", "encoder.rel_embeddings.weight"),
        *norm("encoder.relative_table.norm", "encoder.LayerNorm"),
        WeightMap(
            "encoder.convolution.dense.kernel",
            ("encoder.conv.conv.weight",),
            CONVOLUTION,
        ),
        *same("encoder.convolution.dense.bias", "encoder.conv.conv.bias"),
        *norm("encoder.convolution.norm", "encoder.conv.LayerNorm"),
        *block_weights(_AT, _QKV, *_PARTS),
    ),
    heads={**HEADS, "detector": _DETECTOR},
    fixed={**_FIXED, "disentangled": "shared"},
    required_config={"conv_groups": 1},
    output="cls.predictions.decoder.weight",
    copies=COPIES,
    # The differences between a discriminator's tables and its generator's. The tables
    # in the file include them.
    constants=(r"embeddings\.(word|position)_embeddings\._weight",),
    left_out=LEFT_OUT,
    dropouts=DROPOUTS,
    required_heads={"classifier": _POOLED, "choice": _POOLED},
    forms=(with_buckets, without_buckets),
)

# From the released scripts. The paper's numbers differ.
_PRETRAINING = PretrainingRecipe(
    task="ReplacedTokenDetection",
    source="He et al., 2021, microsoft/DeBERTa, experiments/language_model, deberta-v3",
    learning_rate=1e-4,
    warmup_steps=10_000,
    total_steps=1_000_000,
    batch_size=256,
    bias_correction=False,
    masking={
        "mask_selection_rate": 0.15,
        "mask_token_rate": 1.0,
        "random_token_rate": 0.0,
    },
    task_arguments={
        "generator_size": 1.0,
        "generator_depth": 0.5,
        "sharing": "gradient_disentangled",
        "discriminator_weight": 10.0,
        "add_first_token": True,
        "decoder_positions": 512,
    },
)
# The second version's.
MASKED_LM = dataclasses.replace(
    _PRETRAINING,
    task="MaskedLM",
    source="He et al., 2020, microsoft/DeBERTa, experiments/language_model, xlarge-v2",
    warmup_steps=1_000,
    batch_size=32,
    masking={"strategy": "ngram_windows", "mask_selection_rate": 0.15},
    task_arguments={"decoder_positions": 512},
)
_FINE_TUNING = FineTuningRecipe(
    batch_sizes=(16, 32, 64),
    epochs=(3,),
    source="He et al., 2021, microsoft/DeBERTa, experiments/glue",
)
# By task: the tokens of a row, the steps of the warm-up, and the number of examples.
_GLUE = {
    "mnli": (256, 1000, 392_702),
    "rte": (320, 100, 2_490),
    "cola": (64, 100, 8_551),
}


def fine_tuning(**tasks: tuple[float, int, int]) -> dict[str, FineTuningRecipe]:
    """Make the recipes of a size, by the tasks of the released scripts.

    Args:
        **tasks: the rate, the batch size and the epochs of each task.
    """
    rates = {rate for rate, _, _ in tasks.values()}
    recipes = {"": _FINE_TUNING.changed(learning_rates=(*sorted(rates, reverse=True),))}
    for task, (rate, batch_size, epochs) in tasks.items():
        length, warmup, examples = _GLUE[task]
        recipes[task] = _FINE_TUNING.fixed(
            rate,
            batch_size,
            epochs,
            sequence_length=length,
            warmup_steps=warmup * batch_size / (examples * epochs),
        )
    return recipes


# The large model's scripts have half as many steps of warm-up.
_LARGE = fine_tuning(mnli=(7e-6, 64, 2), cola=(5.5e-6, 32, 10), rte=(1e-5, 32, 6))
_VARIANTS = {
    "extra_small": Variant((384,), fine_tuning(mnli=(4.5e-5, 64, 3))),
    "small": Variant((768,), fine_tuning(mnli=(4.5e-5, 64, 2)), num_layers=6),
    "large": Variant(
        (1024,),
        {
            name: recipe.changed(warmup_steps=recipe.warmup_steps / 2)
            if name in ("mnli", "cola")
            else recipe
            for name, recipe in _LARGE.items()
        },
    ),
    "extra_extra_large": Variant(
        (1536,),
        fine_tuning(mnli=(3e-6, 64, 3), cola=(2.5e-6, 32, 10), rte=(3e-6, 48, 6)),
        num_layers=48,
    ),
    "extra_large": Variant(
        (1536,), fine_tuning(mnli=(4e-6, 64, 3), cola=(3e-6, 32, 8), rte=(4e-6, 48, 6))
    ),
}


def _size(*shape: int, source: str, **arguments: Any) -> PublishedSize:
    return size(
        *shape,
        source=f"microsoft/{source}",
        tokenizer="sentence_piece_spm",
        **arguments,
    )


_SIZES = {
    **{
        f"deberta_v3_{name}_en": _size(128100, *shape, source=f"deberta-v3-{theirs}")
        for name, theirs, shape in (
            ("extra_small", "xsmall", (12, 384)),
            ("small", "small", (6, 768)),
            ("base", "base", (12, 768)),
            ("large", "large", (24, 1024)),
        )
    },
    "deberta_v3_base_multi": _size(251000, 12, 768, source="mdeberta-v3-base"),
    "deberta_v2_extra_large_en": _size(
        128100, 24, 1536, source="deberta-v2-xlarge", convolution=3
    ),
    "deberta_v2_extra_extra_large_en": _size(
        128100, 48, 1536, source="deberta-v2-xxlarge", convolution=3
    ),
}

DEBERTA_V2 = BERT.derived(
    "deberta-v2",
    "DebertaV2Backbone",
    license="MIT",
    tokenizer="sentence_piece",
    tokenizer_class="DebertaV2Tokenizer",
    head_style=HeadStyle("deberta", activation="gelu"),
    arguments={
        "activation": "gelu",
        "layer_norm_epsilon": 1e-7,
        "max_sequence_length": None,
        "disentangled": "shared",
        "relative_buckets": 512,
        "relative_distance": 512,
    },
    sizes=_SIZES,
    pretraining={
        "": _PRETRAINING,
        "deberta_v3_extra_small_en": dataclasses.replace(
            _PRETRAINING, learning_rate=3e-4, batch_size=64
        ),
        **dict.fromkeys((name for name in _SIZES if "_v2_" in name), MASKED_LM),
    },
    fine_tuning=fine_tuning(mnli=(1.5e-5, 64, 3)),
    variants=_VARIANTS,
    transformers=TABLE,
    keras_hub=KerasHubTable(
        "DebertaV3Backbone",
        {
            **keras_hub.SIZES,
            "position_buckets": "bucket_size",
        },
        {
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-7,
            "type_vocab_size": 0,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "max_relative_positions": -1,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "conv_kernel_size": 0,
            "conv_act": "gelu",
            "conv_groups": 1,
        },
        (
            *keras_hub.TABLES[:1],
            *keras_hub.norm("embeddings_layer_norm", "embeddings.LayerNorm"),
            WeightMap(
                "rel_embedding/rel_embedding",
                ("encoder.rel_embeddings.weight",),
                keras_hub.SAME,
            ),
            *keras_hub.norm(
                "rel_embedding/rel_embeddings_layer_norm", "encoder.LayerNorm"
            ),
            *(
                dataclasses.replace(weight, transform=keras_hub.KERNEL)
                if weight.ours.endswith("attention_output/kernel")
                else weight
                for weight in keras_hub.block_weights(
                    "disentangled_attention_encoder_layer_{layer}", _AT, _QKV, *_PARTS
                )
            ),
        ),
        {
            "MaskedLM": keras_hub.masked_lm_head(*_MASKED_LM),
            "TextClassifier": keras_hub.classifier_head("classifier", "pooler.dense"),
        },
    ),
)
