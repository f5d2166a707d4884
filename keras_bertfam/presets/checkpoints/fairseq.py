"""Reads fairseq's RoBERTa, BART and SpanBERT: `model.pt`, `dict.txt` beside it.

The one file `*.pt` of a folder may have another name, such as `checkpoint_best.pt`.

fairseq numbers the ids of GPT-2's byte-level BPE anew, in the order of `dict.txt`.
With GPT-2's own files beside it (`encoder.json` and `vocab.bpe`, or `vocab.json` and
`merges.txt`) the tokenizer comes along; SpanBERT's is `vocab.txt`.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import tempfile

import numpy as np

from keras_bertfam.presets.checkpoints import (
    fairseq_bart,
    fairseq_spanbert,
    file_keys,
    reading,
)
from keras_bertfam.presets.checkpoints.source import (
    CheckpointError,
    CheckpointSource,
    LazyTensor,
)
from keras_bertfam.types import Path

WEIGHTS, ENDING, DICTIONARY = "model.pt", ".pt", "dict.txt"
_VOCABULARY = "vocab.txt"
_GPT2_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
_FIRST, _LAST = ("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",)
_ENCODERS = ("decoder.sentence_encoder.", "encoder.sentence_encoder.")
_QKV = {"q": "query", "k": "key", "v": "value"}
# Pairs of a pattern of fairseq's name and of that in `transformers`.
_NAMES = (
    (r"^embed_tokens\.", "roberta.embeddings.word_embeddings."),
    (r"^embed_positions\.", "roberta.embeddings.position_embeddings."),
    (r"^(emb_layer_norm|layernorm_embedding)\.", "roberta.embeddings.LayerNorm."),
    (r"^layers\.(\d+)\.", r"roberta.encoder.layer.\1."),
    (r"self_attn\.([qkv])_proj\.", lambda m: f"attention.self.{_QKV[m[1]]}."),
    (r"self_attn\.out_proj\.", "attention.output.dense."),
    (r"self_attn_layer_norm\.", "attention.output.LayerNorm."),
    (r"\.fc1\.", ".intermediate.dense."),
    (r"\.fc2\.", ".output.dense."),
    (r"\.final_layer_norm\.", ".output.LayerNorm."),
)
_HEAD = re.compile(r"^classification_heads\.([^.]+)\.")
# Sizes that fairseq's arguments repeat, and what configs call them.
_SIZES = {
    "encoder_layers": ("encoder_layers", "num_hidden_layers"),
    "encoder_embed_dim": ("d_model", "hidden_size"),
    "encoder_ffn_embed_dim": ("encoder_ffn_dim", "intermediate_size"),
    "decoder_layers": ("decoder_layers",),
    "decoder_embed_dim": ("d_model",),
    "decoder_ffn_embed_dim": ("decoder_ffn_dim",),
}
# Our argument, fairseq's, and the value of a checkpoint without it.
_MOST_CLASSES = 8  # of fairseq's own, in a pickle
_CONFIG = (
    ("num_attention_heads", "encoder_attention_heads", None),
    ("hidden_act", "activation_fn", "gelu"),
    ("hidden_dropout_prob", "dropout", 0.1),
    ("attention_probs_dropout_prob", "attention_dropout", 0.1),
)


def recognises(path: Path) -> bool:
    """Tell whether a path is such a file `*.pt`, or a folder with one."""
    file = _weights(os.fspath(path))
    if file is None:
        return False
    return not os.path.exists(os.path.join(os.path.dirname(file), "config.json"))


def _weights(path):
    """Find the path of the weights; `None` if there are none or many."""
    if not os.path.isdir(path):
        return path if path.endswith(ENDING) and os.path.exists(path) else None
    names = sorted(name for name in os.listdir(path) if name.endswith(ENDING))
    if WEIGHTS in names:
        names = [WEIGHTS]
    return os.path.join(path, names[0]) if len(names) == 1 else None


def open_source(path: Path) -> CheckpointSource:
    """Open the checkpoint in a folder or a file `*.pt`.

    Args:
        path: path of the folder or the file.

    Returns:
        `CheckpointSource`.

    Raises:
        CheckpointError: for damaged files, for a pickle of more than tensors and
            their arguments, and for a dictionary of another length than the table.
        ImportError: without PyTorch.
    """
    path = os.fspath(path)
    folder, name = os.path.split(_weights(path) or os.path.join(path, WEIGHTS))
    file = reading.file_in(folder, name)
    state, arguments = _state(file)
    notes = file_keys.FAIRSEQ.notes(arguments, file)
    if fairseq_spanbert.is_spanbert(state):
        tensors = fairseq_spanbert.renamed(state, file)
        there = os.path.exists(os.path.join(folder, _VOCABULARY))
        return CheckpointSource(
            path=path,
            family="bert",
            config=fairseq_spanbert.config_of(file, tensors, arguments),
            tensors=reading.Tensors(tensors),
            tokenizer_files={_VOCABULARY: str(reading.file_in(folder, _VOCABULARY))}
            if there
            else {},
            tokenizer_config={"do_lower_case": False},  # all of its models keep case
            backbone=fairseq_spanbert.BACKBONE,
            notes=notes,
        )
    family, prefix = "roberta", "classifier."
    if fairseq_bart.is_bart(state):
        family, prefix = "bart", "classification_head."
    heads = {match[1] for match in map(_HEAD.match, state) if match}
    if len(heads) == 1:  # which one of many is meant is unknown: they are left out
        state = {_HEAD.sub(prefix, name): tensor for name, tensor in state.items()}
    if family == "bart":
        tensors = {
            name: reading.pytorch_tensor(tensor)
            for name, tensor in fairseq_bart.renamed(state).items()
        }
        config = fairseq_bart.config_of(file, tensors, arguments)
    else:
        file_keys.FAIRSEQ_ROBERTA.refuse(arguments, file)
        tensors, config = _roberta(file, state, arguments)
    _check_sizes(file, config, arguments)
    files = {}
    if os.path.exists(os.path.join(folder, DICTIONARY)):
        # A model that was fine-tuned to write may have lost its mask token.
        tokens = _read_dictionary(folder, config["vocab_size"], family == "bart")
        files = _tokenizer_files(folder, tokens)
    return CheckpointSource(
        path=path,
        family=family,
        config=config,
        tensors=reading.Tensors(tensors),
        tokenizer_files=files,
        notes=notes,
    )


def _check_sizes(file, config, arguments):
    """Raise an error for sizes in the arguments that aren't those of the tensors."""
    for name, keys in _SIZES.items():
        known = next((config[key] for key in keys if key in config), None)
        if known is not None and arguments.get(name, known) not in (known, None):
            raise CheckpointError(
                f"{name!r} in {str(file)!r} must be {known}, as the tensors are. "
                f"Received: {arguments[name]!r}."
            )


