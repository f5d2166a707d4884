"""Reads presets of KerasHub's own classes, and makes KerasHub's models of ours."""

import functools
import os
import re
from typing import Any

import keras
import keras_hub
import numpy as np

from keras_bertfam.presets import inspection, preset_checks, untrusted_files
from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.checkpoints.source import (
    CheckpointError,
    CheckpointSource,
    LazyTensor,
)
from keras_bertfam.presets.converting import exporting
from keras_bertfam.presets.converting.heads import counterpart
from keras_bertfam.presets.families import keras_hub_tables
from keras_bertfam.presets.families.parts.keras_hub_weights import ConditionalMap
from keras_bertfam.presets.families.parts.weight_maps import find
from keras_bertfam.types import Model, Path

_PACKAGES = ("keras_hub>", "keras_nlp>")
_TOKENIZER_FILES = {
    "vocabulary.txt": "vocab.txt",
    "vocabulary.json": "vocab.json",
    "merges.txt": "merges.txt",
    "vocabulary.spm": "spiece.model",
}
# KerasHub's names of tasks without the family, and our roles of their heads.
_TASKS = {
    "MaskedLM": "masked_lm",
    "TextClassifier": "classifier",
    "CausalLM": "causal_lm",
    "Seq2SeqLM": "seq2seq_lm",
}
# Keys of our configs that KerasHub's classes lack, and that change no result.
_FREE = ("model_type", "initializer_range", "architectures")
# Keys of the files beside the backbone's, and the values that they may have. `None`
# marks a key without a meaning here. Keys that aren't listed are used, or refused.
_COMMON = dict.fromkeys(
    ("name", "trainable", "dtype", "build_config", "registered_name")
)
KEYS: dict[str, dict[str, tuple | None]] = {
    preset_checks.TASK_FILE: {
        **_COMMON,
        "backbone": None,
        "preprocessor": None,
        # The shapes give these two.
        "num_classes": None,
        "hidden_dim": None,
        "pooling": None,
    },
    preset_checks.PREPROCESSOR_FILE: {
        **_COMMON,
        "tokenizer": None,
        "config_file": None,
        "add_start_token": (True,),
        "add_end_token": (True,),
    },
    inspection.TOKENIZER_FILE: {
        **_COMMON,
        "config_file": None,
        "vocabulary": None,
        "merges": None,
        "proto": None,
        # The class has these itself.
        "special_tokens": None,
        "unsplittable_tokens": None,
        "sequence_length": (None,),
        "split": (True,),
        "suffix_indicator": ("##",),
        "oov_token": ("[UNK]",),
        "add_bos": (False,),
        "add_eos": (False,),
    },
}
# Arguments of our preprocessors, by KerasHub's names.
_PREPROCESSORS = {
    "sequence_length": "sequence_length",
    "encoder_sequence_length": "sequence_length",
    "decoder_sequence_length": "target_length",
    "mask_selection_rate": "mask_selection_rate",
    "mask_selection_length": "mask_selection_length",
    "mask_token_rate": "mask_token_rate",
    "random_token_rate": "random_token_rate",
}
_TOKENIZERS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "special_tokens_in_strings": "special_tokens_in_strings",
    "add_prefix_space": "add_prefix_space",
}
# A classifier's activation, and the arguments of ours.
_ACTIVATIONS: dict[str | None, dict[str, Any]] = {
    None: {},
    "linear": {},
    "softmax": {"activation": "softmax"},
    "sigmoid": {"activation": "sigmoid", "multi_label": True},
}
_ENDINGS = {"Seq2SeqLM": "TextToText"}
# The name of a variable that is a third of a tensor, such as GPT-2's queries.
_THIRD = re.compile(r"(.+)\[([012])\]")


def recognises(path: Path) -> bool:
    """Tell whether a path is a preset directory of a class of KerasHub."""
    try:
        config = reading.read_json(reading.file_in(path, preset_checks.CONFIG_FILE))
    except CheckpointError:
        return False
    name = config.get("registered_name")
    return isinstance(name, str) and name.startswith(_PACKAGES)


