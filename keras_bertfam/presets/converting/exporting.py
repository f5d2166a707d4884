"""Writes backbones and tasks as folders that `transformers` loads, by tables."""

import json
import pathlib
import types
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_bertfam.presets.checkpoints.generation_keys import GENERATION
from keras_bertfam.presets.converting import configs
from keras_bertfam.presets.converting.heads import (
    BACKBONE,
    LANGUAGE_MODELS,
    Counterpart,
    activation_note,
    class_config,
    counterpart,
)
from keras_bertfam.presets.converting.report import warn
from keras_bertfam.presets.families import (
    BACKBONES,
    FAMILIES,
    backbones_of,
    transformers_tables,
)
from keras_bertfam.presets.families.parts.tables import COPIES
from keras_bertfam.presets.families.parts.weight_maps import (
    OUTPUT_TABLE,
    WeightMap,
    applying,
    find,
)
from keras_bertfam.presets.folders import write_aside
from keras_bertfam.presets.inspection import check_no_preset
from keras_bertfam.presets.tokenizer_formats import tokenizer_files
from keras_bertfam.types import Model, Path, Tokenizer

_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def export_to_transformers(
    model: Model, path: Path, tokenizer: Tokenizer | None = None
) -> None:
    """Write a folder that `transformers` loads without missing or unexpected tensors.

    See `TokenBackbone.export_to_transformers`.

    Args:
        model: a backbone or a task.
        path: path of the folder to write.
        tokenizer: the tokenizer of a model without a preprocessor, if any.

    Raises:
        ValueError: if `transformers` has no such model, and if the folder is a preset,
            since its config would be replaced.
    """
    check_no_preset(path)
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ImportError(
            "Export needs safetensors: pip install 'keras-bertfam[hf]'."
        ) from error
    backbone: Model = getattr(model, "backbone", model)
    family, config = family_and_config(backbone)
    ours = checked_counterpart(model, family)
    table = transformers_tables()[family]
    for role in ours.heads.keys() & LANGUAGE_MODELS:
        head = getattr(model, ours.heads[role])
        if not hasattr(head, "activation"):
            continue
        if note := activation_note(head, table.head_activation):
            warn(note)
    for role in ours.heads.keys() & table.left_out.keys():
        if getattr(model, ours.heads[role]) is not None:
            warn(f"`transformers` has {table.left_out[role]}")
    prefixed = table.prefix and ours is not BACKBONE
    prefix = f"{table.prefix}." if prefixed else ""
    tensors = model_tensors(model, family, prefix)
    dtypes = {str(tensor.dtype) for tensor in tensors.values()}
    architecture = table.architecture(ours.ending)
    config |= ours.config | ours.config_of(model)
    for option, styles in table.styles.items() if ours.styled else ():
        names = {name: value for value, name in styles.items()}
        config[option] = names[model.head_style]
    if ours.labelled:
        config |= class_config(model)
    for role in ours.heads.keys() & table.dropouts.keys():
        if key := next(iter(table.dropouts[role]), None):
            # A rate that the encoder has under the same key comes first.
            config.setdefault(key, model.dropout)
    with write_aside(path) as folder:
        preprocessor = getattr(model, "preprocessor", None)
        tokenizer = preprocessor.tokenizer if preprocessor else tokenizer
        if tokenizer is not None:
            longest = getattr(backbone, "max_sequence_length", None)
            ids = tokenizer_files.export_tokenizer(tokenizer, folder, longest)
            _check_padding(table, config, tokenizer, ids)
            # The tokenizer's ids fill the keys that the model leaves open.
            config = {
                **config,
                **{k: v for k, v in ids.items() if config.get(k) is None},
            }
        unsaid = [k for k in table.needed if k in config and config[k] is None]
        config |= {k: table.needed[k] for k in unsaid}
        config |= {"architectures": [architecture], "dtype": min(dtypes)}
        text = json.dumps(config, indent=2, sort_keys=True)
        pathlib.Path(folder, "config.json").write_text(text + "\n", "utf-8")
        if generation := getattr(model, "generation", {}):
            ids = {key: config[key] for key in _IDS if config.get(key) is not None}
            text = json.dumps({**ids, **generation}, indent=2, sort_keys=True)
            pathlib.Path(folder, GENERATION).write_text(text + "\n", "utf-8")
        weights = pathlib.Path(folder, "model.safetensors")
        save_file(tensors, weights, metadata={"format": "pt"})
        for name, part in ours.parts(model).items():
            export_to_transformers(part, pathlib.Path(folder, name))


