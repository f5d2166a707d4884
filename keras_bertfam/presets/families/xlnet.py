"""XLNet's record."""

from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import Family, HeadStyle, Layout, size
from keras_bertfam.presets.families.parts.tables import (
    BLOCK,
    REQUIRED,
    KerasHubTable,
    TensorFlow1Table,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import label_heads
from keras_bertfam.presets.families.parts.weight_maps import (
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
    # Code that doesn't run the query stream, such as fine-tuning, has no state for it.
    WeightMap("query_embedding.embeddings", ("mask_emb",), FIRST, required=False),
    # TensorFlow 1 has one of each for all layers if `untie_r` is false.
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


# The paper's section 3.1 and appendix A.4. Memory and predicted tokens: the README.
_PRETRAINING = PretrainingRecipe(
    task="PermutationLM",
    source="Yang et al., 2019, section 3.1 and appendix A; zihangdai/xlnet",
    learning_rate=4e-4,
    warmup_steps=40_000,
    total_steps=500_000,
    batch_size=8192,
    rows="parallel_streams",
    masking={
        "reuse_length": 256,
        "mask_selection_length": 85,
        "alpha": 6,
        "beta": 1,
        "both_directions": True,
    },
    task_arguments={"memory_length": 384},
)

_FINE_TUNING = FineTuningRecipe(
    (2e-5, 3e-5),
    (32, 48),
    (3,),
    scale_embeddings=False,
    end_head="conditional",
    source="zihangdai/xlnet, README",
)
# The code scales gradients by the layer's decay, after clipping. Adam divides by their
# size, so the scale counts only against epsilon. With gradients of 1e-4 the first of 12
# layers still moves at 81 % of the rate, and the first of 24 layers at 12 %. A decay of
# the rate itself would give 0.75 ** 11, or 4 %, in the former.
_SQUAD = _FINE_TUNING.fixed(
    3e-5, 48, 3, layer_decay=0.75, scale_gradients=True, epsilon=1e-6
)

XLNET = Family(
    name="xlnet",
    backbone="XLNetBackbone",
    license="MIT",
    tokenizer="sentence_piece",
    tokenizer_class="XLNetTokenizer",
    layout=Layout(
        "xlnet", start_token="<cls>", start_last=True
    ),  # A <sep> B <sep> <cls>
    head_style=HeadStyle("xlnet", activation="tanh", token="last"),
    sizes={
        "xlnet_base_en_cased": size(32000, 12, 768, source="xlnet/xlnet-base-cased"),
        "xlnet_large_en_cased": size(32000, 24, 1024, source="xlnet/xlnet-large-cased"),
    },
    pretraining={"": _PRETRAINING},
    fine_tuning={
        "": _FINE_TUNING,
        "stsb": _FINE_TUNING.changed(learning_rates=(5e-5,)),
        "squad": _SQUAD,
        "squad_v2": _SQUAD,
        "race": _FINE_TUNING.fixed(2e-5, 32, 4),
    },
    transformers=TransformersTable(
        title="XLNet",
        prefix="transformer",
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "n_layer", REQUIRED),
            ("num_heads", "n_head", REQUIRED),
            ("hidden_dim", "d_model", REQUIRED),
            ("intermediate_dim", "d_inner", REQUIRED),
            ("activation", "ff_activation", "gelu"),
            ("attention_type", "attn_type", "bi"),
            ("clamp_length", "clamp_len", -1),
            ("dropout", "dropout", 0.1),
            ("attention_dropout", "dropout", 0.1),
            ("layer_norm_epsilon", "layer_norm_eps", 1e-12),
            ("initializer_range", "initializer_range", 0.02),
        ),
        weights=TRANSFORMERS_WEIGHTS,
        heads={
            "masked_lm": same("bias", "lm_loss.bias"),
            **label_heads(
                "logits_proj",
                "sequence_summary.summary",
                "sequence_summary.summary",
                "logits_proj",
            ),
        },
        endings={"ForQuestionAnswering": "ForQuestionAnsweringSimple"},
        fixed={"head_dim": None, "untie_biases": True},
        # `transformers` doesn't read `untie_r`: each layer has tensors of its own.
        told_by={"r_w_bias": {"untie_biases": False}},
        # With `bi_data`, half of each batch would run backwards. Here the input
        # `reversed_rows` tells which rows do.
        required_config={"same_length": False, "bi_data": False},
        dropouts={
            **dict.fromkeys(("classifier", "choice"), {"summary_last_dropout": 0.1}),
            "token": {},
        },
        required_heads=dict.fromkeys(
            ("classifier", "choice"),
            {
                "summary_type": ("last", "cls_index"),
                "summary_use_proj": (True,),
                "summary_activation": ("tanh",),
            },
        ),
        signs=("d_model", "ff_activation"),
    ),
    keras_hub=KerasHubTable(
        "XLNetBackbone",
        {
            "vocab_size": "vocabulary_size",
            "n_layer": "num_layers",
            "n_head": "num_heads",
            "d_model": "hidden_dim",
            "d_inner": "intermediate_dim",
            "ff_activation": "activation",
            "dropout": "dropout",
        },
        {"layer_norm_eps": 1e-12, "attn_type": "bi", "clamp_len": -1},
        KERAS_HUB_WEIGHTS,
    ),
    tensorflow1=TensorFlow1Table(
        ("model/transformer/",),
        (
            (r"^model/lm_loss", "lm_loss"),
            (r"^model/transformer/", "transformer/"),
            (r"word_embedding/lookup_table", "word_embedding/weight"),
            (r"mask_emb/mask_emb", "mask_emb"),
            *BLOCK,
            (r"rel_attn/LayerNorm/", "rel_attn/layer_norm/"),
            (r"ff/LayerNorm/", "ff/layer_norm/"),
            (r"rel_attn/([qkvro])/kernel$", r"rel_attn/\1"),
        ),
        activation="ff_activation",
        renamed={"vocab_size": "n_token"},
        head_width=("d_head", "d_model", "n_head"),
        stacked=r"model/transformer/(r_[wrs]_bias|seg_embed)",
        stacked_name="transformer.layer.{layer}.rel_attn.{part}",
    ),
)
