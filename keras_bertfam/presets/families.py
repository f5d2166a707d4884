"""A family's mapping to `transformers`, as tables that are read in both directions.

A new family that `transformers` has costs an entry of `FAMILIES` here.
"""

from keras_bertfam.presets.family import REQUIRED, Family
from keras_bertfam.presets.rows import POSITIONS, Row, dense, norm, same
from keras_bertfam.presets.xlnet_rows import XLNET


def _embeddings(segments=True):
    at = "embeddings"
    positions, types = f"{at}.position_embeddings.weight", f"{at}.token_type_embeddings"
    table = f"{at}.position_table"
    rows = same(f"{at}.token_embedding.embeddings", f"{at}.word_embeddings.weight")
    if segments:
        rows += (
            *same(table, positions, segments=True),
            *same(f"{at}.segment_table", f"{types}.weight", segments=True),
            Row(table, (positions, f"{types}.weight"), POSITIONS, segments=False),
        )
    else:
        rows += same(table, positions)
    return rows + norm(f"{at}.norm", f"{at}.LayerNorm")


def _blocks(at, qkv, attention, attention_norm, intermediate, output, output_norm):
    """The rows of a block, given the names of its parts in `transformers`."""
    first, second = "encoder.attention_layers.{layer}", "encoder.feedforward_layers"
    second += ".{layer}"
    return (
        *dense(f"{first}.sublayer.qkv", *(f"{at}.{name}" for name in qkv)),
        *dense(f"{first}.sublayer.output_dense", f"{at}.{attention}"),
        *norm(f"{first}.norm", f"{at}.{attention_norm}"),
        *dense(f"{second}.sublayer.intermediate", f"{at}.{intermediate}"),
        *dense(f"{second}.sublayer.output_dense", f"{at}.{output}"),
        *norm(f"{second}.norm", f"{at}.{output_norm}"),
    )


