"""Reads the checkpoints of google-research's BERT, ALBERT and ELECTRA, and of XLNet.

They are files of TensorFlow 1, `*.ckpt.index` beside `*.ckpt.data-*`, with a
`bert_config.json` or `xlnet_config.json` and a vocabulary. Their GELU is the tanh
form, whatever their config calls it.
"""

import math
import os
import pathlib
import re

import numpy as np

from keras_bertfam.presets import reading
from keras_bertfam.presets.source import CheckpointError, CheckpointSource, LazyTensor

_CONFIGS = ("bert_config.json", "albert_config.json", "electra_config.json")
_CONFIGS += ("xlnet_config.json",)
_OPTIMIZER = re.compile(r"global_step|.*/(adam_[mv]|lamb_[mv]|Adam(_1)?)")
# By the first name that a checkpoint has.
_FAMILIES = {
    "discriminator_predictions/": "electra",
    "electra/": "electra",
    "model/transformer/": "xlnet",
    "bert/encoder/transformer/": "albert",
    "bert/": "bert",
}

# Pairs of a pattern of the original name and of that in `transformers`, applied in
# order, then those for all families.
_BLOCK = ((r"(encoder|transformer)/layer_(\d+)/", r"\1.layer.\2."),)
_NAMES = {
    "bert": (
        *_BLOCK,
        (r"^output_(weights|bias)$", r"classifier/output_\1"),
        (r"^cls/squad/", "qa_outputs/"),
    ),
    "albert": (
        (r"^bert/", "albert/"),
        (r"/transformer/group_(\d+)/", r".albert_layer_groups.\1."),
        (r"inner_group_(\d+)/", r"albert_layers.\1."),
        (r"attention_1/self/", "attention/"),
        (r"attention_1/output/", "attention/"),
        (r"ffn_1/intermediate/output/dense", "ffn_output"),
        (r"ffn_1/intermediate/dense", "ffn"),
        (r"LayerNorm_1/", "full_layer_layer_norm/"),
        (r"albert_layers\.(\d+)\.LayerNorm/", r"albert_layers.\1.attention/LayerNorm/"),
        (r"pooler/dense", "pooler"),
        (r"^cls/predictions/transform/", "predictions/"),
        (r"^cls/predictions/", "predictions/"),
        (r"^cls/seq_relationship/", "sop_classifier/classifier/"),
        (r"^output_(weights|bias)$", r"classifier/output_\1"),
        (r"^cls/squad/", "qa_outputs/"),
    ),
    "electra": (
        *_BLOCK,
        (
            r"discriminator_predictions/dense_1",
            "discriminator_predictions/dense_prediction",
        ),
        (r"generator_predictions/output_bias", "generator_lm_head/bias"),
    ),
    "xlnet": (
        (r"^model/lm_loss", "lm_loss"),
        (r"^model/transformer/", "transformer/"),
        (r"word_embedding/lookup_table", "word_embedding/weight"),
        (r"mask_emb/mask_emb", "mask_emb"),
        *_BLOCK,
        (r"rel_attn/LayerNorm/", "rel_attn/layer_norm/"),
        (r"ff/LayerNorm/", "ff/layer_norm/"),
        (r"rel_attn/([qkvro])/kernel$", r"rel_attn/\1"),
    ),
}
_ALL = (
    (r"(word|position|token_type)_embeddings$", r"\1_embeddings/weight"),
    (r"/output_weights$", "/weight"),
    (r"/output_bias$", "/bias"),
    (r"/gamma$", "/weight"),
    (r"/beta$", "/bias"),
    (r"/kernel$", "/weight"),
    (r"/", "."),
)


def recognises(path):
    """Whether it is a folder or a prefix of such a checkpoint."""
    return _prefix(path) is not None


def _prefix(path):
    """The path of a checkpoint without `.index`; `None` if there is none or many."""
    path = os.fspath(path).removesuffix(".index")
    if os.path.isfile(f"{path}.index"):
        return path
    if not os.path.isdir(path) or os.path.exists(os.path.join(path, "config.json")):
        return None
    found = sorted(pathlib.Path(path).glob("*.index"))
    return str(found[0])[: -len(".index")] if len(found) == 1 else None


def open_source(path):
    """The checkpoint in a folder, or with a path without `.index`.

    Args:
        path: path of the folder, or of the checkpoint.

    Returns:
        `CheckpointSource`.

    Raises:
        CheckpointError: for missing or damaged files, and models that no family
            here is.
    """
    import tensorflow as tf

    prefix = _prefix(path)
    folder = os.path.dirname(prefix)
    for name in os.listdir(folder):
        if name.startswith(os.path.basename(prefix)):
            reading.file_in(folder, name)
    # The reader of a foreign format: it names no exceptions of its own.
    with reading.errors_of(prefix, Exception):
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
    _check_stored(prefix, shapes, dtypes)
    shapes = {name: s for name, s in shapes.items() if not _OPTIMIZER.fullmatch(name)}
    family = _family(prefix, shapes)
    config = _config(folder, family, shapes)
    tensors = _tensors(reader, shapes, family)
    generator = {}
    if family == "electra":
        generator = _generator(path, reader, shapes, config)
        own = ("generator/", "generator_predictions/")
        shapes = {name: s for name, s in shapes.items() if not name.startswith(own)}
        tensors = _tensors(reader, shapes, family)
    files, tokenizer_config = _tokenizer(folder)
    return CheckpointSource(
        path=os.fspath(path),
        family=family,
        config=config,
        tensors=reading.Tensors(tensors),
        tokenizer_files=files,
        tokenizer_config=tokenizer_config,
        parts=generator,
    )


