"""XLNet's rows: attention of another form has names of another form."""

from keras_bertfam.presets.rows import (
    FIRST,
    HEADS,
    HEADS_OUT,
    STACKED,
    Row,
    dense,
    norm,
    same,
)

_BLOCK, _LAYER = "encoder.blocks.{layer}", "layer.{layer}"
XLNET = (
    *same("token_embedding.embeddings", "word_embedding.weight"),
    Row("query_embedding.embeddings", ("mask_emb",), FIRST),
    Row(f"{_BLOCK}.attention.sublayer.query.kernel", (f"{_LAYER}.rel_attn.q",), HEADS),
    Row(
        f"{_BLOCK}.attention.sublayer.key_value.kernel",
        (f"{_LAYER}.rel_attn.k", f"{_LAYER}.rel_attn.v"),
        HEADS,
    ),
    Row(
        f"{_BLOCK}.attention.sublayer.relative.kernel",
        (f"{_LAYER}.rel_attn.r",),
        HEADS,
    ),
    Row(
        f"{_BLOCK}.attention.sublayer.output_dense.kernel",
        (f"{_LAYER}.rel_attn.o",),
        HEADS_OUT,
    ),
    Row(
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
