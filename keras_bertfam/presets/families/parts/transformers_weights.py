"""Weight maps and arguments for the tables of BERT-like families."""

from collections.abc import Sequence
from typing import Any

from keras_bertfam.presets.families.parts.tables import REQUIRED, ConfigEntries
from keras_bertfam.presets.families.parts.weight_maps import (
    POSITIONS,
    WeightMap,
    WeightMaps,
    dense,
    norm,
    same,
)


def embedding_weights(segments: bool = True, normalised: bool = True) -> WeightMaps:
    at = "embeddings"
    positions, types = f"{at}.position_embeddings.weight", f"{at}.token_type_embeddings"
    table = f"{at}.position_table"
    weights = same(f"{at}.token_embedding.embeddings", f"{at}.word_embeddings.weight")
    if segments:
        weights += (
            *same(table, positions, segments=True),
            *same(f"{at}.segment_table", f"{types}.weight", segments=True),
            WeightMap(table, (positions, f"{types}.weight"), POSITIONS, segments=False),
        )
    else:
        weights += same(table, positions)
    return weights + (norm(f"{at}.norm", f"{at}.LayerNorm") if normalised else ())


def block_weights(
    at: str,
    qkv: Sequence[str],
    attention: str,
    attention_norm: str,
    intermediate: str,
    output: str,
    output_norm: str,
    stack: str = "encoder",
) -> WeightMaps:
    """Map the weights of a block, given the names of its parts in `transformers`."""
    first, second = f"{stack}.attention_layers", f"{stack}.feedforward_layers"
    first, second = f"{first}.{{layer}}", f"{second}.{{layer}}"
    return (
        *dense(f"{first}.sublayer.qkv", *(f"{at}.{name}" for name in qkv)),
        *dense(f"{first}.sublayer.output_dense", f"{at}.{attention}"),
        *norm(f"{first}.norm", f"{at}.{attention_norm}"),
        *dense(f"{second}.sublayer.intermediate", f"{at}.{intermediate}"),
        *dense(f"{second}.sublayer.output_dense", f"{at}.{output}"),
        *norm(f"{second}.norm", f"{at}.{output_norm}"),
    )


BERT_BLOCKS = block_weights(
    "encoder.layer.{layer}",
    [f"attention.self.{part}" for part in ("query", "key", "value")],
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
BERT_WEIGHTS = embedding_weights() + BERT_BLOCKS
POOLER = dense("pooler.dense", "pooler.dense", required=False)


def label_heads(
    logits: str,
    dense_name: str | None = None,
    choice_dense: str | None = None,
    choice: str = "classifier",
) -> dict[str, WeightMaps]:
    """Map the heads of fine-tuning, given the names of their layers.

    Args:
        logits: str. The logits of a sequence.
        dense_name: str or `None`. The dense layer before them.
        choice_dense: str or `None`. The dense layer before the logits of a choice.
        choice: str. The logits of a choice.
    """

    def summary(first, last):
        return (dense("dense", first) if first else ()) + dense("logits", last)

    return {
        "classifier": summary(dense_name, logits),
        "choice": summary(choice_dense, choice),
        "token": dense("logits", "classifier"),
        "span": dense("logits", "qa_outputs"),
    }


def masked_lm_head(dense_name: str, norm_name: str, bias_name: str) -> WeightMaps:
    return (
        *dense("dense", dense_name),
        *norm("norm", norm_name),
        *same("bias", bias_name),
    )


def span_boundary_head(at: str) -> WeightMaps:
    layers = f"{at}.mlp_layer_norm"
    return (
        *same("position_table", f"{at}.position_embeddings.weight"),
        *dense("joining_dense", f"{layers}.linear1"),
        *norm("joining_norm", f"{layers}.layer_norm1"),
        *masked_lm_head(f"{layers}.linear2", f"{layers}.layer_norm2", f"{at}.bias"),
    )


BERT_CONFIG = (
    ("vocabulary_size", "vocab_size", REQUIRED),
    ("num_layers", "num_hidden_layers", REQUIRED),
    ("num_heads", "num_attention_heads", REQUIRED),
    ("hidden_dim", "hidden_size", REQUIRED),
    ("intermediate_dim", "intermediate_size", REQUIRED),
    ("max_sequence_length", "max_position_embeddings", 512),
    ("num_segments", "type_vocab_size", 2),
    ("activation", "hidden_act", "gelu"),
    ("dropout", "hidden_dropout_prob", 0.1),
    ("attention_dropout", "attention_probs_dropout_prob", 0.1),
    ("layer_norm_epsilon", "layer_norm_eps", 1e-12),
    ("initializer_range", "initializer_range", 0.02),
)


def with_defaults(config: ConfigEntries, **defaults: Any) -> ConfigEntries:
    """Replace what missing keys of a config stand for, by our arguments' names."""
    return tuple(
        (ours, theirs, defaults.get(ours, default)) for ours, theirs, default in config
    )


DROPOUT = {"classifier_dropout": None, "hidden_dropout_prob": 0.1}
ALBERT_DROPOUT = {"classifier_dropout_prob": 0.1, "hidden_dropout_prob": 0.0}
# Arguments of the trunk that have the same values in all BERT-like encoders.
_PLAIN_ARGUMENTS = {
    "head_dim": None,
    "causal": False,
    "cross_attention": False,
    "embedding_norm": True,
    "norm": "layer",
    "use_bias": True,
    "gated": False,
    "attention_scale": None,
    "activation_dropout": 0.0,
    "output_dropout": 0.0,
    "relative_buckets": 0,
    "relative_distance": 128,
    "tie_embeddings": True,
}
ENCODER_ARGUMENTS = {
    **_PLAIN_ARGUMENTS,
    "norm_bias": True,
    "first_norm": True,
    "rotary_base": None,
    "attention_window": None,
    "attention_dilation": None,
    "max_global_tokens": 0,
    "embedding_dim": None,
    "position_offset": 0,
    "num_segments": 0,
    "share": "none",
    "num_groups": 1,
    "norm_first": False,
    "disentangled": None,
    "convolution": 0,
    "num_languages": 0,
    "num_key_value_heads": None,
}
DECODER_ARGUMENTS = {**ENCODER_ARGUMENTS, "causal": True, "embedding_norm": False}
# Arguments of `EncoderDecoderBackbone`, which sets `causal` and `cross_attention`.
_BOTH_HALVES = {**_PLAIN_ARGUMENTS, "norm_first": False, "scale_outputs": False}
SEQ2SEQ_ARGUMENTS = {
    name: value
    for name, value in _BOTH_HALVES.items()
    if name not in ("causal", "cross_attention")
}
NO_DECODER = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
}
