"""NeoBERT's record."""

import dataclasses
from typing import Any

import numpy as np

from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import size
from keras_bertfam.presets.families.parts.tables import (
    REQUIRED,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import ENCODER_ARGUMENTS
from keras_bertfam.presets.families.parts.weight_maps import (
    Transform,
    WeightMap,
    dense,
    same,
)
from keras_bertfam.presets.families.roberta import ROBERTA


def _from_pairs(arrays, heads):
    """Turn NeoBERT's joint projection into ours.

    In NeoBERT, query, key and value of each head stand beside each other, and a
    rotation takes two neighbouring dimensions. Here a rotation takes a dimension of the
    first half of a head and the same one of the second half.
    """
    (array,) = arrays
    parts = array.reshape(heads, 3, -1, array.shape[1])
    order = _halves(parts.shape[2])
    turned = (parts[:, 0, order], parts[:, 1, order], parts[:, 2])
    return np.stack(turned).reshape(array.shape).T


def _to_pairs(kernel, _, backbone):
    """Undo `_from_pairs`."""
    width = len(kernel)
    query, key, value = kernel.T.reshape(3, backbone.num_heads, -1, width)
    order = np.argsort(_halves(query.shape[1]))
    parts = np.stack([query[:, order], key[:, order], value], axis=1)
    return [parts.reshape(-1, width)]


def _halves(size):
    return np.r_[0:size:2, 1:size:2]


_PAIRS = Transform(_from_pairs, _to_pairs, takes_heads=True)


def with_inner_width(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite a config with the inner width that its `intermediate_size` stands for.

    The inner width is two thirds of this size, rounded up to a multiple of 8. Logits
    have a table of their own, unless the config says that there is one table.

    Raises:
        ValueError: for a size that isn't a positive int.
    """
    inner = config.get("intermediate_size", 3072)
    if type(inner) is not int or inner < 1:
        raise ValueError(f"Expected a positive 'intermediate_size'. Received: {inner}.")
    inner = -(-(2 * inner // 3) // 8) * 8
    return {**config, "intermediate_size": inner, "tie_word_embeddings": False}


def _with_size_of_three(config):
    """Undo `with_inner_width`."""
    inner = config["intermediate_size"]
    if inner % 8:
        raise ValueError(
            "NeoBERT has an inner width that is a multiple of 8. "
            f"Received: intermediate_dim={inner}."
        )
    config = {**config, "intermediate_size": 3 * inner // 2}
    del config["tie_word_embeddings"]  # read off the tensors
    return config


_ARGUMENTS = {
    "activation": "silu",
    "gated": True,
    "use_bias": False,
    "norm": "plain_rms",
    "norm_first": True,
    "embedding_norm": False,
    "layer_norm_epsilon": 1e-5,
    "rotary_base": (10_000.0, 10_000.0),
    "dropout": 0.0,
    "attention_dropout": 0.0,
}

# A step has 2.1 M tokens: eight GPUs with 64 rows each, accumulated over four batches.
# The rate falls over 900,000 steps, and then stays the same.
_LONG = PretrainingRecipe(
    task="MaskedLM",
    source="Le Breton et al., 2025, section 3: rows of 4,096 tokens",
    learning_rate=1e-5,
    warmup_steps=0,
    total_steps=50_000,
    batch_size=512,
    sequence_length=4096,
    schedule_form="constant",
    beta_2=0.95,
    epsilon=1e-8,
    masking={
        "mask_selection_rate": 0.2,
        "mask_token_rate": 1.0,
        "random_token_rate": 0.0,
    },
)
_REST = dataclasses.replace(
    _LONG,
    source="chandar-lab/NeoBERT, conf: steps after the decay",
    total_steps=100_000,
    batch_size=2048,
    sequence_length=1024,
)
_PRETRAINING = dataclasses.replace(
    _REST,
    source="Le Breton et al., 2025, section 3; chandar-lab/NeoBERT, conf",
    learning_rate=1e-4,
    warmup_steps=2_000,
    total_steps=900_000,
    schedule_form="cosine",
    end_share=0.1,
    phases=(_REST, _LONG),
)

_LAYER = "transformer_encoder.{layer}"
_ATTENTION = "encoder.attention_layers.{layer}"
_FEED_FORWARD = "encoder.feedforward_layers.{layer}"

NEOBERT = BERT.derived(
    "neobert",
    "NeoBertBackbone",
    license="MIT",
    head_style=ROBERTA.head_style,
    token_head="bias",
    arguments={
        **_ARGUMENTS,
        "max_sequence_length": 4096,
        "tie_embeddings": False,
        "uniform_initializer": True,
    },
    sizes={
        "neobert_base_en_uncased": size(
            30522, 28, 768, intermediate_dim=2048, source="chandar-lab/NeoBERT"
        )
    },
    pretraining={"": _PRETRAINING},
    fine_tuning={"": FineTuningRecipe(source="of BERT: Devlin et al., 2018, A.3")},
    transformers=TransformersTable(
        title="NeoBERT",
        prefix="model",
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "num_hidden_layers", 28),
            ("num_heads", "num_attention_heads", 12),
            ("hidden_dim", "hidden_size", 768),
            ("intermediate_dim", "intermediate_size", REQUIRED),
            ("max_sequence_length", "max_length", 1024),
            ("layer_norm_epsilon", "norm_eps", 1e-6),
            ("initializer_range", "embedding_init_range", 0.02),
            ("initializer_range", "decoder_init_range", 0.02),
        ),
        weights=(
            *same("embeddings.token_embedding.embeddings", "encoder.weight"),
            WeightMap(
                f"{_ATTENTION}.sublayer.qkv.kernel", (f"{_LAYER}.qkv.weight",), _PAIRS
            ),
            *dense(f"{_ATTENTION}.sublayer.output_dense", f"{_LAYER}.wo"),
            *same(f"{_ATTENTION}.norm.scale", f"{_LAYER}.attention_norm.weight"),
            *dense(f"{_FEED_FORWARD}.sublayer.gated_intermediate", f"{_LAYER}.ffn.w12"),
            *dense(f"{_FEED_FORWARD}.sublayer.output_dense", f"{_LAYER}.ffn.w3"),
            *same(f"{_FEED_FORWARD}.norm.scale", f"{_LAYER}.ffn_norm.weight"),
            *same("encoder.final_norm.scale", "layer_norm.weight"),
        ),
        heads={
            "masked_lm": same("bias", "decoder.bias"),
            "classifier": dense("dense", "dense") + dense("logits", "classifier"),
        },
        fixed={**ENCODER_ARGUMENTS, **_ARGUMENTS},
        endings={"Model": "", "ForMaskedLM": "LMHead"},
        dropouts={"classifier": {"classifier_dropout": 0.1}},
        output="decoder.weight",
        copies={"decoder.weight": "encoder.weight"},
        constants=("freqs_cis",),
        forms=(with_inner_width, _with_size_of_three),
        ties=False,
    ),
)
