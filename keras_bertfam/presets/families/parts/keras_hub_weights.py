"""Weight maps for the tables of KerasHub's backbone classes.

They lead from the paths of KerasHub's variables to names in `transformers`, and are
read in both directions. Their `join` always takes the number of heads as well.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.presets.families.parts.weight_maps import (
    VECTOR,
    Transform,
    WeightMap,
    WeightMaps,
)

# KerasHub's kernels of attention have an axis for the heads.
HEADS = Transform(
    lambda arrays, heads: arrays[0].T.reshape(arrays[0].shape[1], heads, -1),
    lambda a, *_: [a.reshape(len(a), -1).T],
)
HEADS_BIAS = Transform(
    lambda arrays, heads: arrays[0].reshape(heads, -1), lambda a, *_: [a.reshape(-1)]
)
HEADS_OUT = Transform(
    lambda arrays, heads: arrays[0].T.reshape(heads, -1, arrays[0].shape[0]),
    lambda a, *_: [a.reshape(-1, a.shape[-1]).T],
)
KERNEL = Transform(lambda arrays, _: arrays[0].T, lambda a, *_: [a.T])
SAME = Transform(lambda arrays, _: arrays[0], VECTOR.split)
# KerasHub's RoBERTa has no types of tokens, and no rows before the first position.
POSITIONS = Transform(
    lambda arrays, _: arrays[0][2:] + arrays[1][0],
    lambda a, *_: [np.pad(a, [[2, 0], [0, 0]]), np.zeros((1, a.shape[1]), a.dtype)],
)
# GPT-2's queries, keys and values, whose kernels are `(inputs, outputs)`.
PARTS = Transform(
    lambda arrays, heads: arrays[0].reshape(*arrays[0].shape[:-1], heads, -1),
    lambda a, *_: [a.reshape(*a.shape[:-2], -1)],
)
PARTS_OUT = Transform(
    lambda arrays, heads: arrays[0].reshape(heads, -1, arrays[0].shape[-1]),
    lambda a, *_: [a.reshape(-1, a.shape[-1])],
)
# KerasHub's BART has no rows before the first position.
OFFSET_POSITIONS = Transform(
    lambda arrays, _: arrays[0][2:], lambda a, *_: [np.pad(a, [[2, 0], [0, 0]])]
)


@dataclasses.dataclass(frozen=True)
class ConditionalMap(WeightMap):
    """A map that applies only if another variable exists, or only if it doesn't.

    Attributes:
        other: str. The path of the other variable.
        wanted: bool. Whether the map applies if that variable exists, or if it doesn't.
    """

    other: str = ""
    wanted: bool = True

    def at(self, layer: int) -> "ConditionalMap":
        weight, other = super().at(layer), self.other.format(layer=layer)
        return dataclasses.replace(
            self, ours=weight.ours, theirs=weight.theirs, other=other
        )


def dense(ours: str, theirs: str) -> WeightMaps:
    kernel = WeightMap(f"{ours}/kernel", (f"{theirs}.weight",), KERNEL)
    return kernel, WeightMap(f"{ours}/bias", (f"{theirs}.bias",), SAME)


def norm(ours: str, theirs: str) -> WeightMaps:
    gamma = WeightMap(f"{ours}/gamma", (f"{theirs}.weight",), SAME)
    return gamma, WeightMap(f"{ours}/beta", (f"{theirs}.bias",), SAME)


TABLES = (
    *(
        WeightMap(
            f"{ours}_embedding/embeddings", (f"embeddings.{theirs}.weight",), SAME
        )
        for ours, theirs in (
            ("token", "word_embeddings"),
            ("position", "position_embeddings"),
            ("segment", "token_type_embeddings"),
        )
    ),
    *norm("embeddings_layer_norm", "embeddings.LayerNorm"),
)


def joint_tables(layer: str, *positions: Any) -> WeightMaps:
    """Map tables of tokens and positions that are one layer, without segments."""
    words = ("embeddings.word_embeddings.weight",)
    return (
        WeightMap(f"{layer}/token_embedding/embeddings", words, SAME),
        WeightMap(f"{layer}/position_embedding/embeddings", *positions),
        *norm("embeddings_layer_norm", "embeddings.LayerNorm"),
    )


def attention_weights(ours: str, qkv: Sequence[str], output: str) -> WeightMaps:
    return (
        *(
            weight
            for part, theirs in zip(("query", "key", "value"), qkv, strict=True)
            for weight in (
                WeightMap(f"{ours}/{part}/kernel", (f"{theirs}.weight",), HEADS),
                WeightMap(f"{ours}/{part}/bias", (f"{theirs}.bias",), HEADS_BIAS),
            )
        ),
        WeightMap(f"{ours}/attention_output/kernel", (f"{output}.weight",), HEADS_OUT),
        WeightMap(f"{ours}/attention_output/bias", (f"{output}.bias",), SAME),
    )


def block_weights(
    ours: str,
    at: str,
    qkv: Sequence[str],
    attention: str,
    attention_norm: str,
    intermediate: str,
    output: str,
    last_norm: str,
    attending: str = "self_attention_layer",
) -> WeightMaps:
    return (
        *attention_weights(
            f"{ours}/{attending}",
            [f"{at}.{name}" for name in qkv],
            f"{at}.{attention}",
        ),
        *norm(f"{ours}/self_attention_layer_norm", f"{at}.{attention_norm}"),
        *dense(f"{ours}/feedforward_intermediate_dense", f"{at}.{intermediate}"),
        *dense(f"{ours}/feedforward_output_dense", f"{at}.{output}"),
        *norm(f"{ours}/feedforward_layer_norm", f"{at}.{last_norm}"),
    )


BERT_BLOCKS = block_weights(
    "transformer_layer_{layer}",
    "encoder.layer.{layer}",
    [f"attention.self.{part}" for part in ("query", "key", "value")],
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)


def masked_lm_head(dense_name: str, norm_name: str, bias: str) -> WeightMaps:
    return (
        *dense("mlm_head/intermediate_dense", dense_name),
        *norm("mlm_head/intermediate_layer_norm", norm_name),
        WeightMap("mlm_head/output_bias", (bias,), SAME),
    )


def classifier_head(output: str, pooled: str | None = None) -> WeightMaps:
    first = () if pooled is None else dense("pooled_dense", pooled)
    return (*first, *dense("logits", output))


SIZES = {
    "vocab_size": "vocabulary_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "hidden_dim",
    "intermediate_size": "intermediate_dim",
    "max_position_embeddings": "max_sequence_length",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "dropout",
}
SEGMENTS = {"type_vocab_size": "num_segments"}
FACTORS = {"embedding_size": "embedding_dim"}
TANH = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
_TANH_GELU = {
    "module": "builtins",
    "class_name": "function",
    "config": "keras_hub>gelu_approximate",
    "registered_name": "function",
}
# T5's feed-forward sub-layers by their names in `transformers`.
FEED_FORWARDS = {
    name: {"activation": activation, "use_gated_activation": name.startswith("gated-")}
    for name, activation in (
        ("relu", "relu"),
        ("gelu", "gelu"),
        ("gelu_new", _TANH_GELU),
        ("silu", "silu"),
        ("gated-relu", "relu"),
        ("gated-gelu", _TANH_GELU),
        ("gated-gelu_python", "gelu"),
        ("gated-silu", "silu"),
    )
}
