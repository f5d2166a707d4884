"""Copies the weights of a `transformers` masked language model into ours."""

import numpy as np
from keras import ops


def _array(tensor):
    return tensor.detach().numpy()


def _assign(variable, value):
    assert tuple(variable.shape) == value.shape, (variable.path, value.shape)
    variable.assign(value)


def _copy_dense(layer, state, *names):
    """Fill a dense layer from one or more `torch.nn.Linear`, side by side."""
    kernels = [_array(state[f"{name}.weight"]).T for name in names]
    _assign(layer.kernel, np.concatenate(kernels, axis=1))
    biases = [_array(state[f"{name}.bias"]) for name in names]
    _assign(layer.bias, np.concatenate(biases))


def _copy_norm(layer, state, name):
    _assign(layer.gamma, _array(state[f"{name}.weight"]))
    _assign(layer.beta, _array(state[f"{name}.bias"]))


def _copy_embeddings(table, state, at):
    words = _array(state[f"{at}.word_embeddings.weight"])
    _assign(table.token_embedding.embeddings, words)
    positions = _array(state[f"{at}.position_embeddings.weight"])
    types = state.get(f"{at}.token_type_embeddings.weight")  # DistilBERT has none
    if table.segment_table is not None:
        _assign(table.segment_table, _array(types))
    elif types is not None:
        positions = positions + _array(types)  # RoBERTa's one row of types
    _assign(table.position_table, positions)
    _copy_norm(table.norm, state, f"{at}.LayerNorm")


def _copy_block(block, state, qkv, attention, norm, intermediate, output, last_norm):
    """Fill the sub-layers of a block given the names of its parts."""
    sublayer, feedforward = block
    _copy_dense(sublayer.sublayer.qkv, state, *qkv)
    _copy_dense(sublayer.sublayer.output_dense, state, attention)
    _copy_norm(sublayer.norm, state, norm)
    _copy_dense(feedforward.sublayer.intermediate, state, intermediate)
    _copy_dense(feedforward.sublayer.output_dense, state, output)
    _copy_norm(feedforward.norm, state, last_norm)


def copy_backbone(backbone, state, prefix):
    """Fill a `BertBackbone`, `RobertaBackbone` or `ElectraBackbone`."""
    _copy_embeddings(backbone.embeddings, state, f"{prefix}.embeddings")
    if backbone.embeddings.projection is not None:
        projection = f"{prefix}.embeddings_project"
        _copy_dense(backbone.embeddings.projection, state, projection)
    for index in range(backbone.num_layers):
        at = f"{prefix}.encoder.layer.{index}"
        _copy_block(
            backbone.encoder.block(index),
            state,
            [f"{at}.attention.self.{part}" for part in ("query", "key", "value")],
            f"{at}.attention.output.dense",
            f"{at}.attention.output.LayerNorm",
            f"{at}.intermediate.dense",
            f"{at}.output.dense",
            f"{at}.output.LayerNorm",
        )
    if backbone.pooler is not None:
        _copy_dense(backbone.pooler.dense, state, f"{prefix}.pooler.dense")


def copy_distilbert(backbone, state, prefix="distilbert"):
    """Fill a `DistilBertBackbone` from a state dict."""
    _copy_embeddings(backbone.embeddings, state, f"{prefix}.embeddings")
    for index in range(backbone.num_layers):
        at = f"{prefix}.transformer.layer.{index}"
        _copy_block(
            backbone.encoder.block(index),
            state,
            [f"{at}.attention.{part}_lin" for part in "qkv"],
            f"{at}.attention.out_lin",
            f"{at}.sa_layer_norm",
            f"{at}.ffn.lin1",
            f"{at}.ffn.lin2",
            f"{at}.output_layer_norm",
        )


def copy_albert(backbone, state, prefix="albert"):
    """Fill an `AlbertBackbone` from a state dict."""
    _copy_embeddings(backbone.embeddings, state, f"{prefix}.embeddings")
    projection = f"{prefix}.encoder.embedding_hidden_mapping_in"
    _copy_dense(backbone.embeddings.projection, state, projection)
    groups = zip(
        backbone.encoder.attention_layers,
        backbone.encoder.feedforward_layers,
        strict=True,
    )
    for index, block in enumerate(groups):
        at = f"{prefix}.encoder.albert_layer_groups.{index}.albert_layers.0"
        _copy_block(
            block,
            state,
            [f"{at}.attention.{part}" for part in ("query", "key", "value")],
            f"{at}.attention.dense",
            f"{at}.attention.LayerNorm",
            f"{at}.ffn",
            f"{at}.ffn_output",
            f"{at}.full_layer_layer_norm",
        )
    _copy_dense(backbone.pooler.dense, state, f"{prefix}.pooler")


def copy_dense(layer, state, name):
    """Fill a dense layer from a `torch.nn.Linear`."""
    _copy_dense(layer, state, name)


def copy_head(head, state, dense, norm, bias):
    """Fill a `MaskedLMHead` given the names of its parts in a state dict."""
    _copy_dense(head.dense, state, dense)
    _copy_norm(head.norm, state, norm)
    _assign(head.bias, _array(state[bias]))


def copy_xlnet(backbone, state, prefix="transformer"):
    """Fill an `XLNetBackbone` from a state dict."""
    table = _array(state[f"{prefix}.word_embedding.weight"])
    _assign(backbone.token_embedding.embeddings, table)
    start = _array(state[f"{prefix}.mask_emb"])[0]
    _assign(backbone.query_embedding.embeddings, start)
    for index, block in enumerate(backbone.encoder.blocks):
        at = f"{prefix}.layer.{index}.rel_attn"

        def kernel(name, at=at):
            return _array(state[f"{at}.{name}"]).reshape(backbone.hidden_dim, -1)

        attention = block.attention
        _assign(attention.query.kernel, kernel("q"))
        pair = np.concatenate([kernel("k"), kernel("v")], axis=1)
        _assign(attention.key_value.kernel, pair)
        _assign(attention.relative.kernel, kernel("r"))
        _assign(attention.output_dense.kernel, kernel("o").T)
        _assign(attention.segments, _array(state[f"{at}.seg_embed"]))
        biases = [_array(state[f"{at}.r_{kind}_bias"]) for kind in "wrs"]
        owner = attention if attention.biases is not None else backbone.encoder
        _assign(owner.biases, np.stack(biases))
        _copy_norm(block.norm, state, f"{at}.layer_norm")
        at = f"{prefix}.layer.{index}.ff"
        _copy_dense(block.feedforward.sublayer.intermediate, state, f"{at}.layer_1")
        _copy_dense(block.feedforward.sublayer.output_dense, state, f"{at}.layer_2")
        _copy_norm(block.feedforward.norm, state, f"{at}.layer_norm")


def max_difference(ours, theirs, where=None):
    """Largest absolute difference between our tensor and a PyTorch one."""
    difference = np.abs(ops.convert_to_numpy(ours) - _array(theirs))
    return difference.max() if where is None else difference[where].max()
