"""Weight maps for the tables of GPT-like families."""

import dataclasses

from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.tables import REQUIRED
from keras_bertfam.presets.families.parts.weight_maps import (
    WeightMap,
    WeightMaps,
    norm,
    same,
)


def beside(ours: str, theirs: str) -> WeightMaps:
    """Map a dense layer to one of GPT's, whose kernels are `(inputs, outputs)`."""
    return (
        *same(f"{ours}.kernel", f"{theirs}.weight"),
        *same(f"{ours}.bias", f"{theirs}.bias"),
    )


def decoder_weights(tokens: str, positions: str) -> WeightMaps:
    """Map the weights of GPT and GPT-2, given the names of their two tables."""
    attention = "encoder.attention_layers.{layer}"
    feedforward = "encoder.feedforward_layers.{layer}"
    at = "h.{layer}"
    return (
        *same("embeddings.token_embedding.embeddings", f"{tokens}.weight"),
        *same("embeddings.position_table", f"{positions}.weight"),
        *beside(f"{attention}.sublayer.qkv", f"{at}.attn.c_attn"),
        *beside(f"{attention}.sublayer.output_dense", f"{at}.attn.c_proj"),
        *norm(f"{attention}.norm", f"{at}.ln_1"),
        *beside(f"{feedforward}.sublayer.intermediate", f"{at}.mlp.c_fc"),
        *beside(f"{feedforward}.sublayer.output_dense", f"{at}.mlp.c_proj"),
        *norm(f"{feedforward}.norm", f"{at}.ln_2"),
        *norm("encoder.final_norm", "ln_f"),
    )


def decoder_config(activation: str, usual: str, positions: int) -> tuple:
    """Map the arguments that GPT and GPT-2 share to keys of a config.

    Args:
        activation: str. The key of the activation.
        usual: str. The activation of a config without this key.
        positions: int. The positions of a config without `n_positions`.
    """
    return (
        ("vocabulary_size", "vocab_size", REQUIRED),
        ("num_layers", "n_layer", REQUIRED),
        ("num_heads", "n_head", REQUIRED),
        ("hidden_dim", "n_embd", REQUIRED),
        ("max_sequence_length", "n_positions", positions),
        ("activation", activation, usual),
        ("dropout", "resid_pdrop", 0.1),
        ("dropout", "embd_pdrop", 0.1),
        ("attention_dropout", "attn_pdrop", 0.1),
        ("layer_norm_epsilon", "layer_norm_epsilon", 1e-5),
        ("initializer_range", "initializer_range", 0.02),
    )


def _plain(ours, theirs):
    """Map a dense layer of KerasHub to one of GPT's: both are `(inputs, outputs)`."""
    weights = keras_hub.dense(ours, theirs)
    return tuple(
        dataclasses.replace(weight, transform=keras_hub.SAME) for weight in weights
    )


def _third(attention, at, part, number, ours, theirs):
    """Map a third of a tensor to a variable of KerasHub that has an axis for heads."""
    name = f"{at}.attn.c_attn.{theirs}[{number}]"
    return WeightMap(f"{attention}/{part}/{ours}", (name,), keras_hub.PARTS)


def _keras_hub_weights():
    ours, at = "transformer_layer_{layer}", "h.{layer}"
    attention, output = f"{ours}/self_attention", f"{at}.attn.c_proj"
    ours_output = f"{attention}/attention_output"
    return (
        WeightMap("token_embedding/embeddings", ("wte.weight",), keras_hub.SAME),
        WeightMap("position_embedding/embeddings", ("wpe.weight",), keras_hub.SAME),
        *(
            _third(attention, at, part, number, *names)
            for number, part in enumerate(("query", "key", "value"))
            for names in (("kernel", "weight"), ("bias", "bias"))
        ),
        WeightMap(f"{ours_output}/kernel", (f"{output}.weight",), keras_hub.PARTS_OUT),
        WeightMap(f"{ours_output}/bias", (f"{output}.bias",), keras_hub.SAME),
        *keras_hub.norm(f"{ours}/self_attention_layer_norm", f"{at}.ln_1"),
        *_plain(f"{ours}/feedforward_intermediate_dense", f"{at}.mlp.c_fc"),
        *_plain(f"{ours}/feedforward_output_dense", f"{at}.mlp.c_proj"),
        *keras_hub.norm(f"{ours}/feedforward_layer_norm", f"{at}.ln_2"),
        *keras_hub.norm("layer_norm", "ln_f"),
    )


KERAS_HUB_WEIGHTS = _keras_hub_weights()
