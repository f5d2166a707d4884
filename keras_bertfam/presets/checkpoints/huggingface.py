"""Reads folders that `transformers` writes."""

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bertfam.presets.checkpoints import config_keys, generation_keys, reading
from keras_bertfam.presets.checkpoints.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.families import transformers_tables
from keras_bertfam.presets.families.parts.tables import COPIES
from keras_bertfam.types import Path

CONFIG = "config.json"
# Files of weights, in the order in which they are tried. Pickles come last.
WEIGHTS = {
    "model.safetensors": reading.read_safetensors,
    "model.safetensors.index.json": lambda path: reading.read_sharded(
        path, reading.read_safetensors
    ),
    "pytorch_model.bin": reading.read_pytorch,
    "pytorch_model.bin.index.json": lambda path: reading.read_sharded(
        path, reading.read_pytorch
    ),
}
TOKENIZER_FILES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "tokenizer.json",
)
# Names of a SentencePiece model in folders of XLM-R and DeBERTa.
OTHER_NAMES = {"sentencepiece.bpe.model": "spiece.model", "spm.model": "spiece.model"}
TOKENIZER_CONFIG = "tokenizer_config.json"
# Prefixes of names that trainers and `torch.compile` add.
WRAPPERS, COMPILED = ("module", "model"), "_orig_mod"
# Tasks that a generation config has settings for.
WRITERS = ("CausalLM", "TextToText", "RetrievalAugmentedGenerator")
# Folders of models that belong to the model of the folder around them.
PARTS = ("generator",)
# DeBERTaV3's generator lies beside the discriminator. Only its layers differ.
GENERATOR = "pytorch_model.generator.bin"


def recognises(path: Path) -> bool:
    """Tell whether a path is a folder as `transformers` writes it."""
    if not os.path.isdir(path):
        return False
    names = set(os.listdir(path))
    if CONFIG not in names or names & {"model.weights.h5", "model.weights.json"}:
        return False
    if names & WEIGHTS.keys():
        return True
    try:
        config = reading.read_json(reading.file_in(path, CONFIG))
    except CheckpointError:
        return False
    known = "model_type" in config or _oldest_family(config, names)
    return bool(known) and "registered_name" not in config


def config_of(path: Path) -> dict[str, Any]:
    """Read the config of such a folder; give an empty dict for other paths."""
    if not recognises(path):
        return {}
    try:
        return dict(reading.read_json(reading.file_in(path, CONFIG)))
    except CheckpointError:
        return {}


def open_source(
    path: Path, part: bool = False, config: dict[str, Any] | None = None
) -> CheckpointSource:
    """Open the checkpoint in a folder.

    Args:
        path: path of a folder.
        part: bool. Whether the model is a part of another, and so has no parts itself.
        config: dict. The config that replaces the file's.

    Returns:
        `CheckpointSource`.

    Raises:
        CheckpointError: for missing or damaged files, and for models of a family that
            isn't supported.
    """
    path = os.fspath(path)
    names = set(os.listdir(path))
    if config is None:
        config = reading.read_json(reading.file_in(path, CONFIG))
    tensors = {}
    found = next((name for name in WEIGHTS if name in names), None)
    if found is not None:
        tensors = _read(WEIGHTS[found], path, found)
    tokenizer_config = {}
    if TOKENIZER_CONFIG in names:
        tokenizer_config = reading.read_json(reading.file_in(path, TOKENIZER_CONFIG))
    family = _family(path, config, tensors, names)
    parts = {
        name: open_source(os.path.join(path, name), part=True)
        for name in (() if part else PARTS)
        if name in names and _is_part(os.path.join(path, name))
    }
    notes: tuple[str, ...] = ()
    if not part and "generator" not in parts and GENERATOR in names:
        try:
            parts["generator"] = _generator_beside(path, config, family)
        except ImportError as error:  # the model itself may be in another format
            notes = (f"{GENERATOR} isn't read: {error}",)
    generation, not_done = generation_keys.read(path, config)
    return CheckpointSource(
        path=path,
        family=family,
        config=config,
        tensors=reading.Tensors(with_originals(_unwrapped(tensors, family), family)),
        tokenizer_files={
            OTHER_NAMES.get(name, name): str(reading.file_in(path, name))
            for name in (*TOKENIZER_FILES, *OTHER_NAMES)
            if name in names
        },
        tokenizer_config=tokenizer_config,
        parts=parts,
        head_activation=transformers_tables()[family].head_activation,
        task_arguments={n: {"generation": generation} for n in WRITERS if generation},
        notes=(*_notes(family, config, not_done), *notes),
    )


def _read(reader, path, name):
    tensors = reader(reading.file_in(path, name))
    return {_current_name(name): tensor for name, tensor in tensors.items()}


