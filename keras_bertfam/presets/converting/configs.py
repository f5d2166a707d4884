"""Turns configs of `transformers` into arguments of backbones, and back, by tables."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from keras_bertfam.presets.checkpoints.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.families import FAMILIES, transformers_tables
from keras_bertfam.presets.families.parts.tables import REQUIRED
from keras_bertfam.presets.sizes import MAX_LAYERS
from keras_bertfam.types import Model

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
# The original GPT has one form of GELU, the tanh form, and calls it "gelu".
_GPT_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu"}
_GPT_ACTIVATIONS["swish"] = "silu"
_TO_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
_TO_ACTIVATIONS["gelu_tanh"] = "gelu_new"
# For arguments or keys whose values differ: functions to our value and to theirs. A
# table of token types with one row counts as none, as every position gets this row.
_VALUES: dict[str, tuple[Callable, Callable]] = {
    "activation": (_ACTIVATIONS.get, lambda name: _TO_ACTIVATIONS.get(name, name)),
    "num_segments": (lambda n: 0 if n == 1 else n, lambda n: n or 1),
    "clamp_length": (lambda n: None if n < 0 else n, lambda n: -1 if n is None else n),
    "token_types": (lambda n: n, lambda n: n),  # DeBERTa's, which may be 0
    "position_offset": (lambda pad: pad + 1, lambda offset: offset - 1),
    "afn": (
        _GPT_ACTIVATIONS.get,
        lambda name: {"gelu_tanh": "gelu", "gelu": None}.get(name, name),
    ),
}
# T5's names tell the activation, and whether there is a gate. `gelu` is the erf form
# without a gate, and the tanh form with one.
_FEED_FORWARDS = {
    name: {"activation": _ACTIVATIONS[name], "gated": False}
    for name in ("relu", "gelu", "gelu_new", "silu", "tanh")
}
_FEED_FORWARDS |= {
    f"gated-{name}": {"activation": activation, "gated": True}
    for name, activation in (
        ("gelu", "gelu_tanh"),
        ("gelu_python", "gelu"),
        ("relu", "relu"),
        ("silu", "silu"),
        ("tanh", "tanh"),
    )
}
_SAME: tuple[Callable, Callable] = (lambda value: value, lambda value: value)
_RATES = ("dropout", "attention_dropout", "activation_dropout", "output_dropout")
_FLOATS = ("layer_norm_epsilon", "initializer_range")
_TEXTS = ("activation", "attention_type", "feed_forward")
_FLAGS = ("tie_embeddings", "scale_outputs")
# Arguments that the functions in a table's `forms` check.
_SEQUENCES = ("attention_window", "rotary_base")
# Arguments that don't change what a model computes.
_FREE = ("name", "trainable", "dtype", "truncated_initializer", "pooler") + (
    "uniform_initializer",
    "tie_embeddings",  # read off the tensors
)
_MAX_SIZE = 2**31 - 1


def to_ours(source: CheckpointSource) -> dict[str, Any]:
    """Read the arguments of a backbone from a checkpoint's config.

    Args:
        source: `CheckpointSource`.

    Returns:
        dict.

    Raises:
        CheckpointError: for missing keys, for values of a wrong type, and for values
            that no backbone here has.
    """
    table = transformers_tables()[source.family]
    source = _in_our_form(source, table)
    for key, value in table.required_config.items():
        if source.config.get(key, value) != value:
            raise _unfit(source, key, repr(value))
    arguments = dict(table.fixed)
    found: dict[str, Any] = {}
    for ours, theirs, default in _entries(table):
        value = source.config.get(theirs, default)
        if value is REQUIRED:
            raise CheckpointError(
                f"The config of {source.path!r} lacks the key {theirs!r}."
            )
        if not (value is None and default is None):
            _check(source, ours, theirs, value)
            value = _reader(ours, theirs)[0](value)
        if found.setdefault(ours, value) != value:
            raise _unfit(source, theirs, f"{found[ours]!r}, as under its other name")
    arguments |= found
    if pruned := source.config.get("pruned_heads"):
        arguments["pruned_heads"] = _pruned(source, pruned, arguments)
    if "feed_forward" in arguments:
        arguments |= _FEED_FORWARDS[arguments.pop("feed_forward")]
    if arguments.get("intermediate_dim", 0) is None:
        arguments["intermediate_dim"] = 4 * arguments["hidden_dim"]
    if counts_offset(table):
        arguments["max_sequence_length"] -= arguments["position_offset"]
        if arguments["max_sequence_length"] < 1:
            raise _unfit(
                source, "max_position_embeddings", "more than pad_token_id + 1"
            )
    return arguments


def _pruned(source, pruned, arguments):
    """List the pruned heads of each layer, from a dict by numbers of layers."""
    layers, heads = (arguments[name] for name in ("num_layers", "num_heads"))
    numbers = {str(layer): layer for layer in range(layers)}
    if not isinstance(pruned, dict) or not all(
        key in numbers
        and isinstance(gone, list)
        and all(type(head) is int and 0 <= head < heads for head in gone)
        for key, gone in pruned.items()
    ):
        raise _unfit(source, "pruned_heads", "lists of heads by numbers of layers")
    return [sorted({*pruned.get(key, ())}) for key in numbers]


def _in_our_form(source, table):
    """Rewrite the config of a source with the keys that the table has."""
    if table.forms is None:
        return source
    try:
        return dataclasses.replace(source, config=table.forms[0](source.config))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"The config of {source.path!r} fits no model here. {error}"
        ) from error


def _entries(table):
    """List the entries of a family's table, and the one on tied output tables."""
    tied = ("tie_embeddings", "tie_word_embeddings", True)
    return (*table.config, tied) if table.output else table.config


