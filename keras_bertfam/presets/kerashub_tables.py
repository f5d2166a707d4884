"""KerasHub's backbone classes, as tables beside `families`.

Rows go from the paths of KerasHub's variables to the names that `transformers` has
for them, and are read in both directions. `join` takes the number of heads as well.
"""

import dataclasses

import numpy as np

from keras_bertfam.presets.rows import VECTOR, Row, Transform

# KerasHub's kernels of attention have an axis for the heads.
_HEADS = Transform(
    lambda arrays, heads: arrays[0].T.reshape(arrays[0].shape[1], heads, -1),
    lambda a, *_: [a.reshape(len(a), -1).T],
)
_HEADS_BIAS = Transform(
    lambda arrays, heads: arrays[0].reshape(heads, -1), lambda a, *_: [a.reshape(-1)]
)
_HEADS_OUT = Transform(
    lambda arrays, heads: arrays[0].T.reshape(heads, -1, arrays[0].shape[0]),
    lambda a, *_: [a.reshape(-1, a.shape[-1]).T],
)
_KERNEL = Transform(lambda arrays, _: arrays[0].T, lambda a, *_: [a.T])
_SAME = Transform(lambda arrays, _: arrays[0], VECTOR.split)
# KerasHub's RoBERTa has neither the rows before the first position nor types.
_POSITIONS = Transform(
    lambda arrays, _: arrays[0][2:] + arrays[1][0],
    lambda a, *_: [np.pad(a, [[2, 0], [0, 0]]), np.zeros((1, a.shape[1]), a.dtype)],
)


def _dense(ours, theirs):
    kernel = Row(f"{ours}/kernel", (f"{theirs}.weight",), _KERNEL)
    return kernel, Row(f"{ours}/bias", (f"{theirs}.bias",), _SAME)


def _norm(ours, theirs):
    gamma = Row(f"{ours}/gamma", (f"{theirs}.weight",), _SAME)
    return gamma, Row(f"{ours}/beta", (f"{theirs}.bias",), _SAME)


_TABLES = (
    *(
        Row(f"{ours}_embedding/embeddings", (f"embeddings.{theirs}.weight",), _SAME)
        for ours, theirs in (
            ("token", "word_embeddings"),
            ("position", "position_embeddings"),
            ("segment", "token_type_embeddings"),
        )
    ),
    *_norm("embeddings_layer_norm", "embeddings.LayerNorm"),
)


def _joint_tables(layer, *positions):
    """Embeddings as one layer, without segments."""
    words = ("embeddings.word_embeddings.weight",)
    return (
        Row(f"{layer}/token_embedding/embeddings", words, _SAME),
        Row(f"{layer}/position_embedding/embeddings", *positions),
        *_norm("embeddings_layer_norm", "embeddings.LayerNorm"),
    )


def _blocks(ours, at, qkv, attention, attention_norm, intermediate, output, last_norm):
    attending = f"{ours}/self_attention_layer"
    parts = zip(("query", "key", "value"), qkv, strict=True)
    return (
        *(
            row
            for part, name in parts
            for row in (
                Row(f"{attending}/{part}/kernel", (f"{at}.{name}.weight",), _HEADS),
                Row(f"{attending}/{part}/bias", (f"{at}.{name}.bias",), _HEADS_BIAS),
            )
        ),
        Row(
            f"{attending}/attention_output/kernel",
            (f"{at}.{attention}.weight",),
            _HEADS_OUT,
        ),
        Row(f"{attending}/attention_output/bias", (f"{at}.{attention}.bias",), _SAME),
        *_norm(f"{ours}/self_attention_layer_norm", f"{at}.{attention_norm}"),
        *_dense(f"{ours}/feedforward_intermediate_dense", f"{at}.{intermediate}"),
        *_dense(f"{ours}/feedforward_output_dense", f"{at}.{output}"),
        *_norm(f"{ours}/feedforward_layer_norm", f"{at}.{last_norm}"),
    )


_BERT_BLOCKS = _blocks(
    "transformer_layer_{layer}",
    "encoder.layer.{layer}",
    [f"attention.self.{part}" for part in ("query", "key", "value")],
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)


def _masked_lm(dense, norm, bias):
    return (
        *_dense("mlm_head/intermediate_dense", dense),
        *_norm("mlm_head/intermediate_layer_norm", norm),
        Row("mlm_head/output_bias", (bias,), _SAME),
    )


def _classifier(output, pooled=None):
    pooled = () if pooled is None else _dense("pooled_dense", pooled)
    return (*pooled, *_dense("logits", output))


