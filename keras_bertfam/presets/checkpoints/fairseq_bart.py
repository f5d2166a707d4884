"""fairseq's BART: names and config.

`transformers` took over most of the names. The encoder and the decoder share one table
of token embeddings, and in later versions the logits share it, too.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.checkpoints.source import LazyTensor
from keras_bertfam.types import Path

_NAMES = {
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.output_projection.weight": "lm_head.weight",
}
# Tensors that only tell which version of the code wrote the file.
_LEFT_OUT = re.compile(r"(encoder|decoder)\.(version|embed_positions\._float_tensor)")
# The key of `transformers`, fairseq's key, and the value of `bart_large`.
_CONFIG = (
    ("activation_function", "activation_fn", "gelu"),
    ("dropout", "dropout", 0.1),
    ("attention_dropout", "attention_dropout", 0.0),
    ("activation_dropout", "activation_dropout", 0.0),
    ("normalize_before", "encoder_normalize_before", False),
    ("normalize_embedding", "layernorm_embedding", True),
    ("tie_word_embeddings", "share_all_embeddings", True),
)


def is_bart(names: Iterable[str]) -> bool:
    """Tell whether names of tensors are those of an encoder and a decoder."""
    starts = {name.partition(".layers.")[0] for name in names}
    return {"encoder", "decoder"} <= starts


def renamed(state: Mapping[str, Any]) -> dict[str, Any]:
    """Give tensors their names in `transformers`.

    Args:
        state: the tensors by fairseq's names.
    """
    return {
        _NAMES.get(name, name): tensor
        for name, tensor in state.items()
        if not _LEFT_OUT.fullmatch(name)
    }


def config_of(
    file: Path, tensors: Mapping[str, LazyTensor], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Make the config of `transformers` from the shapes and fairseq's arguments.

    Args:
        file: path, for messages.
        tensors: tensors by their names in `transformers`.
        arguments: dict of the arguments of fairseq's training; it may be empty.

    Returns:
        dict.

    Raises:
        CheckpointError: for tensors that are missing, or have a wrong number of axes.
    """
    with reading.errors_of(file, KeyError, ValueError):
        vocabulary, width = tensors["shared.weight"].shape
        positions, _ = tensors["encoder.embed_positions.weight"].shape
        inner = {
            side: tensors[f"{side}.layers.0.fc1.weight"].shape[0]
            for side in ("encoder", "decoder")
        }
    config = {theirs: arguments.get(name, default) for theirs, name, default in _CONFIG}
    for side in ("encoder", "decoder"):
        found = {re.match(rf"{side}\.layers\.(\d+)\.", name) for name in tensors}
        config[f"{side}_layers"] = len({match[1] for match in found if match})
        config[f"{side}_ffn_dim"] = inner[side]
        heads = arguments.get(f"{side}_attention_heads")
        # Heads of all released models are 64 wide.
        config[f"{side}_attention_heads"] = (
            max(1, width // 64) if heads is None else heads
        )
    return {
        **config,
        "model_type": "bart",
        "vocab_size": vocabulary,
        "d_model": width,
        "max_position_embeddings": positions - 2,
        "scale_embedding": not arguments.get("no_scale_embedding", True),
        "add_final_layer_norm": "encoder.layer_norm.weight" in tensors,
        "static_position_embeddings": not arguments.get("encoder_learned_pos", True),
    }
