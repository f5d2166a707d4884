"""Checks of the sizes in a backbone's config against the stored weights."""

import itertools
import math
from typing import Any

from keras_bertfam.quantization import values_per_weight
from keras_bertfam.transformer_config import FIELDS
from keras_bertfam.types import Shapes

# Arguments of a backbone that are sizes of its weights: a Transformer's, then ELMo's
# and KerasHub's.
_SIZES = [name for name, field in FIELDS.items() if field.metadata.get("of_weights")]
_SIZES += ["vocab_size", "key_value_dim", "cell_dim"]
# Arguments that are lists of sizes.
_MANY = ("filters", "cutoffs")
# The other numbers of a backbone, by name: each must be less than this limit.
_NUMBERS = {
    name: field.metadata["most_in_files"]
    for name, field in FIELDS.items()
    if field.metadata and not field.metadata["of_weights"] and name != "num_layers"
}
_NUMBERS |= {"clamp_length": 2**31, "max_characters": 10_000}
# Limits. `MAX_LAYERS` is for layers that share weights or have no stored weights,
# `_MAX_SIZE` and `_MAX_VALUES` are for a model without stored weights.
MAX_LAYERS, _MAX_SIZE, _MAX_VALUES = 256, 2**31 - 1, 2**32


def check_sizes(config: Any, shapes: Shapes, where: str) -> None:
    """Raise a `ValueError` if a backbone's config doesn't fit its stored weights.

    The check keeps a damaged or hostile config from asking for any amount of memory.
    For example, a `hidden_dim` of 4096 is refused if all dimensions of the stored
    weights are smaller.

    Args:
        config: serialised object; backbones in it are checked as well.
        shapes: dict, see `weights_of`.
        where: str, for the message.
    """
    for value in config.values() if isinstance(config, dict) else ():
        check_sizes(value, shapes, where)
    if not isinstance(config, dict) or not config.keys() & {
        "vocabulary_size",
        "vocab_size",
    }:
        return
    _check_numbers(config, where)
    packed = values_per_weight(config.get("dtype"))
    dims = (packed * dim for shape in shapes.values() for dim in shape)
    largest = max(dims, default=_MAX_SIZE)
    shared = config.get("share") == "all" or "num_inner_repetitions" in config
    limits = dict.fromkeys(_SIZES, largest)
    rotated = config.get("rotary_base") is not None
    if rotated:  # positions have no table
        limits["max_sequence_length"] = _MAX_SIZE
    if "max_characters" in config:  # words have no table
        limits["vocabulary_size"] = _MAX_SIZE
    elif config.get("cutoffs") and shapes:  # words are in several tables
        limits["vocabulary_size"] = sum(shape[0] for shape in shapes.values() if shape)
    blocks = len(shapes) if shapes else MAX_LAYERS
    counts = ("num_groups", "num_inner_repetitions", "num_highways")
    limits |= dict.fromkeys(counts, blocks)
    limits["num_layers"] = MAX_LAYERS if shared else blocks
    limits["num_decoder_layers"] = blocks
    sizes = {name: config[name] for name in limits if config.get(name) is not None}
    for name, size in sizes.items():
        if type(size) is not int or not 0 <= size <= limits[name]:
            raise ValueError(
                f"{where!r} doesn't fit its weights. Expected an int `{name}` of at "
                f"most {limits[name]}. Received: {size!r}."
            )
    many = {name: [*_integers(config.get(name))] for name in _MANY}
    for name, values in many.items():
        most = max(largest, sizes.get("vocabulary_size", 0))
        if not all(-1 <= value <= most for value in values):
            raise ValueError(
                f"{where!r} doesn't fit its weights. Expected sizes of at most {most} "
                f"in `{name}`. Received: {config[name]!r}."
            )
    layers = sizes.get("num_inner_repetitions", 1) * max(
        sizes.get("num_layers", 1) + sizes.get("num_decoder_layers", 0),
        sizes.get("num_groups", 1),
    )
    if shared and layers > MAX_LAYERS:
        raise ValueError(
            f"{where!r} must have at most {MAX_LAYERS} layers. Received: {layers}."
        )
    stored = sum(map(math.prod, shapes.values())) * packed if shapes else _MAX_VALUES
    width = sizes.get("hidden_dim", 1)
    positions = sizes.get("position_offset", 0)
    positions += 0 if rotated else sizes.get("max_sequence_length", 0)
    tables = ["vocab_size", "num_segments", "num_languages"]
    tables.append("relative_buckets")
    if "max_characters" not in config and not many["cutoffs"]:
        tables.append("vocabulary_size")
    rows = max(positions, *(sizes.get(name, 0) for name in tables))
    table = rows * sizes.get("embedding_dim", width)
    ends = [0, *many["cutoffs"], sizes.get("vocabulary_size", 0)]
    divisor = max(1, *_integers(config.get("divisor")), 1)
    for k, (first, last) in enumerate(itertools.pairwise(ends)):
        if many["cutoffs"]:
            table = max(table, (last - first) * (width // divisor ** min(k, 31)))
    head_dim = sizes.get("head_dim") or sizes.get("key_value_dim", 1)
    heads = sizes.get("num_heads", 1) * head_dim
    inner = max(sizes.get("intermediate_dim", 1), heads, 4 * sizes.get("cell_dim", 0))
    channels = sum(many["filters"])  # the outputs of all convolutions
    kernel = max(
        width * max(inner, channels), channels**2 * min(1, sizes.get("num_highways", 0))
    )
    if not shapes:  # one in each layer
        kernel = layers * max(kernel, width**2)
    if max(table, kernel) > stored:
        raise ValueError(
            f"{where!r} doesn't fit its weights. Expected at most {stored} values in "
            f"a weight. Received sizes for {max(table, kernel)}: {sizes}."
        )


def _integers(value):
    """Give the integers of a value: an int, or lists of ints that may be nested."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _integers(each)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _check_numbers(config, where):
    """Raise a `ValueError` for a rate or another number that is out of range."""
    for name, most in _NUMBERS.items():
        value = config.get(name, 0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value < most):
            raise ValueError(
                f"`{name}` in {where!r} must be a number from 0 to less than {most}. "
                f"Received: {value!r}."
            )