def _roberta(file, state, arguments):
    """Give RoBERTa's tensors their names in `transformers`, and make its config."""
    tensors = {}
    for name, tensor in state.items():
        for new, part in _renamed(name, tensor):
            tensors[new] = reading.pytorch_tensor(part)
    config = _config(file, tensors, arguments)
    types = (1, config["hidden_size"])  # `transformers` has one type of token
    tensors["roberta.embeddings.token_type_embeddings.weight"] = LazyTensor(
        lambda: np.zeros(types, "float32"), types
    )
    return tensors, config


def _state(file):
    """Read the tensors by fairseq's names, and the arguments of its training."""
    try:
        from torch.serialization import safe_globals
    except ImportError:  # `load_pytorch` says what to install
        content = reading.load_pytorch(file)
    else:
        # A namespace of plain values: it runs nothing.
        known: list = [argparse.Namespace]
        while True:
            try:
                with safe_globals(known):
                    content = reading.load_pytorch(file)
                break
            except CheckpointError as error:
                name = _of_fairseq(error)
                if name is None or len(known) > _MOST_CLASSES:
                    raise
                known.append((type("Plain", (_StandIn,), {}), name))
    state = content.get("model") if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and hasattr(tensor, "detach")
        for name, tensor in state.items()
    ):
        raise CheckpointError(
            f"{str(file)!r} must hold a dict with the tensors of a `model`. "
            f"Received: {type(content).__name__}."
        )
    arguments = content.get("args")
    found = vars(arguments) if isinstance(arguments, argparse.Namespace) else {}
    for name, part in _settings(content.get("cfg")).items():  # of later versions
        if name == "model":
            found = {**found, **_settings(part)}
        elif name not in file_keys.FAIRSEQ_PARTS:
            found = {**found, name: part}
    for value in [*found.values()]:  # the fork's own class of settings
        if isinstance(value, _StandIn):
            found = {**vars(value), **found}
    return state, found


def _settings(part):
    """Read settings, whatever of fairseq's versions has written them."""
    if isinstance(part, argparse.Namespace | _StandIn):
        return vars(part)
    return part if isinstance(part, dict) else {}


class _StandIn:
    """A stand-in for a class of fairseq's, of which only plain values are kept."""

    def __init__(self, *args, **kwargs):
        pass


