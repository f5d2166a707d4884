"""SpanBERT's checkpoints in the format of its authors' fork of fairseq.

Both heads are read. The encoder and the masked language model's head have the names
that BERT had in PyTorch in 2019. `cls.pair_target_predictions` is the head that
predicts the tokens of a span from its borders.

Reference: [Joshi et al., 2019](https://arxiv.org/abs/1907.10529);
facebookresearch/SpanBERT, pretraining/fairseq/models/pair_bert.py.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.checkpoints.source import CheckpointError, LazyTensor
from keras_bertfam.types import Config, Path

BACKBONE = "SpanBertBackbone"
_PREFIX = "decoder."
_NORMS = ((".gamma", ".weight"), (".beta", ".bias"))
# Copies of the table of word embeddings.
_TABLES = re.compile(r"cls\.(pair_target_)?predictions\.decoder\.weight")


def is_spanbert(state: Mapping[str, Any]) -> bool:
    """Tell whether tensors have the names of SpanBERT's fork of fairseq."""
    return any(name.startswith(f"{_PREFIX}bert.") for name in state)


def renamed(state: Mapping[str, Any], file: Path) -> dict[str, LazyTensor]:
    """Give the tensors the names of `transformers`, or names of its kind.

    Raises:
        CheckpointError: for a head whose table isn't that of the word embeddings.
    """
    tensors = {}
    for old, tensor in state.items():
        name = old.removeprefix(_PREFIX)
        for ending, new in _NORMS:
            name = name.removesuffix(ending) + new if name.endswith(ending) else name
        tensors[name] = tensor
    table = tensors.get("bert.embeddings.word_embeddings.weight")
    for name in [name for name in tensors if _TABLES.fullmatch(name)]:
        tensor = tensors.pop(name)
        if table is None or not table.equal(tensor):
            raise CheckpointError(
                f"{name!r} of {os.fspath(file)!r} must equal the table of word "
                "embeddings, to which it is tied. Received: another table."
            )
    return {name: reading.pytorch_tensor(tensor) for name, tensor in tensors.items()}


def config_of(
    file: Path, tensors: Mapping[str, LazyTensor], arguments: Mapping[str, Any]
) -> Config:
    """Make a config of `transformers` from the shapes and the arguments of training.

    Raises:
        CheckpointError: for tensors that are missing, or don't have a BERT's shapes.
    """
    at = "bert.embeddings."
    with reading.errors_of(file, KeyError, ValueError, IndexError):
        vocabulary, width = tensors[f"{at}word_embeddings.weight"].shape
        positions, _ = tensors[f"{at}position_embeddings.weight"].shape
        types, _ = tensors[f"{at}token_type_embeddings.weight"].shape
        inner, _ = tensors["bert.encoder.layer.0.intermediate.dense.weight"].shape
    layers = {re.match(r"bert\.encoder\.layer\.(\d+)\.", name) for name in tensors}
    heads = arguments.get("num_attention_heads")
    return {
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": len({match[1] for match in layers if match}),
        "num_attention_heads": heads
        or max(1, width // 64),  # heads of both released models are 64 wide
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "hidden_act": arguments.get("hidden_act", "gelu"),
        "hidden_dropout_prob": arguments.get("hidden_dropout_prob", 0.1),
        "attention_probs_dropout_prob": arguments.get(
            "attention_probs_dropout_prob", 0.1
        ),
        "layer_norm_eps": 1e-12,
    }