def _generator_beside(path, config, family):
    """Open DeBERTaV3's generator, which has the config of the model beside it."""
    tensors = _read(reading.read_pytorch, path, GENERATOR)
    found = (re.search(r"\.layer\.(\d{1,9})\.", name) for name in tensors)
    layers = [int(match[1]) for match in found if match]
    return CheckpointSource(
        path=path,
        family=family,
        config={**config, "num_hidden_layers": max(layers, default=-1) + 1},
        tensors=reading.Tensors(with_originals(_unwrapped(tensors, family), family)),
        head_activation=transformers_tables()[family].head_activation,
    )


def _notes(family, config, not_done):
    unknown = config_keys.unknown_keys(family, config)
    listed = [f"{key}={str(value)[:60]!r}" for key, value in unknown.items()]
    found = {
        "In the config, and not known here": listed,
        "In the generation config, and not done here": not_done,
    }
    return tuple(f"{k}: {', '.join(names)}." for k, names in found.items() if names)


def _unwrapped(tensors, family):
    """Strip prefixes from names that a wrapper of the model added in training."""
    table = transformers_tables()[family]
    first, *_ = (name for weight in table.weights for name in weight.theirs)
    own = (
        f"(?:{re.escape(table.prefix)}\\.)?{re.escape(first)}"
        if table.prefix
        else first
    )
    wrappers = "|".join(WRAPPERS)
    known = re.compile(rf"((?:{wrappers})\.)*?(?={own}$)")
    tensors = {n.replace(f"{COMPILED}.", ""): t for n, t in tensors.items()}
    found = [match[0] for match in map(known.match, tensors) if match]
    wrapper = min(found, key=len, default="")
    return {name.removeprefix(wrapper): each for name, each in tensors.items()}


def _is_part(path):
    return not os.path.islink(path) and recognises(path)


def _current_name(name):
    """Give the present name of a normalization's weight.

    Models from TensorFlow have `gamma` and `beta`.
    """
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _oldest_family(config, names):
    """Find the family of a config without a `model_type`, or `None`."""
    tables = transformers_tables()
    fitting = [
        family
        for family, table in tables.items()
        if table.signs and {*table.signs} <= config.keys()
        if table.sign_file is None
        or table.sign_file in names
        or config.get("type_vocab_size") == 1
    ]
    # A family that a file points to comes first, then the one with the most keys.
    fitting.sort(key=lambda f: (tables[f].sign_file is None, -len(tables[f].signs)))
    return next(iter(fitting), None)


def _family(path, config, tensors, names):
    family, known = config.get("model_type"), transformers_tables()
    if family is None:  # as in the oldest checkpoints
        prefixed = [f for f in known if _has_prefix(tensors, f)]
        if len(prefixed) != 1 or _is_bare(tensors):
            prefixed = [_oldest_family(config, names)]
        family = prefixed[0]
    if not isinstance(family, str) or family not in known:
        raise CheckpointError(
            f"The model in {path!r} must be of one of the families "
            f"{', '.join(sorted(known))}. Received: model_type={family!r}."
        )
    return family


def _is_bare(names):
    """Tell whether names lack a prefix.

    DistilBERT's names without a prefix begin like XLNet's with one.
    """
    tables = transformers_tables().values()
    first = {
        n for table in tables for weight in table.weights[:1] for n in weight.theirs
    }
    return any(name in names for name in first)


def _has_prefix(names, family):
    return any(
        name.startswith(f"{transformers_tables()[family].prefix}.") for name in names
    )


def with_originals(tensors: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Add the originals of tensors that a file has only under the name of a copy.

    A bias under the name of a copy takes the place of the original, since
    `transformers` computes logits with the copy.

    Args:
        tensors: dict of tensors by their names in `transformers`.
        family: a key of `FAMILIES`.

    Returns:
        dict.
    """
    table, found = transformers_tables()[family], dict(tensors)
    prefix = f"{table.prefix}."
    prefixed = any(name.startswith(prefix) for name in tensors)
    of_backbone = {name for weight in table.weights for name in weight.theirs}
    for name, original in {**COPIES, **table.copies}.items():
        there = _name_of_original(found, original, table.prefix)
        if name in tensors and (there is None or name.endswith(".bias")):
            at = prefix if prefixed and original in of_backbone else ""
            found[there or at + original] = tensors[name]
    return found


def unequal_copies(source: CheckpointSource) -> dict[str, str]:
    """List the copies in a checkpoint that differ from their originals.

    Args:
        source: `CheckpointSource`.

    Returns:
        Dict from names of copies to names of originals.
    """
    tensors, unequal = source.tensors, {}
    table = transformers_tables()[source.family]
    for name, original in {**COPIES, **table.copies}.items():
        there = _name_of_original(tensors, original, table.prefix)
        if name in tensors and there is not None:
            if not _are_equal(np.asarray(tensors[name]), np.asarray(tensors[there])):
                unequal[name] = there
    return unequal


def _name_of_original(tensors, name, prefix):
    """Find the name of an original in a file; give `None` if it isn't there."""
    return next((n for n in (name, f"{prefix}.{name}") if n in tensors), None)


def _are_equal(a, b):
    """Tell whether arrays are equal; NaN equals NaN."""
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))