def open_source(path: Path) -> CheckpointSource:
    """Open the checkpoint in a preset directory of KerasHub.

    KerasHub loads the model, and each tensor is a view of one of its variables. Unlike
    with other formats, two models are therefore in memory: KerasHub's and ours.

    Args:
        path: path of the directory.

    Returns:
        `CheckpointSource`.

    Raises:
        CheckpointError: for missing or damaged files, and for classes of a family that
            isn't supported.
    """
    path = os.fspath(path)
    try:
        with preset_checks.explain_load_errors(path):
            shapes = preset_checks.inspect_backbone(path)
            preset_checks.inspect_task(path)
            config = untrusted_files.read_config(path, preset_checks.CONFIG_FILE)
            name = config["registered_name"].partition(">")[2]
            tables = keras_hub_tables()
            classes = {tables[family].backbone: family for family in tables}
            if name not in classes:
                raise CheckpointError(
                    f"The preset in {path!r} must be of one of KerasHub's classes "
                    f"{', '.join(sorted(classes))}. Received: {name}."
                )
            family = classes[name]
            table = tables[family]
            tensors = _tensors(_load(path, table), table) if shapes else {}
            return CheckpointSource(
                path=path,
                family=family,
                config=_config(family, config["config"]),
                tensors=tensors,
                tokenizer_files=_tokenizer_files(path),
                tokenizer_config=_tokenizer_config(path),
                task_arguments=_task_arguments(path, table),
                **_preprocessor(path, table),
            )
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def _config(family, arguments):
    """Make the config of `transformers` from the arguments of a family's class."""
    table = keras_hub_tables()[family]
    config = {"model_type": family, "tie_word_embeddings": True, **table.fixed}
    config |= {theirs: arguments[ours] for theirs, ours in table.config.items()}
    if table.first_position:
        config["max_position_embeddings"] += table.first_position
    if config.get("d_kv", 0) is None:
        config["d_kv"] = config["d_model"] // config["num_heads"]
    for key, options in table.choices.items():
        fitting = [
            value
            for value, wanted in options.items()
            if all(_name(arguments[k]) == _name(v) for k, v in wanted.items())
        ]
        if not fitting:
            received = {k: arguments[k] for k in next(iter(options.values()))}
            raise CheckpointError(
                f"{table.backbone} of KerasHub must have arguments that {key!r} of "
                f"`transformers` has a value for, one of {', '.join(options)}. "
                f"Received: {received}."
            )
        config[key] = fitting[0]
    return config


def _name(value):
    """Reduce a function in a config to its name; leave other values."""
    return value["config"].partition(">")[2] if isinstance(value, dict) else value


def _load(path, table):
    """Load KerasHub's task if one with a head was saved, and else its backbone."""
    task = untrusted_files.read_config(path, preset_checks.TASK_FILE)
    title = "" if task is None else task["registered_name"].partition(">")[2]
    prefix = table.backbone.removesuffix("Backbone")
    if title.removeprefix(prefix) in table.heads and title.startswith(prefix):
        return getattr(keras_hub.models, title).from_preset(path, preprocessor=None)
    return getattr(keras_hub.models, table.backbone).from_preset(path)


def _pairs(model, table):
    """Yield each weight map of a class with the variable of the model that it names."""
    variables = {variable.path: variable for variable in model.weights}
    prefix = table.backbone.removesuffix("Backbone")
    heads = table.heads.get(type(model).__name__.removeprefix(prefix), ())
    for weight in (*table.weights, *heads):
        layers = [weight]
        if "{layer}" in weight.ours:
            layers = [weight.at(index) for index in range(_num_layers(model))]
        for one in layers:
            if isinstance(one, ConditionalMap):
                there = _find(model, variables, one.other) is not None
                if there != one.wanted:
                    continue
            variable = _find(model, variables, one.ours)
            if variable is not None:
                yield one, variable


def _find(model, variables, path):
    """Find a variable by its path, or by the backbone's attributes; else `None`."""
    if "." not in path:
        return variables.get(path)
    return find(getattr(model, "backbone", model), path)


def _num_layers(model):
    return getattr(model, "backbone", model).num_layers