_XLNET, _LAYER = "xlnet_encoder_{layer}", "layer.{layer}"
_XLNET_ROWS = (
    *(
        Row(ours, (theirs,), _SAME)
        for ours, theirs in (
            (
                "content_query_embedding/word_embedding/embeddings",
                "word_embedding.weight",
            ),
            ("encoder_block_attn_mask_layer/mask_emb", "mask_emb"),
            (f"{_XLNET}/rel_attn/query/kernel", f"{_LAYER}.rel_attn.q"),
            (f"{_XLNET}/rel_attn/key/kernel", f"{_LAYER}.rel_attn.k"),
            (f"{_XLNET}/rel_attn/value/kernel", f"{_LAYER}.rel_attn.v"),
            (f"{_XLNET}/rel_attn/encoding/kernel", f"{_LAYER}.rel_attn.r"),
            (f"{_XLNET}/rel_attn/attention_output/kernel", f"{_LAYER}.rel_attn.o"),
            (f"{_XLNET}/content_attention_bias", f"{_LAYER}.rel_attn.r_w_bias"),
            (f"{_XLNET}/positional_attention_bias", f"{_LAYER}.rel_attn.r_r_bias"),
            (f"{_XLNET}/segment_attention_bias", f"{_LAYER}.rel_attn.r_s_bias"),
            (f"{_XLNET}/segment_encoding", f"{_LAYER}.rel_attn.seg_embed"),
        )
    ),
    *_norm(f"{_XLNET}/layer_norm_rel_attn", f"{_LAYER}.rel_attn.layer_norm"),
    *_norm(f"{_XLNET}/layer_norm_ff", f"{_LAYER}.ff.layer_norm"),
    *_dense(f"{_XLNET}/feedforward_intermediate_dense", f"{_LAYER}.ff.layer_1"),
    *_dense(f"{_XLNET}/feedforward_output_dense", f"{_LAYER}.ff.layer_2"),
)
_SIZES = {
    "vocab_size": "vocabulary_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "hidden_dim",
    "intermediate_size": "intermediate_dim",
    "max_position_embeddings": "max_sequence_length",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "dropout",
}
_SEGMENTS = {"type_vocab_size": "num_segments"}
_FACTORS = {"embedding_size": "embedding_dim"}
_TANH = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}


@dataclasses.dataclass(frozen=True)
class Class:
    """A backbone class of KerasHub.

    Attributes:
        family: a key of `FAMILIES`.
        config: dict from keys of a config of `transformers` to arguments.
        fixed: dict of what a config of `transformers` has for all its models.
        rows: tuple of `Row`s from paths of variables, the backbone's.
        heads: dict from endings of its tasks' names to `Row`s.
        first_position: int. Rows of positions that it leaves out.
    """

    family: str
    config: dict
    fixed: dict
    rows: tuple
    heads: dict = dataclasses.field(default_factory=dict)
    first_position: int = 0


CLASSES = {
    "BertBackbone": Class(
        "bert",
        {**_SIZES, **_SEGMENTS},
        _TANH,
        (*_TABLES, *_BERT_BLOCKS, *_dense("pooled_dense", "pooler.dense")),
        {
            "MaskedLM": _masked_lm(
                "cls.predictions.transform.dense",
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.bias",
            ),
            "TextClassifier": _classifier("classifier"),
        },
    ),
    "RobertaBackbone": Class(
        "roberta",
        _SIZES,
        {
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "type_vocab_size": 1,
            "pad_token_id": 1,
        },
        (
            *_joint_tables(
                "embeddings",
                tuple(
                    f"embeddings.{kind}_embeddings.weight"
                    for kind in ("position", "token_type")
                ),
                _POSITIONS,
            ),
            *_BERT_BLOCKS,
        ),
        {
            "MaskedLM": _masked_lm(
                "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"
            ),
            "TextClassifier": _classifier("classifier.out_proj", "classifier.dense"),
        },
        first_position=2,
    ),
    "AlbertBackbone": Class(
        "albert",
        {
            **_SIZES,
            **_SEGMENTS,
            **_FACTORS,
            "num_hidden_groups": "num_groups",
            "inner_group_num": "num_inner_repetitions",
        },
        _TANH,
        (
            *_TABLES,
            *_dense("embedding_projection", "encoder.embedding_hidden_mapping_in"),
            *_blocks(
                "group_{layer}_inner_layer_0",
                "encoder.albert_layer_groups.{layer}.albert_layers.0",
                [f"attention.{part}" for part in ("query", "key", "value")],
                "attention.dense",
                "attention.LayerNorm",
                "ffn",
                "ffn_output",
                "full_layer_layer_norm",
            ),
            *_dense("pooled_dense", "pooler"),
        ),
        {
            "MaskedLM": _masked_lm(
                "predictions.dense", "predictions.LayerNorm", "predictions.bias"
            ),
            "TextClassifier": _classifier("classifier"),
        },
    ),
    "DistilBertBackbone": Class(
        "distilbert",
        {
            "vocab_size": "vocabulary_size",
            "n_layers": "num_layers",
            "n_heads": "num_heads",
            "dim": "hidden_dim",
            "hidden_dim": "intermediate_dim",
            "max_position_embeddings": "max_sequence_length",
            "dropout": "dropout",
            "attention_dropout": "dropout",
        },
        {"activation": "gelu"},
        (
            *_joint_tables(
                "token_and_position_embedding",
                ("embeddings.position_embeddings.weight",),
                _SAME,
            ),
            *_blocks(
                "transformer_layer_{layer}",
                "transformer.layer.{layer}",
                [f"attention.{part}_lin" for part in "qkv"],
                "attention.out_lin",
                "sa_layer_norm",
                "ffn.lin1",
                "ffn.lin2",
                "output_layer_norm",
            ),
        ),
        {
            "MaskedLM": _masked_lm(
                "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
            ),
            "TextClassifier": _classifier("classifier", "pre_classifier"),
        },
    ),
    # KerasHub's has a pooler, which the original and ours lack.
    "ElectraBackbone": Class(
        "electra",
        {**_SIZES, **_SEGMENTS, **_FACTORS, "vocab_size": "vocab_size"},
        _TANH,
        (
            *_TABLES,
            *_dense("embeddings_projection", "embeddings_project"),
            *_BERT_BLOCKS,
        ),
    ),
    "XLNetBackbone": Class(
        "xlnet",
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
        _XLNET_ROWS,
    ),
}
