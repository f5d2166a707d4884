"""The config of T5's original checkpoints, which Mesh TensorFlow wrote.

The sizes are read off the tensors. The activation is read in `operative_config.gin`, if
this file lies beside them. Otherwise it is the activation of the release: ReLU in
models without a gate, GELU in models with one.
"""

import ast
import contextlib
import os
import re
from collections.abc import Mapping
from typing import Any

from keras_bertfam.presets.checkpoints import file_keys, reading
from keras_bertfam.presets.checkpoints.source import CheckpointError, LazyTensor
from keras_bertfam.types import Path

GIN = "operative_config.gin"
_ACTIVATION = re.compile(
    r"^(?:(?:encoder|decoder)/)?DenseReluDense\.activation\s*=\s*(.+)$", re.MULTILINE
)
_BINDING = re.compile(r"(?m)^((?:[\w.]+/)*)([\w.]+)[ \t]*=[ \t]*(.+(?:\n[ \t]+.+)*)$")
_NO_LITERAL = (ValueError, SyntaxError, MemoryError, RecursionError)
# Activations in gin's files, and `feed_forward_proj` in `transformers`. Mesh
# TensorFlow's `gelu` is the tanh form.
_FEED_FORWARDS = {
    ("relu",): "relu",
    ("gelu",): "gelu_new",
    ("swish",): "silu",
    ("relu", "linear"): "gated-relu",
    ("gelu", "linear"): "gated-gelu",
    ("swish", "linear"): "gated-silu",
}


def config_of(
    prefix: Path, tensors: Mapping[str, LazyTensor], notes: list[str]
) -> dict[str, Any]:
    """Make a T5's config with the keys of `transformers`.

    Args:
        prefix: path of the checkpoint without `.index`.
        tensors: tensors by their names in `transformers`.
        notes: list to which sentences on unknown settings are added.

    Returns:
        dict.

    Raises:
        CheckpointError: for tensors that are missing or have a wrong number of axes,
            and for settings that no model here has.
    """
    first = "encoder.block.0.layer"
    attention = f"{first}.0.SelfAttention"
    gated = f"{first}.1.DenseReluDense.wi_0.weight" in tensors
    inner = f"{first}.1.DenseReluDense.{'wi_0' if gated else 'wi'}.weight"
    with reading.errors_of(prefix, KeyError, ValueError, ZeroDivisionError):
        vocabulary, width = tensors["shared.weight"].shape
        bias = tensors[f"{attention}.relative_attention_bias.weight"]
        buckets, heads = bias.shape
        inner_dim, _ = tensors[inner].shape
        heads_dim, _ = tensors[f"{attention}.q.weight"].shape
        head_dim = heads_dim // heads
    sizes = {
        "d_model": width,
        "d_ff": inner_dim,
        "d_kv": head_dim,
        "num_heads": heads,
        "num_layers": _blocks("encoder", tensors),
    }
    notes += _account(prefix, sizes)
    return {
        "model_type": "t5",
        "vocab_size": vocabulary,
        **sizes,
        "num_decoder_layers": _blocks("decoder", tensors),
        "relative_attention_num_buckets": buckets,
        "feed_forward_proj": _feed_forward(prefix, gated),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }


def _blocks(side, tensors):
    found = (re.match(rf"{side}\.block\.(\d+)\.", name) for name in tensors)
    return len({match[1] for match in found if match})


def _account(prefix, sizes):
    """List the unknown settings of gin's file; refuse values that no model here has."""
    folder = os.path.dirname(os.fspath(prefix))
    if not os.path.exists(os.path.join(folder, GIN)):
        return ()
    path = reading.file_in(folder, GIN)
    reading.check_bytes(path)
    with reading.errors_of(path, ValueError):
        text = path.read_text("utf-8")
    text = re.sub(r"(?m)^\s*#.*$", "", text.replace("\\\n", " "))
    found = {}
    for _, name, value in _BINDING.findall(text):
        # Drop scope and module, as of `encoder/x.y.SelfAttention.num_heads`.
        short = ".".join(name.split(".")[-2:])
        with contextlib.suppress(*_NO_LITERAL):  # as @function and %macro
            value = ast.literal_eval(value.strip())
        found[short] = value
        file_keys.GIN.refuse({short: _value_of(value, found)}, path)
    for name, size in sizes.items():
        if found.get(name, size) != size:
            raise CheckpointError(
                f"{name!r} in {str(path)!r} must be {size}, as in the tensors. "
                f"Received: {found[name]!r}."
            )
    return file_keys.GIN.notes(
        {name: _value_of(value, found) for name, value in found.items()}, path
    )


def _value_of(value, found):
    """Look up the value of a macro such as `%d_model`; return other values."""
    if isinstance(value, str) and value.strip().startswith("%"):
        return found.get(value.strip()[1:], value)
    return value


def _feed_forward(prefix, gated):
    folder = os.path.dirname(os.fspath(prefix))
    if not os.path.exists(os.path.join(folder, GIN)):
        return "gated-gelu" if gated else "relu"
    path = reading.file_in(folder, GIN)
    reading.check_bytes(path)
    with reading.errors_of(path, ValueError, SyntaxError, MemoryError, RecursionError):
        lines = _ACTIVATION.findall(path.read_text("utf-8").replace("\\\n", " "))
        values = {repr(ast.literal_eval(line.strip())) for line in lines}
    if not values:
        return "gated-gelu" if gated else "relu"
    value = ast.literal_eval(min(values))
    names = tuple(map(str, value if isinstance(value, (list, tuple)) else [value]))
    found = _FEED_FORWARDS.get(names) if len(values) == 1 else None
    if found is None or found.startswith("gated-") != gated:
        kind = "with a gate" if gated else "without a gate"
        raise CheckpointError(
            f"{str(path)!r} must have one activation, {kind}, out of "
            f"{', '.join(repr([*known]) for known in _FEED_FORWARDS)}. "
            f"Received: {', '.join(sorted(values))}."
        )
    return found
