"""Reads fairseq's RoBERTa, BART and SpanBERT: `model.pt` with `dict.txt` beside it.

If a folder has only one file `*.pt`, it may have another name, such as
`checkpoint_best.pt`.

fairseq numbers the ids of GPT-2's byte-level BPE anew, in the order of `dict.txt`. The
tokenizer is read, too, if GPT-2's own files lie beside it: `encoder.json` and
`vocab.bpe`, or `vocab.json` and `merges.txt`. SpanBERT's vocabulary is `vocab.txt`.
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
# Patterns of fairseq's names, and what replaces them in the names of `transformers`.
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
# Names of sizes in fairseq's arguments, and in configs of `transformers`.
_SIZES = {
    "encoder_layers": ("encoder_layers", "num_hidden_layers"),
    "encoder_embed_dim": ("d_model", "hidden_size"),
    "encoder_ffn_embed_dim": ("encoder_ffn_dim", "intermediate_size"),
    "decoder_layers": ("decoder_layers",),
    "decoder_embed_dim": ("d_model",),
    "decoder_ffn_embed_dim": ("decoder_ffn_dim",),
}
_MOST_CLASSES = 8  # of fairseq's own, in a pickle
# The key of a config, fairseq's argument, and the value of checkpoints without it.
_CONFIG = (
    ("num_attention_heads", "encoder_attention_heads", None),
    ("hidden_act", "activation_fn", "gelu"),
    ("hidden_dropout_prob", "dropout", 0.1),
    ("attention_probs_dropout_prob", "attention_dropout", 0.1),
)


def recognises(path: Path) -> bool:
    """Tell whether a path is a file `*.pt`, or a folder with one and no config."""
    file = _weights(os.fspath(path))
    if file is None:
        return False
    return not os.path.exists(os.path.join(os.path.dirname(file), "config.json"))


def _weights(path):
    """Find the path of the weights; give `None` for no file, or several."""
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
        CheckpointError: for damaged files, for a pickle that holds more than tensors
            and arguments, and for a dictionary that is longer or shorter than the
            table of embeddings.
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
    if len(heads) == 1:  # several are left out, as it is unknown which one is meant
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
    """Raise an error for a size in the arguments that differs from the tensors'."""
    for name, keys in _SIZES.items():
        known = next((config[key] for key in keys if key in config), None)
        if known is not None and arguments.get(name, known) not in (known, None):
            raise CheckpointError(
                f"{name!r} in {str(file)!r} must be {known}, as in the tensors. "
                f"Received: {arguments[name]!r}."
            )


def _roberta(file, state, arguments):
    """Give RoBERTa's tensors their names in `transformers`, and make its config."""
    tensors = {}
    for name, tensor in state.items():
        for new, part in _renamed(name, tensor):
            tensors[new] = reading.pytorch_tensor(part)
    config = _config(file, tensors, arguments)
    # `transformers` has one type of token; fairseq has none.
    types = (1, config["hidden_size"])
    tensors["roberta.embeddings.token_type_embeddings.weight"] = LazyTensor(
        lambda: np.zeros(types, "float32"), types
    )
    return tensors, config


def _state(file):
    """Read the tensors by fairseq's names, and the arguments of training."""
    try:
        from torch.serialization import safe_globals
    except ImportError:  # `load_pytorch` says what to install
        content = reading.load_pytorch(file)
    else:
        # It holds plain values and runs no code.
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
    """Read settings of any version of fairseq; give an empty dict for other values."""
    if isinstance(part, argparse.Namespace | _StandIn):
        return vars(part)
    return part if isinstance(part, dict) else {}


class _StandIn:
    """A stand-in for one of fairseq's classes. It keeps plain values only."""

    def __init__(self, *args, **kwargs):
        pass


def _of_fairseq(error):
    """Name the class of fairseq that made a pickle be refused; else `None`."""
    match = re.search(r"GLOBAL (fairseq(\.\w+)+)", str(error.__cause__))
    return match and match[1]


def _renamed(name, tensor):
    """List the names in `transformers` and the tensors that one tensor becomes."""
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
        # Heads of all released models are 64 wide.
        values["num_attention_heads"] = max(1, width // 64)
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
    """Read the tokens of a dictionary in the order of their ids.

    Tokens are strings of GPT-2's ids. With `optional_mask` the mask token is left out
    if the table of embeddings has no row for it.

    Raises:
        CheckpointError: if a token occurs twice, or if the dictionary is longer or
            shorter than the table of embeddings.
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
            f"{str(path)!r} must have each token once. Received: {token!r} {count} "
            "times."
        )
    if len(tokens) != size:
        raise CheckpointError(
            f"{str(path)!r} must have as many tokens as the table of embeddings has "
            f"rows. Expected: {size}, with {len(_FIRST) + len(_LAST)} special tokens "
            f"among them. Received: {len(tokens)}."
        )
    return tokens


class _TemporaryFiles(dict):
    """Paths of files in a temporary folder, which is deleted with this dict."""

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
        # Tokens that GPT-2 lacks are special, or fill up the table.
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
