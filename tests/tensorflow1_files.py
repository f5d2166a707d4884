"""Checkpoints as the original repositories' code for TensorFlow 1 writes them."""

import json
import re

import numpy as np

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]


def _original_name(name, family):
    """The name in the original repository of a tensor of `transformers`."""
    table = {
        "bert": [
            (r"\.layer\.(\d+)\.", r".layer_\1."),
            (r"predictions\.bias$", "predictions.output_bias"),
            (r"seq_relationship\.weight$", "seq_relationship.output_weights"),
            (r"seq_relationship\.bias$", "seq_relationship.output_bias"),
        ],
        "albert": [
            (r"^albert\.", "bert."),
            (r"albert_layer_groups\.(\d+)\.", r"transformer.group_\1."),
            (r"albert_layers\.(\d+)\.", r"inner_group_\1."),
            (r"attention\.(query|key|value)\.", r"attention_1.self.\1."),
            (r"attention\.dense\.", "attention_1.output.dense."),
            (r"attention\.LayerNorm\.", "LayerNorm."),
            (r"full_layer_layer_norm\.", "LayerNorm_1."),
            (r"ffn_output\.", "ffn_1.intermediate.output.dense."),
            (r"ffn\.", "ffn_1.intermediate.dense."),
            (r"pooler\.", "pooler.dense."),
            (r"^predictions\.bias$", "cls.predictions.output_bias"),
            (r"^predictions\.", "cls.predictions.transform."),
            (
                r"^sop_classifier\.classifier\.weight",
                "cls.seq_relationship.output_weights",
            ),
            (r"^sop_classifier\.classifier\.bias", "cls.seq_relationship.output_bias"),
        ],
        "electra": [
            (r"\.layer\.(\d+)\.", r".layer_\1."),
            (r"dense_prediction", "dense_1"),
            (r"generator_lm_head\.bias", "generator_predictions.output_bias"),
        ],
        "xlnet": [
            (r"^", "model."),
            (r"\.layer\.(\d+)\.", r".layer_\1."),
            (r"word_embedding\.weight", "word_embedding.lookup_table"),
            (r"mask_emb$", "mask_emb.mask_emb"),
            (r"layer_norm\.", "LayerNorm."),
            (r"rel_attn\.([qkvro])$", r"rel_attn.\1.kernel"),
        ],
    }[family]
    for pattern, replacement in table:
        name = re.sub(pattern, replacement, name)
    if "LayerNorm" in name:
        name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
    name = re.sub(r"_embeddings\.weight$", "_embeddings", name)
    return re.sub(r"\.weight$", ".kernel", name).replace(".", "/")


def variables_of(model, family, prefix="", keep=lambda name: True):
    """Variables of the original repository, of a model of `transformers`."""
    variables = {}
    for name, tensor in model.state_dict().items():
        if not keep(name):
            continue
        array = tensor.numpy()
        name = _original_name(name, family)
        name = re.sub("^electra/", prefix, name) if prefix else name
        if name.endswith("/kernel") and array.ndim == 2:
            array = array.T
        variables[name] = array
    if family == "xlnet":
        for kind in ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed"):
            names = [f"model/transformer/layer_{i}/rel_attn/{kind}" for i in range(2)]
            arrays = [variables.pop(name) for name in names]
            variables[f"model/transformer/{kind}"] = np.stack(arrays)
    return variables


def save(folder, variables, config=None, config_name="bert_config.json"):
    """The files of TensorFlow 1, with an optimizer's slots among them."""
    folder.mkdir(exist_ok=True)
    names = sorted(variables)
    extra = {"global_step": np.int64(7), f"{names[0]}/adam_m": variables[names[0]]}
    import tensorflow as tf

    with tf.Graph().as_default():
        saved = [
            tf.compat.v1.get_variable(n, initializer=v, use_resource=False)
            for n, v in {**variables, **extra}.items()
        ]
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver(saved).save(
                session, str(folder / "model.ckpt"), write_meta_graph=False
            )
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    if config is not None:
        (folder / config_name).write_text(json.dumps(config))
    return str(folder)
