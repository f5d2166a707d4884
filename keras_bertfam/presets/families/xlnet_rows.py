"""XLNet's weight maps: its attention has weights of other names and shapes."""

from keras_bertfam.presets.families import keras_hub_rows as keras_hub
from keras_bertfam.presets.families.rows import (
    FIRST,
    HEADS,
    HEADS_OUT,
    STACKED,
    WeightMap,
    dense,
    norm,
    same,
)

_BLOCK, _LAYER = "encoder.blocks.{layer}", "layer.{layer}"
TRANSFORMERS_WEIGHTS = (
    *same("token_embedding.embeddings", "word_embedding.weight"),
    # Code that never ran the query stream, as fine-tuning, has no state for it.
    WeightMap("query_embedding.embeddings", ("mask_emb",), FIRST, required=False),
    # One for all layers in TensorFlow 1 with `untie_r` false.
    WeightMap(
        "encoder.biases",
        tuple(f"r_{kind}_bias" for kind in "wrs"),
        STACKED,
        required=False,
    ),
    WeightMap(
        f"{_BLOCK}.attention.sublayer.query.kernel", (f"{_LAYER}.rel_attn.q",), HEADS
    ),
    WeightMap(
        f"{_BLOCK}.attention.sublayer.key_value.kernel",
        (f"{_LAYER}.rel_attn.k", f"{_LAYER}.rel_attn.v"),
        HEADS,
    ),
    WeightMap(
        f"{_BLOCK}.attention.sublayer.relative.kernel",
        (f"{_LAYER}.rel_attn.r",),
        HEADS,
    ),
    WeightMap(
        f"{_BLOCK}.attention.sublayer.output_dense.kernel",
        (f"{_LAYER}.rel_attn.o",),
        HEADS_OUT,
    ),
    WeightMap(
        f"{_BLOCK}.attention.sublayer.biases",
        tuple(f"{_LAYER}.rel_attn.r_{kind}_bias" for kind in "wrs"),
        STACKED,
    ),
    *same(f"{_BLOCK}.attention.sublayer.segments", f"{_LAYER}.rel_attn.seg_embed"),
    *norm(f"{_BLOCK}.attention.norm", f"{_LAYER}.rel_attn.layer_norm"),
    *dense(
        f"{_BLOCK}.feedforward.sublayer.intermediate",
        f"{_LAYER}.ff.layer_1",
    ),
    *dense(
        f"{_BLOCK}.feedforward.sublayer.output_dense",
        f"{_LAYER}.ff.layer_2",
    ),
    *norm(f"{_BLOCK}.feedforward.norm", f"{_LAYER}.ff.layer_norm"),
)


_THEIRS = "xlnet_encoder_{layer}"
KERAS_HUB_WEIGHTS = (
    *(
        WeightMap(ours, (theirs,), keras_hub.SAME)
        for ours, theirs in (
            (
                "content_query_embedding/word_embedding/embeddings",
                "word_embedding.weight",
            ),
            ("encoder_block_attn_mask_layer/mask_emb", "mask_emb"),
            (f"{_THEIRS}/rel_attn/query/kernel", f"{_LAYER}.rel_attn.q"),
            (f"{_THEIRS}/rel_attn/key/kernel", f"{_LAYER}.rel_attn.k"),
            (f"{_THEIRS}/rel_attn/value/kernel", f"{_LAYER}.rel_attn.v"),
            (f"{_THEIRS}/rel_attn/encoding/kernel", f"{_LAYER}.rel_attn.r"),
            (f"{_THEIRS}/rel_attn/attention_output/kernel", f"{_LAYER}.rel_attn.o"),
            (f"{_THEIRS}/content_attention_bias", f"{_LAYER}.rel_attn.r_w_bias"),
            (f"{_THEIRS}/positional_attention_bias", f"{_LAYER}.rel_attn.r_r_bias"),
            (f"{_THEIRS}/segment_attention_bias", f"{_LAYER}.rel_attn.r_s_bias"),
            (f"{_THEIRS}/segment_encoding", f"{_LAYER}.rel_attn.seg_embed"),
        )
    ),
    *keras_hub.norm(f"{_THEIRS}/layer_norm_rel_attn", f"{_LAYER}.rel_attn.layer_norm"),
    *keras_hub.norm(f"{_THEIRS}/layer_norm_ff", f"{_LAYER}.ff.layer_norm"),
    *keras_hub.dense(
        f"{_THEIRS}/feedforward_intermediate_dense", f"{_LAYER}.ff.layer_1"
    ),
    *keras_hub.dense(f"{_THEIRS}/feedforward_output_dense", f"{_LAYER}.ff.layer_2"),
)
