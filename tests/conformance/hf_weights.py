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


def copy_backbone(backbone, state, prefix):
    """Fill a `BertBackbone` or `RobertaBackbone` from a state dict."""
    table = backbone.embeddings
    at = f"{prefix}.embeddings"
    _assign(
        table.token_embedding.embeddings, _array(state[f"{at}.word_embeddings.weight"])
    )
    positions = _array(state[f"{at}.position_embeddings.weight"])
    types = _array(state[f"{at}.token_type_embeddings.weight"])
    if table.segment_table is None:
        positions = positions + types  # RoBERTa's one row of types
    else:
        _assign(table.segment_table, types)
    _assign(table.position_table, positions)
    _copy_norm(table.norm, state, f"{at}.LayerNorm")
    for index in range(backbone.num_layers):
        attention, feedforward = backbone.encoder.block(index)
        at = f"{prefix}.encoder.layer.{index}"
        names = [f"{at}.attention.self.{part}" for part in ("query", "key", "value")]
        _copy_dense(attention.sublayer.qkv, state, *names)
        output = f"{at}.attention.output"
        _copy_dense(attention.sublayer.output_dense, state, f"{output}.dense")
        _copy_norm(attention.norm, state, f"{output}.LayerNorm")
        inner = feedforward.sublayer
        _copy_dense(inner.intermediate, state, f"{at}.intermediate.dense")
        _copy_dense(inner.output_dense, state, f"{at}.output.dense")
        _copy_norm(feedforward.norm, state, f"{at}.output.LayerNorm")
    if backbone.pooler is not None:
        _copy_dense(backbone.pooler.dense, state, f"{prefix}.pooler.dense")


def copy_head(head, state, dense, norm, bias):
    """Fill a `MaskedLMHead` given the names of its parts in a state dict."""
    _copy_dense(head.dense, state, dense)
    _copy_norm(head.norm, state, norm)
    _assign(head.bias, _array(state[bias]))


def max_difference(ours, theirs, where=None):
    """Largest absolute difference between our tensor and a PyTorch one."""
    difference = np.abs(ops.convert_to_numpy(ours) - _array(theirs))
    return difference.max() if where is None else difference[where].max()