def _tensors(model, table):
    """Give the tensors of a model their names in `transformers`.

    Variables without such a name keep their paths, so that a warning reports them.
    """
    tensors, unknown = {}, {variable.path: variable for variable in model.weights}
    for weight, variable in _pairs(model, table):
        unknown.pop(variable.path, None)
        empty = np.zeros(
            tuple(variable.shape), "float32"
        )  # its pages are never touched
        parts = weight.transform.split(empty, len(weight.theirs), None)
        for index, (theirs, part) in enumerate(zip(weight.theirs, parts, strict=True)):

            def read(weight=weight, variable=variable, index=index):
                array = keras.ops.convert_to_numpy(variable.value)
                return weight.transform.split(array, len(weight.theirs), None)[index]

            tensors[theirs] = LazyTensor(read, part.shape)
    for path, variable in unknown.items():
        read = functools.partial(keras.ops.convert_to_numpy, variable.value)
        tensors[path] = LazyTensor(read, variable.shape)
    return _joined(tensors)


def _joined(tensors):
    """Concatenate the thirds of tensors, such as GPT-2's queries, keys and values."""
    thirds: dict[str, list[LazyTensor]] = {}
    for name in [name for name in tensors if _THIRD.fullmatch(name)]:
        thirds.setdefault(_THIRD.fullmatch(name)[1], []).append(tensors.pop(name))
    for name, parts in thirds.items():

        def read(parts=parts):
            return np.concatenate([np.asarray(part) for part in parts], -1)

        *rows, width = parts[0].shape
        tensors[name] = LazyTensor(read, (*rows, len(parts) * width))
    return tensors


def _tensor(tensors, name):
    """Find a tensor or a third of one; give `None` if it isn't there."""
    third = _THIRD.fullmatch(name)
    if third is None:
        return tensors.get(name)
    return np.split(tensors[third[1]], 3, -1)[int(third[2])]


def _tokenizer_files(path):
    folder = os.path.join(path, "assets", "tokenizer")
    return {
        theirs: os.path.join(folder, ours)
        for ours, theirs in _TOKENIZER_FILES.items()
        if untrusted_files.path_inside(path, f"assets/tokenizer/{ours}").exists()
    }


def _tokenizer_config(path):
    _, config = _read(path, inspection.TOKENIZER_FILE, _TOKENIZERS)
    return {_TOKENIZERS[key]: value for key, value in config.items()}


def _task_arguments(path, table):
    """Read the arguments of our task from the head that was saved."""
    title, config = _read(path, preset_checks.TASK_FILE, ("activation", "dropout"))
    if title.removeprefix(table.backbone.removesuffix("Backbone")) != "TextClassifier":
        return {}
    activation = config.get("activation")
    named = activation.get("config") if isinstance(activation, dict) else activation
    if not isinstance(named, str | None) or named not in _ACTIVATIONS:
        raise CheckpointError(
            f"'activation' of {path!r} must be one of "
            f"{', '.join(filter(None, _ACTIVATIONS))}. Received: {activation!r}."
        )
    arguments = dict(_ACTIVATIONS[named])
    if (rate := config.get("dropout")) is not None:
        if type(rate) not in (int, float) or not 0 <= rate < 1:
            raise CheckpointError(
                f"'dropout' of {path!r} must be a number in [0, 1). Received: {rate!r}."
            )
        arguments["dropout"] = rate
    return {"TextClassifier": arguments}


def _preprocessor(path, table):
    """Read the arguments of our preprocessor, and list what differs."""
    known = (*_PREPROCESSORS, "truncate")
    title, config = _read(path, preset_checks.PREPROCESSOR_FILE, known)
    kind = title.removeprefix(table.backbone.removesuffix("Backbone"))
    kind, notes = kind.removesuffix("Preprocessor"), []
    truncate = config.pop("truncate", "round_robin")
    if truncate != "round_robin":
        notes.append(
            f"In spite of truncate={truncate!r}, pairs that are too long lose the end "
            "of the longer text here."
        )
    for key, value in config.items():
        fits = type(value) is int and value > 0 if "length" in key else True
        if not fits and value is not None:
            raise CheckpointError(
                f"{key!r} of {path!r} must be a positive int. Received: {value!r}."
            )
    given = {_PREPROCESSORS[k]: v for k, v in config.items() if v is not None}
    return {
        "preprocessor_arguments": {_ENDINGS.get(kind, kind): given},
        "notes": tuple(notes),
    }


