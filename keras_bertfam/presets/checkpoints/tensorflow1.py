"""Checkpoints of google-research's BERT, ALBERT, ELECTRA and T5, and of XLNet.

They are files of TensorFlow 1: `*.ckpt.index` and `*.ckpt.data-*`, beside a
`bert_config.json` or `xlnet_config.json` and a vocabulary. Their `gelu` is the tanh
form of GELU. T5 has no such config, and `mesh` reads its sizes off the tensors.

Checkpoints of TensorFlow 2 are read here, too: `tensorflow2` gives their variables the
names of TensorFlow 1.
"""

import math
import os
import pathlib
import re

import numpy as np

from keras_bertfam.presets.checkpoints import config_keys, mesh, reading, tensorflow2
from keras_bertfam.presets.checkpoints.source import (
    CheckpointError,
    CheckpointSource,
    LazyTensor,
)
from keras_bertfam.presets.families import tensorflow1_tables
from keras_bertfam.types import Path

_CONFIGS = (
    "bert_config.json",
    "albert_config.json",
    "electra_config.json",
    "xlnet_config.json",
)
_OPTIMIZER = re.compile(
    r"global_step|.*/(adam_[mv]|lamb_[mv]|Adam(_1)?)|.*_slot_[a-z]+"
)
# Names of the Model Garden's settings, and those of `transformers`.
_SETTINGS = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    **{
        name: name
        for name in (
            "vocab_size",
            "embedding_size",
            "hidden_size",
            "intermediate_size",
            "num_attention_heads",
            "max_position_embeddings",
            "type_vocab_size",
        )
    },
}
# Patterns of names, and what replaces them in the names of `transformers`. They are
# applied in order, after the patterns of the family's record.
_ALL = (
    (r"(word|position|token_type)_embeddings$", r"\1_embeddings/weight"),
    (r"/output_weights$", "/weight"),
    (r"/output_bias$", "/bias"),
    (r"/gamma$", "/weight"),
    (r"/beta$", "/bias"),
    (r"/kernel$", "/weight"),
    (r"/", "."),
)


def recognises(path: Path) -> bool:
    """Tell whether a path is the folder or the prefix of such a checkpoint."""
    return _prefix(path) is not None


def _prefix(path):
    """Find a checkpoint's path without `.index`.

    `None` stands for no checkpoint, and for several in one folder.
    """
    path = os.fspath(path).removesuffix(".index")
    if os.path.isfile(f"{path}.index"):
        return path
    if not os.path.isdir(path) or os.path.exists(os.path.join(path, "config.json")):
        return None
    if (saved := tensorflow2.files_of(path)) is not None:
        return saved[0]
    found = sorted(pathlib.Path(path).glob("*.index"))
    return str(found[0])[: -len(".index")] if len(found) == 1 else None


def open_source(path: Path) -> CheckpointSource:
    """Open the checkpoint in a folder, or the one of a path without `.index`.

    Args:
        path: path of the folder, or of the checkpoint.

    Returns:
        `CheckpointSource`.

    Raises:
        CheckpointError: for missing or damaged files, and for models of a family that
            isn't supported.
    """
    import tensorflow as tf

    prefix = _prefix(path)
    folder = os.path.dirname(prefix)
    for name in os.listdir(folder):
        if name.startswith(os.path.basename(prefix)):
            reading.file_in(folder, name)
    saved = tensorflow2.files_of(os.fspath(path))
    folder = folder if saved is None else os.fspath(path)
    # TensorFlow's reader doesn't say which exceptions it raises.
    with reading.errors_of(prefix, Exception):
        reader = tf.train.load_checkpoint(prefix)
        if reader.has_tensor(tensorflow2.OBJECT_GRAPH):
            reader = tensorflow2.ReaderByName(reader, prefix)
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
    _check_stored(prefix, shapes, dtypes)
    shapes = {name: s for name, s in shapes.items() if not _OPTIMIZER.fullmatch(name)}
    family = _family(prefix, shapes)
    tensors = _tensors(reader, shapes, family)
    notes: list[str] = [*getattr(reader, "notes", ())]
    if tensorflow1_tables()[family].gin:
        config = mesh.config_of(prefix, tensors, notes)
    else:
        config = _config(folder, family, shapes, reader, notes)
    generator = {}
    if tensorflow1_tables()[family].generator:
        generator = _generator(path, family, reader, shapes, config)
        own = ("generator/", "generator_predictions/")
        shapes = {name: s for name, s in shapes.items() if not name.startswith(own)}
        tensors = _tensors(reader, shapes, family)
    files, tokenizer_config = _tokenizer(folder if saved is None else saved[1])
    if getattr(reader, "lowercase", None) is not None:
        tokenizer_config["do_lower_case"] = reader.lowercase
    return CheckpointSource(
        path=os.fspath(path),
        family=family,
        config=config,
        tensors=reading.Tensors(tensors),
        tokenizer_files=files,
        tokenizer_config=tokenizer_config,
        parts=generator,
        notes=tuple(notes),
    )


