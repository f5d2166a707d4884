"""Tensors that files have twice: output tables and their biases."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bertfam.presets.families import transformers_tables
from keras_bertfam.presets.families.transformers_table import COPIES
from keras_bertfam.presets.source import CheckpointSource


def with_originals(tensors: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Add the tensors that a file has under the name of a copy only.

    A bias under the name of a copy takes the place of the original: `transformers`
    computes logits with it.

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
    """List the tensors of a checkpoint that differ from what they should be a copy of.

    Args:
        source: `CheckpointSource`.

    Returns:
        Dict from their names to those of the originals.
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
    """Find the name of an original in a file, or `None`."""
    return next((n for n in (name, f"{prefix}.{name}") if n in tensors), None)


def _are_equal(a, b):
    """Tell whether arrays are equal, with NaN in the same places if any."""
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))