def family_and_config(backbone: Model) -> tuple[str, dict[str, Any]]:
    """Find the first family that has a backbone's class and arguments.

    Raises:
        ValueError: if `transformers` has no such model.
    """
    bases = {*type(backbone).__mro__}
    known = transformers_tables()
    families = [family for family in known if bases & {*backbones_of(family)}]
    if not families:  # a class of a user's own
        families = [f for f in known if known[f].prefix == f]
    families.sort(key=lambda family: BACKBONES[family] not in bases)
    errors = []
    for family in families:
        try:
            return family, configs.to_theirs(family, backbone)
        except ValueError as error:
            errors.append(error)
        except KeyError as error:
            name = type(backbone).__name__
            errors.append(
                ValueError(
                    f"`transformers` has no model like a {name}, as this class has no "
                    f"{error}."
                )
            )
    raise errors[0]


def checked_counterpart(model: Model, family: str) -> Counterpart:
    """Find the `Counterpart` of a model.

    Raises:
        ValueError: if `transformers` has no such model of the family.
    """
    table, style = transformers_tables()[family], FAMILIES[family].head_style.name
    backbone: Model = getattr(model, "backbone", model)
    ours = BACKBONE if backbone is model else counterpart(type(model))
    if ours is None or not ours.roles - {*ours.own} <= table.heads.keys():
        raise ValueError(
            f"`transformers` has no {table.title} of this kind. Received: "
            f"{type(model).__name__}."
        )
    known = [n for each in table.styles.values() for n in each.values()] or [style]
    if ours.styled and model.head_style not in known:
        raise ValueError(
            f"`transformers`' {table.title} has a head of the style "
            f"{' or '.join(map(repr, known))}. Received: "
            f"head_style={model.head_style!r}."
        )
    poolers = any("pooler" in weight.ours for weight in table.weights)
    if ours is BACKBONE and backbone.pooler is not None and not poolers:
        raise ValueError(
            f"`transformers`' {table.title} has no pooler. Received: pooler=True."
        )
    return ours


def model_tensors(
    model: Model, family: str, prefix: str = "", whole: bool = False
) -> dict[str, np.ndarray]:
    """Collect all tensors of a model by their names in `transformers`.

    Args:
        model: a backbone or a task.
        family: a key of `FAMILIES`, the backbone's.
        prefix: str. The prefix of the names of the backbone's tensors.
        whole: bool. Whether to collect a pooler and an output table also if the class
            of `transformers` has none.

    Returns:
        Dict from names to NumPy arrays.

    Raises:
        ValueError: for weights without a name in `transformers`.
    """
    table = transformers_tables()[family]
    ours = checked_counterpart(model, family)
    backbone: Model = getattr(model, "backbone", model)
    poolers = [weight for weight in table.weights if weight.ours.startswith("pooler")]
    weights = [weight for weight in table.weights if weight not in poolers]
    written: set[int] = set()
    tensors = collect_tensors(backbone, weights, backbone, prefix, written)
    for name in table.identities:
        if f"{prefix}{name}.weight" not in tensors:
            width, dtype = backbone.hidden_dim, next(iter(tensors.values())).dtype
            tensors[f"{prefix}{name}.weight"] = np.eye(width, dtype=dtype)
            tensors[f"{prefix}{name}.bias"] = np.zeros(width, dtype)
    if whole or ours.heads.keys() & LANGUAGE_MODELS:
        tensors |= collect_tensors(
            backbone, table.output_weights, backbone, written=written
        )
    if whole or ours.ending in table.pooled:
        others = (getattr(model, name, None) for name in ours.poolers)
        pooler = backbone.pooler or next(filter(None, others), None)
        owner = types.SimpleNamespace(pooler=pooler)
        tensors |= collect_tensors(owner, poolers, backbone, prefix, written)
    for role, attribute in ours.heads.items():
        head = getattr(model, attribute)
        if role in ours.own or head is None:
            continue
        tensors |= collect_tensors(head, table.heads[role], backbone, written=written)
    if not table.ties and ours.heads.keys() & LANGUAGE_MODELS:
        table_of_inputs = tensors[prefix + table.copies[str(table.output)]]
        tensors.setdefault(str(table.output), table_of_inputs.copy())
    if table.output in tensors:  # then `transformers` ties no other copies either
        biases = {n: o for n, o in COPIES.items() if n.endswith(".bias")}
        inputs = {
            n: o for n, o in table.copies.items() if prefix and n.startswith(prefix)
        }
        originals = {**biases, **{n: prefix + o for n, o in inputs.items()}}
        tensors |= {n: tensors[o].copy() for n, o in originals.items() if o in tensors}
    for part in ours.parts(model).values():
        layers = (part.backbone, part.head, part.position_queries)
        written |= {id(v) for each in layers if each is not None for v in each.weights}
    if hasattr(model, "weights"):
        _check_all_written(model, backbone, written)
    return tensors