def _check_stored(prefix, shapes, dtypes):
    """Raise an error if the data files are smaller than the index declares."""
    declared = sum(math.prod(shapes[name]) * dtypes[name].size for name in shapes)
    files = pathlib.Path(prefix).parent.glob("*.data-*")
    start = f"{os.path.basename(prefix)}.data-"
    stored = sum(f.stat().st_size for f in files if f.name.startswith(start))
    if declared > stored:
        raise CheckpointError(
            f"The checkpoint {prefix!r} is not whole. Expected: {declared} bytes in "
            f"{start}*. Received: {stored}."
        )


def _family(prefix, names):
    known = tensorflow1_tables()
    signs = [(sign, family) for family in known for sign in known[family].signs]
    for sign, family in sorted(signs, key=lambda pair: -len(pair[0])):
        if any(name.startswith(sign) for name in names):
            return family
    raise CheckpointError(
        f"The checkpoint {prefix!r} must be of one of the families "
        f"{', '.join(sorted(known))}. "
        f"Received variables such as {min(names, default=None)!r}."
    )


def _tensors(reader, shapes, family):
    """Make a dict from names in `transformers` to `LazyTensor`s of the variables."""
    tensors, table = {}, tensorflow1_tables()[family]
    for name, shape in shapes.items():
        new = name
        for pattern, replacement in (*table.names, *_ALL):
            new = re.sub(pattern, replacement, new)
        kernel = re.search(table.kernels, name) and len(shape) == 2
        stacked = table.stacked and re.fullmatch(table.stacked, name)
        if stacked and len(shape) > 2:
            for layer in range(shape[0]):
                new = table.stacked_name.format(layer=layer, part=stacked[1])
                tensors[new] = _tensor(
                    reader, name, shape[1:], lambda a, layer=layer: a[layer]
                )
            continue
        tensors[new] = _tensor(
            reader,
            name,
            shape[::-1] if kernel else shape,
            np.transpose if kernel else None,
        )
    return tensors


def _tensor(reader, name, shape, change):
    def read():
        array = reader.get_tensor(name)
        return array if change is None else change(array)

    return LazyTensor(read, shape)


def _config(folder, family, shapes, reader, notes):
    """Read or make the config, with the keys of `transformers`."""
    heads = getattr(reader, "num_heads", None)
    table = tensorflow1_tables()[family]
    file = next((n for n in _CONFIGS if os.path.exists(os.path.join(folder, n))), None)
    settings = tensorflow2.settings_of(folder, notes)
    if file is not None:
        config = reading.read_json(reading.file_in(folder, file))
    elif settings and f"{family}/embeddings/word_embeddings" in shapes:
        return _config_from_settings(folder, family, shapes, settings)
    elif table.sizes_from_shapes or (
        heads and f"{family}/encoder/layer_0/intermediate/dense/kernel" in shapes
    ):
        size = _config_from_shapes(family, shapes, family, family)
        return size | ({"num_attention_heads": heads} if heads else {})
    else:
        raise CheckpointError(
            f"The folder {folder!r} lacks a config. Expected one of the files "
            f"{', '.join(_CONFIGS)}."
        )
    config["model_type"] = family
    if config.get(table.activation, "gelu") == "gelu":
        config[table.activation] = "gelu_new"
    for theirs, original in table.renamed.items():
        config.setdefault(theirs, config.pop(original, None))
    odd = config_keys.unknown_keys(family, config)
    if odd:
        listed = ", ".join(f"{k}={str(value)[:60]!r}" for k, value in odd.items())
        notes.append(f"In {file}, and not known here: {listed}.")
    if table.head_width is not None:
        head, model, heads = table.head_width
        with reading.errors_of(file, TypeError, KeyError, ZeroDivisionError):
            width = config[model] // config[heads]
        if config.get(head, width) != width:
            raise CheckpointError(
                f"{head!r} of {file!r} must be {width}. Received: {config[head]!r}."
            )
    return config