def _of_fairseq(error):
    """Name fairseq's class that a pickle was refused for, or `None`."""
    match = re.search(r"GLOBAL (fairseq(\.\w+)+)", str(error.__cause__))
    return match and match[1]


def _renamed(name, tensor):
    """Yield pairs of a name of `transformers` and a tensor."""
    encoder = next((e for e in _ENCODERS if name.startswith(e)), None)
    short = name if encoder is None else name.removeprefix(encoder)
    if encoder is None:
        short = re.sub(r"^(decoder|encoder)\.lm_head\.", "lm_head.", short)
        short = re.sub(r"^lm_head\.weight$", "lm_head.decoder.weight", short)
        return [(short, tensor)]
    fused = re.fullmatch(r"(layers\.\d+\.self_attn\.)in_proj_(weight|bias)", short)
    parts = [(short, tensor)]
    if fused and len(tensor) % 3 == 0:
        thirds = tensor.split(len(tensor) // 3)
        names = (f"{fused[1]}{part}_proj.{fused[2]}" for part in "qkv")
        parts = list(zip(names, thirds, strict=True))
    renamed = []
    for new, part in parts:
        for pattern, replacement in _NAMES:
            new = re.sub(pattern, replacement, new)
        renamed.append((new, part))
    return renamed


def _config(file, tensors, arguments):
    """Make a config of `transformers` from the shapes and fairseq's arguments."""
    at = "roberta.embeddings."
    with reading.errors_of(file, KeyError, ValueError, IndexError):
        vocabulary, width = tensors[f"{at}word_embeddings.weight"].shape
        positions = tensors[f"{at}position_embeddings.weight"].shape[0]
        inner = tensors["roberta.encoder.layer.0.intermediate.dense.weight"].shape[0]
    layers = {re.match(r"roberta\.encoder\.layer\.(\d+)\.", name) for name in tensors}
    values = {theirs: arguments.get(name, default) for theirs, name, default in _CONFIG}
    if values["num_attention_heads"] is None:
        values["num_attention_heads"] = max(1, width // 64)  # of all released models
    return {
        **values,
        "model_type": "roberta",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": len({match[1] for match in layers if match}),
        "max_position_embeddings": positions,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    }


def _read_dictionary(folder, size, optional_mask=False):
    """Read the tokens of a dictionary by id, as strings of GPT-2's ids.

    With `optional_mask` a table without a row for the mask token has none.

    Raises:
        CheckpointError: if it has a line twice, or is of another length than the
            table of embeddings.
    """
    path = reading.file_in(folder, DICTIONARY)
    reading.check_bytes(path)
    with reading.errors_of(path, ValueError, IndexError):
        lines = path.read_text("utf-8").split("\n")
        tokens = [line.split()[0] for line in lines if line.strip()]
    tokens = [*_FIRST, *tokens]
    if not optional_mask or len(tokens) != size:
        tokens += [token for token in _LAST if token not in tokens]
    [(token, count)] = collections.Counter(tokens).most_common(1)
    if count > 1:
        raise CheckpointError(
            f"{str(path)!r} must name a token once. Received: {token!r} {count} times."
        )
    if len(tokens) != size:
        raise CheckpointError(
            f"{str(path)!r} must have as many tokens as the table has rows. Expected: "
            f"{size}, {len(_FIRST) + len(_LAST)} special ones among them. "
            f"Received: {len(tokens)}."
        )
    return tokens


class _TemporaryFiles(dict):
    """Paths in a folder of their own, which lives as long as they do."""

    def __init__(self, folder: tempfile.TemporaryDirectory) -> None:
        super().__init__()
        self._folder = folder


def _tokenizer_files(folder, tokens):
    """Write the files of a tokenizer whose ids are fairseq's."""
    for vocabulary, merges in _GPT2_FILES:
        if not os.path.exists(os.path.join(folder, vocabulary)):
            continue
        path = reading.file_in(folder, vocabulary)
        ids = reading.read_json(path, vocabulary=True)
        names = {str(number): token for token, number in ids.items()}
        # Those that GPT-2 lacks are special, or made up to fill the table.
        new = {names.get(token, token): index for index, token in enumerate(tokens)}
        files = _TemporaryFiles(tempfile.TemporaryDirectory(prefix="fairseq-"))
        target = pathlib.Path(files._folder.name)
        (target / "vocab.json").write_text(json.dumps(new), "utf-8")
        reading.check_bytes(reading.file_in(folder, merges))
        shutil.copy(os.path.join(folder, merges), target / "merges.txt")
        files.update(
            {name: str(target / name) for name in ("vocab.json", "merges.txt")}
        )
        return files
    return {}