_BERT_BLOCKS = _blocks(
    "encoder.layer.{layer}",
    [f"attention.self.{part}" for part in ("query", "key", "value")],
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
_BERT = _embeddings() + _BERT_BLOCKS
_POOLER = dense("pooler.dense", "pooler.dense", required=False)


def _labels(logits, dense_name=None, choice_dense=None, choice="classifier"):
    """The heads of fine-tuning, by the names of their layers.

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


def _masked_lm(dense_name, norm_name, bias_name):
    return (
        *dense("dense", dense_name),
        *norm("norm", norm_name),
        *same("bias", bias_name),
    )


_BERT_CONFIG = (
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
_DROPOUT = {"classifier_dropout": None, "hidden_dropout_prob": 0.1}
_ALBERT_DROPOUT = {"classifier_dropout_prob": 0.1, "hidden_dropout_prob": 0.0}
_ENCODER = {
    "embedding_dim": None,
    "head_dim": None,
    "position_offset": 0,
    "num_segments": 0,
    "share": "none",
    "num_groups": 1,
    "norm_first": False,
}
_NO_DECODER = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
}

FAMILIES = {
    "bert": Family(
        title="Bert",
        prefix="bert",
        backbones=("BertBackbone", "SpanBertBackbone"),
        config=_BERT_CONFIG,
        weights=_BERT + _POOLER,
        heads={
            "masked_lm": _masked_lm(
                "cls.predictions.transform.dense",
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.bias",
            ),
            "sentence": dense("dense", "cls.seq_relationship"),
            **_labels("classifier"),
        },
        fixed=_ENCODER,
        required_config=_NO_DECODER,
        pooled=("Model", "ForPreTraining", "ForSequenceClassification")
        + ("ForMultipleChoice",),
        dropouts=dict.fromkeys(("classifier", "token", "choice"), _DROPOUT),
    ),
    "roberta": Family(
        title="Roberta",
        prefix="roberta",
        backbones=("RobertaBackbone", "DistilBertBackbone"),
        config=(*_BERT_CONFIG, ("position_offset", "pad_token_id", 1)),
        weights=_BERT + _POOLER,
        heads={
            "masked_lm": _masked_lm(
                "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"
            ),
            **_labels(
                "classifier.out_proj", "classifier.dense", "roberta.pooler.dense"
            ),
        },
        fixed=_ENCODER,
        required_config=_NO_DECODER,
        pooled=("Model", "ForMultipleChoice"),
        head_activation="gelu",
        dropouts={
            **dict.fromkeys(("classifier", "token"), _DROPOUT),
            "choice": {"hidden_dropout_prob": 0.1},
        },
    ),
    "albert": Family(
        title="Albert",
        prefix="albert",
        backbones=("AlbertBackbone",),
        config=(
            *_BERT_CONFIG,
            ("embedding_dim", "embedding_size", 128),
            ("num_groups", "num_hidden_groups", 1),
        ),
        weights=_embeddings()
        + dense("embeddings.projection", "encoder.embedding_hidden_mapping_in")
        + _blocks(
            "encoder.albert_layer_groups.{layer}.albert_layers.0",
            [f"attention.{part}" for part in ("query", "key", "value")],
            "attention.dense",
            "attention.LayerNorm",
            "ffn",
            "ffn_output",
            "full_layer_layer_norm",
        )
        + dense("pooler.dense", "pooler", required=False),
        heads={
            "masked_lm": _masked_lm(
                "predictions.dense", "predictions.LayerNorm", "predictions.bias"
            ),
            "sentence": dense("dense", "sop_classifier.classifier"),
            **_labels("classifier"),
        },
        head_style="bert",
        fixed={**_ENCODER, "share": "all"},
        required_config={"inner_group_num": 1, "position_embedding_type": "absolute"},
        required_tensors=("encoder.embedding_hidden_mapping_in.weight",),
        pooled=("Model", "ForPreTraining", "ForSequenceClassification")
        + ("ForMultipleChoice",),
        dropouts=dict.fromkeys(("classifier", "token", "choice"), _ALBERT_DROPOUT),
    ),
    "distilbert": Family(
        title="DistilBert",
        prefix="distilbert",
        backbones=("DistilBertBackbone",),
        config=(
            ("vocabulary_size", "vocab_size", REQUIRED),
            ("num_layers", "n_layers", REQUIRED),
            ("num_heads", "n_heads", REQUIRED),
            ("hidden_dim", "dim", REQUIRED),
            ("intermediate_dim", "hidden_dim", REQUIRED),
            ("max_sequence_length", "max_position_embeddings", 512),
            ("activation", "activation", "gelu"),
            ("dropout", "dropout", 0.1),
            ("attention_dropout", "attention_dropout", 0.1),
            ("initializer_range", "initializer_range", 0.02),
        ),
        weights=_embeddings(segments=False)
        + _blocks(
            "transformer.layer.{layer}",
            [f"attention.{part}_lin" for part in "qkv"],
            "attention.out_lin",
            "sa_layer_norm",
            "ffn.lin1",
            "ffn.lin2",
            "output_layer_norm",
        ),
        heads={
            "masked_lm": _masked_lm(
                "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
            ),
            **_labels("classifier", "pre_classifier", "pre_classifier"),
        },
        fixed={**_ENCODER, "layer_norm_epsilon": 1e-12},
        dropouts={
            **dict.fromkeys(("classifier", "choice"), {"seq_classif_dropout": 0.2}),
            "token": {"dropout": 0.1},
        },
    ),
    "electra": Family(
        title="Electra",
        prefix="electra",
        backbones=("ElectraBackbone",),
        config=(*_BERT_CONFIG, ("embedding_dim", "embedding_size", 128)),
        weights=_embeddings()
        + dense("embeddings.projection", "embeddings_project")
        + _BERT_BLOCKS,
        heads={
            "masked_lm": _masked_lm(
                "generator_predictions.dense",
                "generator_predictions.LayerNorm",
                "generator_lm_head.bias",
            ),
            "detector": dense("dense", "discriminator_predictions.dense")
            + dense("output_dense", "discriminator_predictions.dense_prediction"),
            **_labels(
                "classifier.out_proj", "classifier.dense", "sequence_summary.summary"
            ),
        },
        fixed=_ENCODER,
        required_config=_NO_DECODER,
        head_activation="gelu",
        dropouts={
            **dict.fromkeys(("classifier", "token"), _DROPOUT),
            "choice": {"summary_last_dropout": 0.1},
        },
        required_heads={
            "choice": {
                "summary_type": ("first",),
                "summary_use_proj": (True,),
                "summary_activation": ("gelu", "gelu_python"),
            }
        },
    ),
    "xlnet": Family(
        title="XLNet",
        prefix="transformer",
        backbones=("XLNetBackbone",),
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
        weights=XLNET,
        heads={
            "masked_lm": same("bias", "lm_loss.bias"),
            **_labels("logits_proj", *["sequence_summary.summary"] * 2, "logits_proj"),
        },
        endings={"ForQuestionAnswering": "ForQuestionAnsweringSimple"},
        fixed={"head_dim": None, "untie_biases": True},
        required_config={"untie_r": True, "same_length": False},
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
    ),
}
