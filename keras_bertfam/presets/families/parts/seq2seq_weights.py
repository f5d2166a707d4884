"""Weight maps for the tables of T5 and BART."""

from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.transformers_weights import block_weights
from keras_bertfam.presets.families.parts.weight_maps import (
    WeightMap,
    WeightMaps,
    dense,
    norm,
    same,
)


def _t5_side(side: str, feedforward: int) -> WeightMaps:
    stack, at = f"{side}.encoder", f"{side}.block.{{layer}}.layer"
    attention = f"{stack}.attention_layers.{{layer}}"
    last = f"{stack}.feedforward_layers.{{layer}}"
    theirs = f"{at}.0.SelfAttention"
    inner = f"{at}.{feedforward}.DenseReluDense"
    first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        *same(f"{stack}.relative_bias.table", first),
        *dense(f"{attention}.sublayer.qkv", *(f"{theirs}.{part}" for part in "qkv")),
        *dense(f"{attention}.sublayer.output_dense", f"{theirs}.o"),
        *same(f"{attention}.norm.scale", f"{at}.0.layer_norm.weight"),
        *dense(f"{last}.sublayer.intermediate", f"{inner}.wi"),
        *dense(f"{last}.sublayer.gated_intermediate", f"{inner}.wi_0", f"{inner}.wi_1"),
        *dense(f"{last}.sublayer.output_dense", f"{inner}.wo"),
        *same(f"{last}.norm.scale", f"{at}.{feedforward}.layer_norm.weight"),
        *same(f"{stack}.final_norm.scale", f"{side}.final_layer_norm.weight"),
    )


_CROSS = "decoder.encoder.cross_attention_layers.{layer}"
_T5_CROSS = "decoder.block.{layer}.layer.1"
T5_WEIGHTS = (
    *same("token_embedding.embeddings", "shared.weight"),
    *_t5_side("encoder", 1),
    *_t5_side("decoder", 2),
    *dense(f"{_CROSS}.sublayer.query", f"{_T5_CROSS}.EncDecAttention.q"),
    *dense(
        f"{_CROSS}.sublayer.key_value",
        *(f"{_T5_CROSS}.EncDecAttention.{part}" for part in "kv"),
    ),
    *dense(f"{_CROSS}.sublayer.output_dense", f"{_T5_CROSS}.EncDecAttention.o"),
    *same(f"{_CROSS}.norm.scale", f"{_T5_CROSS}.layer_norm.weight"),
)


def _t5_keras_hub_attention(ours: str, theirs: str) -> WeightMaps:
    names = zip(("query", "key", "value", "output"), "qkvo", strict=True)
    return tuple(
        WeightMap(
            f"{ours}.{name}_projector.kernel",
            (f"{theirs}.{part}.weight",),
            keras_hub.KERNEL,
        )
        for name, part in names
    )


def _t5_keras_hub_side(side: str, feedforward: int) -> WeightMaps:
    ours = f"{side}_transformer_layers.{{layer}}"
    at = f"{side}.block.{{layer}}.layer"
    last, kernel = f"{at}.{feedforward}", keras_hub.KERNEL
    inner, first = f"{ours}.input_projector.kernel", f"{last}.DenseReluDense.wi"
    gate = f"{ours}.gate_projector.kernel"
    bias = "SelfAttention.relative_attention_bias.weight"
    return (
        *_t5_keras_hub_attention(f"{ours}.self_attention", f"{at}.0.SelfAttention"),
        WeightMap(
            f"{side}_transformer_layers.0.self_attention.relative_attention_bias",
            (f"{side}.block.0.layer.0.{bias}",),
            keras_hub.SAME,
        ),
        _t5_keras_hub_norm(f"{ours}.self_attention_layer_norm", f"{at}.0.layer_norm"),
        keras_hub.ConditionalMap(
            inner, (f"{first}.weight",), kernel, other=gate, wanted=False
        ),
        keras_hub.ConditionalMap(inner, (f"{first}_0.weight",), kernel, other=gate),
        WeightMap(gate, (f"{first}_1.weight",), kernel),
        WeightMap(
            f"{ours}.output_projector.kernel",
            (f"{last}.DenseReluDense.wo.weight",),
            kernel,
        ),
        _t5_keras_hub_norm(f"{ours}.layer_norm", f"{last}.layer_norm"),
        _t5_keras_hub_norm(f"{side}_layer_norm", f"{side}.final_layer_norm"),
    )