def _check_padding(table, config, tokenizer, ids):
    """Raise an error for an id of padding that would shift positions.

    Where positions don't begin at 0, `transformers` counts the tokens that aren't
    padding, from the id of padding on.
    """
    # MPNet of `transformers` has the id in its code, and doesn't read the config.
    needed = 1 if table.title == "MPNet" else config.get("pad_token_id")
    counted = configs.counts_offset(table) or table.title == "MPNet"
    if counted and ids.get("pad_token_id") != needed:
        raise ValueError(
            f"`tokenizer` must have {needed} as the id of padding, from which "
            f"{table.title} of `transformers` counts positions (`position_offset` less "
            f"1). Received: a {type(tokenizer).__name__} with "
            f"pad_token_id={ids.get('pad_token_id')}."
        )


def _check_all_written(model, backbone, written):
    """Raise an error for weights that `transformers` has no place for."""
    # Some classes of `transformers` lack the pooler, some lack the state that queries
    # start from, and those without logits of tokens lack the output table.
    named = [(backbone, "pooler"), (backbone, "query_embedding")]
    for owner, name in (*named, (model, "baseline")):  # the last is for training
        layer = getattr(owner, name, None)
        written |= {id(v) for v in layer.weights} if layer is not None else set()
    if (differences := getattr(model, "differences", None)) is not None:
        written |= {id(v) for v in differences.weights}  # they are added to the tables
    if not (counterpart(type(model)) or BACKBONE).heads.keys() & LANGUAGE_MODELS:
        written.add(id(find(backbone, OUTPUT_TABLE)))
    lost = [v.path for v in model.weights if v.trainable and id(v) not in written]
    if lost:
        raise ValueError(
            f"`transformers` has no place for weights of this {type(model).__name__}. "
            f"Received: {', '.join(lost)}."
        )


def collect_tensors(
    owner: Any,
    weights: Iterable[WeightMap],
    backbone: Model,
    prefix: str = "",
    written: set[int] | None = None,
) -> dict[str, np.ndarray]:
    """Collect tensors by their names in `transformers`, and note their variables.

    Weights of LoRA are merged into the weights that they change.

    Args:
        owner: the layer or model that the paths of `weights` start from.
        weights: weight maps.
        backbone: the backbone.
        prefix: str. The prefix of the names.
        written: set to which the ids of the variables that were collected are added.

    Raises:
        ValueError: for a quantised variable.
    """
    tensors = {}
    for weight, variable in applying(weights, owner, backbone):
        layer = find(owner, weight.ours.rpartition(".")[0])
        if written is not None:
            merged = layer.weights if getattr(layer, "lora_enabled", False) else ()
            written |= {id(variable), *map(id, merged)}
        dtype = keras.backend.standardize_dtype(variable.dtype)
        quantized = getattr(layer, "quantization_mode", None)
        if quantized or not keras.backend.is_float_dtype(dtype):
            raise ValueError(
                "A quantised model can't be exported: export the float model. "
                f"Received: {weight.ours} of dtype {quantized or dtype}."
            )
        array = keras.ops.convert_to_numpy(variable)
        arrays = weight.transform.split(array, len(weight.theirs), backbone)
        for name, part in zip(weight.theirs, arrays, strict=True):
            tensors[prefix + name] = np.ascontiguousarray(part)
    return tensors