def _check_stored(prefix, shapes, dtypes):
    """Raise an error if the data files are shorter than what the index declares."""
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
    for start, family in _FAMILIES.items():
        if any(name.startswith(start) for name in names):
            return family
    raise CheckpointError(
        f"The checkpoint {prefix!r} must be of BERT, ALBERT, ELECTRA or XLNet. "
        f"Received variables such as {min(names, default=None)!r}."
    )


def _tensors(reader, shapes, family):
    """The variables as `LazyTensor`s by their names in `transformers`."""
    tensors = {}
    for name, shape in shapes.items():
        new = name
        for pattern, replacement in (*_NAMES[family], *_ALL):
            new = re.sub(pattern, replacement, new)
        kernel = name.endswith("/kernel") and len(shape) == 2
        if family == "xlnet" and (stacked := _stacked(name)):
            for layer in range(shape[0]):
                tensors[stacked.format(layer)] = _tensor(
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


def _stacked(name):
    """XLNet's variables that hold one tensor for each layer."""
    match = re.fullmatch(r"model/transformer/(r_[wrs]_bias|seg_embed)", name)
    return match and f"transformer.layer.{{}}.rel_attn.{match[1]}"


def _tensor(reader, name, shape, change):
    def read():
        array = reader.get_tensor(name)
        return array if change is None else change(array)

    return LazyTensor(read, shape)


def _config(folder, family, shapes):
    """The config as `transformers` has it."""
    file = next((n for n in _CONFIGS if os.path.exists(os.path.join(folder, n))), None)
    if file is not None:
        config = reading.read_json(reading.file_in(folder, file))
    elif family == "electra":  # released without
        return _electra_config(shapes, "electra/", "electra")
    else:
        raise CheckpointError(
            f"The folder {folder!r} lacks a config. Expected one of the files "
            f"{', '.join(_CONFIGS)}."
        )
    config["model_type"] = family
    activation = "ff_activation" if family == "xlnet" else "hidden_act"
    if config.get(activation, "gelu") == "gelu":
        config[activation] = "gelu_new"
    if family == "xlnet":
        config.setdefault("vocab_size", config.pop("n_token", None))
        with reading.errors_of(file, TypeError, KeyError, ZeroDivisionError):
            width = config["d_model"] // config["n_head"]
        if config.get("d_head", width) != width:
            raise CheckpointError(
                f"`d_head` of {file!r} must be {width}. Received: {config['d_head']!r}."
            )
    return config


def _electra_config(shapes, encoder, embeddings):
    """A config from the shapes: all released models have heads of 64."""
    try:
        words = shapes[f"{embeddings}/embeddings/word_embeddings"]
        inner = shapes[f"{encoder}encoder/layer_0/intermediate/dense/kernel"]
        positions = shapes[f"{embeddings}/embeddings/position_embeddings"]
        types = shapes[f"{embeddings}/embeddings/token_type_embeddings"]
    except KeyError as error:
        raise CheckpointError(f"The checkpoint lacks {error}") from error
    blocks = {re.match(rf"{encoder}encoder/layer_(\d+)/", name) for name in shapes}
    return {
        "model_type": "electra",
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


def _generator(path, reader, shapes, config):
    """ELECTRA's generator beside its discriminator: a source of its own."""
    if not any(name.startswith("generator/") for name in shapes):
        return {}
    own = {
        name: shape
        for name, shape in shapes.items()
        if name.startswith(("generator/", "generator_predictions/"))
    }
    # Its tables are the discriminator's, unless it has some of its own.
    shared = {
        name: shape
        for name, shape in shapes.items()
        if name.startswith("electra/embeddings/")
        and name.replace("electra/", "generator/") not in own
    }
    size = _electra_config({**shapes, **own}, "generator/", "electra")
    tensors = _tensors(reader, {**own, **shared}, "electra")
    tensors = {re.sub(r"^generator\.", "electra.", n): t for n, t in tensors.items()}
    source = CheckpointSource(
        path=os.fspath(path),
        family="electra",
        config={**config, **size},
        tensors=reading.Tensors(tensors),
    )
    return {"generator": source}


def _tokenizer(folder):
    """Tokenizer files by the names of `transformers`, and whether to lower-case."""
    names = sorted(os.listdir(folder))
    pieces = [name for name in names if name.endswith(".model")]
    if "vocab.txt" in names:
        path = reading.file_in(folder, "vocab.txt")
        with reading.errors_of(path, ValueError):
            tokens = path.read_text("utf-8").split("\n")
        cased = any(token != token.lower() and token[0] != "[" for token in tokens)
        return {"vocab.txt": str(path)}, {"do_lower_case": not cased}
    if len(pieces) == 1:
        return {"spiece.model": str(reading.file_in(folder, pieces[0]))}, {}
    return {}, {}
