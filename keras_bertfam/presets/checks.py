"""Checkpoints of a larger model, or another computation, than ours are refused."""

import math
import os
from typing import Any

import numpy as np

from keras_bertfam.presets import directory
from keras_bertfam.presets.families import transformers_tables
from keras_bertfam.presets.families.transformers_table import COPIES
from keras_bertfam.presets.heads import activation_note
from keras_bertfam.presets.huggingface import WEIGHTS
from keras_bertfam.presets.report import Report
from keras_bertfam.presets.source import CheckpointError, CheckpointSource


def prefix_of(source: CheckpointSource) -> str:
    """What the names of the backbone's tensors begin with in a checkpoint."""
    prefix = f"{transformers_tables()[source.family].prefix}."
    return prefix if any(name.startswith(prefix) for name in source.tensors) else ""


def check_size(cls: Any, source: CheckpointSource, arguments: dict[str, Any]) -> None:
    """Raise an error for a config of more weights than the checkpoint has."""
    if not source.tensors:
        raise CheckpointError(
            f"There are no weights in {os.fspath(source.path)!r}. Expected one of the "
            f"files {', '.join((*WEIGHTS, *directory.WEIGHTS_FILES))}, or "
            "`load_weights=False` for new weights."
        )
    layers = "num_groups" if arguments.get("share") == "all" else "num_layers"
    stored = sum(math.prod(tensor.shape) for tensor in source.tensors.values())
    if arguments[layers] <= len(source.tensors):
        count = cls.parameter_count(**arguments)
        # A pooler that only the arguments ask for is the most that may be missing.
        if count <= stored + 2 * arguments["hidden_dim"] ** 2:
            return
    raise CheckpointError(
        f"The config of {os.fspath(source.path)!r} is of a larger model than the "
        f"{len(source.tensors)} tensors with {stored} numbers beside it."
    )


def check_required(source: CheckpointSource, report: Report) -> None:
    """Raise an error for a tensor that means another computation than ours."""
    required = transformers_tables()[source.family].required_tensors
    mapped = {name for _, theirs in report.mapped for name in theirs}
    for name in required:
        if prefix_of(source) + name not in mapped:
            raise CheckpointError(
                f"The model in {os.fspath(source.path)!r} is of no backbone here: "
                f"{name!r} has no place in one of this config."
            )


def check_activation(head: Any, source: CheckpointSource, report: Report) -> None:
    """Note the activation of a head that isn't quite ours; another is an error."""
    try:
        note = activation_note(head, source.head_activation)
    except ValueError as error:
        raise CheckpointError(
            f"The model in {os.fspath(source.path)!r} is of no task here. {error}"
        ) from error
    report.notes += [note] if note else []


def check_copies(source: CheckpointSource) -> None:
    """Raise an error for an output table that isn't the input table."""
    tensors = source.tensors
    for name, original in COPIES.items():
        prefixed = (original, prefix_of(source) + original)
        there = next((n for n in prefixed if n in tensors), None)
        if name in tensors and there is not None:
            if not _same(np.asarray(tensors[name]), np.asarray(tensors[there])):
                raise CheckpointError(
                    f"{name!r} of {os.fspath(source.path)!r} must equal {there!r}: "
                    "output tables here are tied to the input's."
                )


def _same(a, b):
    """Whether arrays are equal, with NaN in the same places if any."""
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))