def _config_from_settings(folder, family, shapes, settings):
    """Make a config from the Model Garden's settings; check them with the tensors."""
    words = shapes[f"{family}/embeddings/word_embeddings"]
    positions = shapes[f"{family}/embeddings/position_embeddings"]
    types = shapes[f"{family}/embeddings/token_type_embeddings"]
    told = {
        "vocab_size": words[0],
        "embedding_size": words[1],
        "max_position_embeddings": positions[0],
        "type_vocab_size": types[0],
    }
    inner = f"{family}/encoder/layer_0/intermediate/dense/kernel"
    if inner in shapes:
        blocks = {re.match(rf"{family}/encoder/layer_(\d+)/", name) for name in shapes}
        told["num_layers"] = len({match[1] for match in blocks if match})
        told |= zip(("hidden_size", "intermediate_size"), shapes[inner], strict=True)
    for name, size in told.items():
        if settings.get(name) not in (None, size):
            raise CheckpointError(
                f"{name!r} in params.yaml of {folder!r} must be {size}, as in "
                f"the tensors. Received: {settings[name]!r}."
            )
    given = {name: value for name, value in settings.items() if value is not None}
    given = {**given, **told}
    config = {
        theirs: given[ours] for ours, theirs in _SETTINGS.items() if ours in given
    }
    # The Model Garden's GELU is the tanh form.
    if config.get("hidden_act", "gelu") == "gelu":
        config["hidden_act"] = "gelu_new"
    return {"model_type": family, **config}


def _config_from_shapes(family, shapes, encoder, embeddings):
    """Make a config from the shapes. Heads of all released models are 64 wide."""
    try:
        words = shapes[f"{embeddings}/embeddings/word_embeddings"]
        inner = shapes[f"{encoder}/encoder/layer_0/intermediate/dense/kernel"]
        positions = shapes[f"{embeddings}/embeddings/position_embeddings"]
        types = shapes[f"{embeddings}/embeddings/token_type_embeddings"]
    except KeyError as error:
        raise CheckpointError(f"The checkpoint lacks {error}.") from error
    blocks = {re.match(rf"{encoder}/encoder/layer_(\d+)/", name) for name in shapes}
    return {
        "model_type": family,
        "vocab_size": words[0],
        "embedding_size": words[1],
        "hidden_size": inner[0],
        "intermediate_size": inner[1],
        "num_attention_heads": max(1, inner[0] // 64),
        "num_hidden_layers": len({match[1] for match in blocks if match}),
        "max_position_embeddings": positions[0],
        "type_vocab_size": types[0],
        "hidden_act": "gelu_new",
    }


def _generator(path, family, reader, shapes, config):
    """Make a source of the generator that is stored beside a discriminator."""
    if not any(name.startswith("generator/") for name in shapes):
        return {}
    own = {
        name: shape
        for name, shape in shapes.items()
        if name.startswith(("generator/", "generator_predictions/"))
    }
    # The generator shares each embedding table that it doesn't have itself.
    shared = {
        name: shape
        for name, shape in shapes.items()
        if name.startswith(f"{family}/embeddings/")
        and name.replace(f"{family}/", "generator/") not in own
    }
    size = _config_from_shapes(family, {**shapes, **own}, "generator", family)
    tensors = _tensors(reader, {**own, **shared}, family)
    start = f"{family}."
    tensors = {re.sub(r"^generator\.", start, n): t for n, t in tensors.items()}
    source = CheckpointSource(
        path=os.fspath(path),
        family=family,
        config={**config, **size},
        tensors=reading.Tensors(tensors),
    )
    return {"generator": source}


def _tokenizer(folder):
    """Find the tokenizer's files, and whether it lower-cases texts."""
    names = sorted(os.listdir(folder))
    pieces = [name for name in names if name.endswith(".model")]
    if "vocab.txt" in names:
        path = reading.file_in(folder, "vocab.txt")
        reading.check_bytes(path)
        with reading.errors_of(path, ValueError):
            tokens = path.read_text("utf-8").split("\n")
        cased = any(token != token.lower() and token[0] != "[" for token in tokens)
        config = {"do_lower_case": not cased, "max_input_chars_per_word": 200}
        return {"vocab.txt": str(path)}, config
    if len(pieces) == 1:
        return {"spiece.model": str(reading.file_in(folder, pieces[0]))}, {}
    return {}, {}