def _t5_keras_hub_norm(ours: str, theirs: str) -> WeightMap:
    return WeightMap(f"{ours}.weight", (f"{theirs}.weight",), keras_hub.SAME)


_T5_KERAS_HUB_BLOCK = "decoder_transformer_layers.{layer}"
T5_KERAS_HUB_WEIGHTS = (
    WeightMap("token_embedding.embeddings", ("shared.weight",), keras_hub.SAME),
    WeightMap(
        "token_embedding.reverse_embeddings", ("lm_head.weight",), keras_hub.KERNEL
    ),
    *_t5_keras_hub_side("encoder", 1),
    *_t5_keras_hub_side("decoder", 2),
    *_t5_keras_hub_attention(
        f"{_T5_KERAS_HUB_BLOCK}.cross_attention", f"{_T5_CROSS}.EncDecAttention"
    ),
    _t5_keras_hub_norm(
        f"{_T5_KERAS_HUB_BLOCK}.cross_attention_layer_norm", f"{_T5_CROSS}.layer_norm"
    ),
)


def _bart_side(side: str) -> WeightMaps:
    return (
        *same(f"{side}.embeddings.position_table", f"{side}.embed_positions.weight"),
        *norm(f"{side}.embeddings.norm", f"{side}.layernorm_embedding"),
        *block_weights(
            f"{side}.layers.{{layer}}",
            [f"self_attn.{part}_proj" for part in "qkv"],
            "self_attn.out_proj",
            "self_attn_layer_norm",
            "fc1",
            "fc2",
            "final_layer_norm",
            stack=f"{side}.encoder",
        ),
    )


_BART_CROSS = "decoder.layers.{layer}.encoder_attn"
BART_WEIGHTS = (
    *same("token_embedding.embeddings", "shared.weight"),
    *_bart_side("encoder"),
    *_bart_side("decoder"),
    *dense(f"{_CROSS}.sublayer.query", f"{_BART_CROSS}.q_proj"),
    *dense(
        f"{_CROSS}.sublayer.key_value", *(f"{_BART_CROSS}.{part}_proj" for part in "kv")
    ),
    *dense(f"{_CROSS}.sublayer.output_dense", f"{_BART_CROSS}.out_proj"),
    *norm(f"{_CROSS}.norm", f"{_BART_CROSS}_layer_norm"),
)


def _keras_hub_side(side: str, attending: str) -> WeightMaps:
    at, positions = f"{side}.layers.{{layer}}", f"{side}.embed_positions.weight"
    return (
        WeightMap(
            f"{side}_position_embedding/embeddings",
            (positions,),
            keras_hub.OFFSET_POSITIONS,
        ),
        *keras_hub.norm(f"{side}_embeddings_layer_norm", f"{side}.layernorm_embedding"),
        *keras_hub.block_weights(
            f"transformer_{side}_layer_{{layer}}",
            at,
            [f"self_attn.{part}_proj" for part in "qkv"],
            "self_attn.out_proj",
            "self_attn_layer_norm",
            "fc1",
            "fc2",
            "final_layer_norm",
            attending,
        ),
    )


_KERAS_HUB_CROSS = "transformer_decoder_layer_{layer}/cross_attention"
BART_KERAS_HUB_WEIGHTS = (
    WeightMap("token_embedding/embeddings", ("shared.weight",), keras_hub.SAME),
    *_keras_hub_side("encoder", "self_attention_layer"),
    *_keras_hub_side("decoder", "self_attention"),
    *keras_hub.attention_weights(
        _KERAS_HUB_CROSS,
        [f"{_BART_CROSS}.{part}_proj" for part in "qkv"],
        f"{_BART_CROSS}.out_proj",
    ),
    *keras_hub.norm(f"{_KERAS_HUB_CROSS}_layer_norm", f"{_BART_CROSS}_layer_norm"),
)