def _read(path, name, used):
    """Read the name of a class without its package, and the used keys of its config.

    Raises:
        CheckpointError: for an unknown key, and for a value that isn't allowed.
    """
    content = untrusted_files.read_config(path, name)
    if content is None:
        return "", {}
    config, known = content["config"], KEYS[name]
    for key, value in config.items():
        fits = key in used or known.get(key, ()) is None
        if not fits and value not in known.get(key, ()):
            expected = known.get(key)
            expected = f"be {expected[0]!r}" if expected else "not be there"
            raise CheckpointError(
                f"{key!r} of {name} in {path!r} must {expected}. Received: {value!r}."
            )
    title = content["registered_name"].partition(">")[2]
    return title, {key: config[key] for key in used if key in config}


def to_keras_hub(model: Model) -> Model:
    """Build the model of KerasHub with the same weights.

    See `models.Backbone.to_keras_hub`.
    """
    backbone: Model = getattr(model, "backbone", model)
    family, config = exporting.family_and_config(backbone)
    table = keras_hub_tables().get(family)
    if table is None:
        raise ValueError(
            f"`to_keras_hub` needs a model of a family that KerasHub has. "
            f"Received: {type(backbone).__name__}, of the family {family!r}."
        )
    arguments = _arguments(family, config, backbone)
    cls = getattr(keras_hub.models, table.backbone)
    theirs = cls(**arguments, dtype=backbone.dtype_policy)
    if model is not backbone:
        theirs = _make_task(model, table, theirs)
    tensors = exporting.model_tensors(model, family, whole=True)
    for weight, variable in _pairs(theirs, table):
        arrays = [_tensor(tensors, part) for part in weight.theirs]
        if arrays[0] is not None:
            variable.assign(weight.transform.join(arrays, backbone.num_heads))
    return theirs


def _make_task(model, table, backbone):
    """Make KerasHub's task of the same kind, with a new head.

    Raises:
        ValueError: if KerasHub has no such task.
    """
    ours = counterpart(type(model))
    role = next(iter(ours.roles), None) if ours and len(ours.roles) == 1 else None
    ending = next((ending for ending, each in _TASKS.items() if each == role), None)
    if ending not in table.heads:
        raise ValueError(
            f"KerasHub has no task of this kind for {table.backbone}. "
            f"Received: {type(model).__name__}."
        )
    cls = getattr(keras_hub.models, table.backbone.removesuffix("Backbone") + ending)
    if ending != "TextClassifier":
        return cls(backbone, preprocessor=None)
    kwargs = {name: getattr(model, name, None) for name in ("activation", "dropout")}
    return cls(backbone, model.head.num_classes, preprocessor=None, **kwargs)


def _arguments(family, config, backbone):
    """Make the arguments of KerasHub's class.

    Raises:
        ValueError: if its class has no such model.
    """
    table = keras_hub_tables()[family]
    config = {"inner_group_num": 1, **config}
    arguments = {ours: config[theirs] for theirs, ours in table.config.items()}
    if table.first_position:
        arguments["max_sequence_length"] -= table.first_position
    for key, options in table.choices.items():
        arguments |= options.get(config[key], next(iter(options.values())))
    back = {**config, **_config(family, arguments)}
    lost = [
        f"{key}={value!r} (there: {back[key]!r})"
        for key, value in config.items()
        if key not in _FREE and back[key] != value
    ]
    # Keras has a name for the other form only.
    if "gelu_new" in arguments.values():
        lost.append("activation='gelu_tanh'")
    if lost:
        raise ValueError(
            f"KerasHub has no {type(backbone).__name__} with these settings, by the "
            f"names of `transformers`: {', '.join(lost)}."
        )
    return arguments