def counts_offset(table):
    """Tell whether a config counts rows before the first position, like RoBERTa's."""
    return any(ours == "position_offset" for ours, _, _ in table.config)


def _reader(ours, theirs):
    """Choose the functions that turn a value into ours, and into theirs."""
    return _VALUES.get(theirs, _VALUES.get(ours, _SAME))


def head_dropout(source: CheckpointSource, role: str) -> float:
    """Read the dropout rate of a fine-tuned head from a checkpoint's config.

    Raises:
        CheckpointError: for a value that isn't a number in [0, 1).
    """
    for key, default in transformers_tables()[source.family].dropouts[role].items():
        value = source.config.get(key, default)
        if value is not None:
            _check(source, "dropout", key, value)
            return value
    return 0.0


def head_style(source: CheckpointSource) -> str:
    """Name the style of a checkpoint's heads.

    Raises:
        CheckpointError: for a config of a head whose style isn't supported.
    """
    table = transformers_tables()[source.family]
    for key, styles in table.styles.items():
        names = (key, table.other_names.get(key, key))
        given = (source.config[name] for name in names if name in source.config)
        value = next(given, next(iter(styles)))
        if not isinstance(value, str) or value not in styles:
            raise _unfit(source, key, " or ".join(map(repr, styles)))
        return styles[value]
    return FAMILIES[source.family].head_style.name


def check_head(source: CheckpointSource, required: Mapping[str, tuple]) -> None:
    """Raise an error for a config whose head differs from ours.

    Args:
        source: `CheckpointSource`.
        required: dict from keys to the values that they may have. The first one stands
            for a config without the key.
    """
    for key, values in required.items():
        if source.config.get(key, values[0]) not in values:
            raise _unfit(source, key, " or ".join(map(repr, values)))


def _check(source, ours, theirs, value):
    """Raise an error for a value that an argument can't have."""
    if ours in _SEQUENCES:
        return
    if ours in _TEXTS:
        options = {"activation": _ACTIVATIONS, "feed_forward": _FEED_FORWARDS}.get(
            ours, ("bi", "uni")
        )
        options = _GPT_ACTIVATIONS if theirs == "afn" else options
        fits = isinstance(value, str) and value in options
        expected = f"one of {', '.join(options)}"
    elif ours in _FLAGS:
        fits, expected = isinstance(value, bool), "true or false"
    elif ours in _RATES:
        fits, expected = _is_number(value) and 0 <= value < 1, "a number in [0, 1)"
    elif ours in _FLOATS:
        fits = _is_number(value) and 0 <= value < math.inf
        expected = "a number that isn't negative"
    else:
        least = {"clamp_length": -1, "position_offset": 0, "convolution": 0}
        least["num_languages"] = 0
        least = 0 if theirs == "token_types" else least.get(ours, 1)
        most = MAX_LAYERS if ours == "num_layers" else _MAX_SIZE
        whole = isinstance(value, int) and not isinstance(value, bool)
        fits = whole and least <= value <= most
        expected = f"an integer from {least} to {most}"
    if not fits:
        raise _unfit(source, theirs, expected)


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _unfit(source, key, expected):
    return CheckpointError(
        f"The config of {source.path!r} fits no model here. Expected {key!r} to be "
        f"{expected}. Received: {source.config.get(key)!r}."
    )


def _feed_forward(arguments):
    """Find T5's name of an activation and gate; give our name if T5 has none."""
    wanted = {name: arguments[name] for name in ("activation", "gated")}
    names = (name for name, each in _FEED_FORWARDS.items() if each == wanted)
    return next(names, arguments["activation"])


def to_theirs(family: str, backbone: Model) -> dict[str, Any]:
    """Make the config of `transformers` for a backbone.

    Args:
        family: a key of `FAMILIES`.
        backbone: a backbone.

    Returns:
        dict, without `architectures`.

    Raises:
        ValueError: if `transformers` has no model of the family with the backbone's
            arguments. The message names them.
    """
    arguments = backbone.get_config()
    table = transformers_tables()[family]
    theirs = {"model_type": family, **table.required_config}
    for ours, key, _ in _entries(table):
        if ours == "feed_forward":
            theirs[key] = _feed_forward(arguments)
        else:
            theirs[key] = _reader(ours, key)[1](arguments[ours])
    if counts_offset(table):
        if not arguments["position_offset"]:
            raise ValueError(
                "`position_offset` must be at least 1 for a model of `transformers` "
                f"of the family {family!r}. Received: 0."
            )
        theirs["max_position_embeddings"] += arguments["position_offset"]
    if table.forms is not None:
        theirs = table.forms[1](theirs)
    back = to_ours(CheckpointSource("", family, theirs, {}))
    implied = {
        "embedding_dim": arguments["hidden_dim"],
        "head_dim": arguments["hidden_dim"] // arguments["num_heads"],
        "pruned_heads": None,
        "head_gates": None,
    }
    back |= {name: value for name, value in implied.items() if back.get(name) is None}
    lost = [
        f"{name}={value!r}"
        for name, value in arguments.items()
        if name not in _FREE and back.get(name, REQUIRED) != value
    ]
    if lost:
        raise ValueError(
            f"`transformers` has no model of the family {family!r} with the arguments "
            f"of this {type(backbone).__name__}. Received: {', '.join(lost)}."
        )
    return theirs
