"""Checks that refuse checkpoints whose tensors don't fit their config."""

import math
import os
import re
from typing import Any

import numpy as np

from keras_bertfam.presets import preset_checks
from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.checkpoints.huggingface import WEIGHTS
from keras_bertfam.presets.checkpoints.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.converting.heads import activation_note
from keras_bertfam.presets.converting.report import ConversionReport
from keras_bertfam.presets.families import transformers_tables


def prefix_of(source: CheckpointSource) -> str:
    """Find the prefix of the backbone's tensors in a checkpoint, such as `bert.`."""
    prefix = f"{transformers_tables()[source.family].prefix}."
    return prefix if any(name.startswith(prefix) for name in source.tensors) else ""


def check_size(cls: Any, source: CheckpointSource, arguments: dict[str, Any]) -> None:
    """Raise an error for a config of a model with more weights than the checkpoint."""
    if not source.tensors:
        raise CheckpointError(
            f"There are no weights in {os.fspath(source.path)!r}. Expected one of the "
            f"files {', '.join((*WEIGHTS, *preset_checks.WEIGHTS_FILES))}, or "
            "`load_weights=False` for new weights. A tf_model.h5 or "
            "flax_model.msgpack isn't read."
        )
    layers = "num_groups" if arguments.get("share") == "all" else "num_layers"
    stored = sum(math.prod(tensor.shape) for tensor in source.tensors.values())
    if arguments[layers] <= len(source.tensors):
        count = cls.parameter_count(**arguments)
        # Only a pooler and an output table may be missing.
        width = arguments["hidden_dim"]
        rows = (
            0 if arguments.get("tie_embeddings", True) else arguments["vocabulary_size"]
        )
        if count <= stored + width * (2 * width + rows):
            return
    raise CheckpointError(
        f"The config of {os.fspath(source.path)!r} describes a larger model than the "
        f"{len(source.tensors)} tensors with {stored} numbers beside it."
    )


def check_names(source: CheckpointSource) -> None:
    """Raise an error for tensors that no model of the family has here."""
    for pattern, expected in transformers_tables()[source.family].refused.items():
        found = next(
            (name for name in source.tensors if re.search(pattern, name)), None
        )
        if found is not None:
            raise CheckpointError(
                f"The model in {os.fspath(source.path)!r} fits no backbone here. "
                f"Expected {expected}. Received: the tensor {found!r}."
            )


def check_identities(source: CheckpointSource, report: ConversionReport) -> None:
    """Raise an error for a layer that our model lacks, unless it is an identity."""
    mapped = {name for _, theirs in report.mapped for name in theirs}
    for layer in transformers_tables()[source.family].identities:
        names = [f"{prefix_of(source)}{layer}.{part}" for part in ("weight", "bias")]
        there = [name for name in names if name in source.tensors]
        if mapped.intersection(names) or not there:
            continue
        with reading.errors_of(source.path, Exception):
            arrays = [np.asarray(source.tensors[name]) for name in there]
        for name, array in zip(there, arrays, strict=True):
            wanted = np.eye(*array.shape) if array.ndim == 2 else np.zeros(array.shape)
            if not np.array_equal(array, wanted):
                raise CheckpointError(
                    f"The model in {os.fspath(source.path)!r} fits no backbone here: "
                    f"a backbone of this config has no {name!r}. Expected: an "
                    "identity, or no such tensor, as in the original code. Received: "
                    f"other values, of the shape {array.shape}."
                )
        report.identities += there


def check_zeros(source: CheckpointSource) -> None:
    """Raise an error for a tensor that our model lacks, unless it is zero."""
    for name in transformers_tables()[source.family].zeros:
        if name not in source.tensors:
            continue
        with reading.errors_of(source.path, Exception):
            array = np.asarray(source.tensors[name])
        if np.any(array):
            raise CheckpointError(
                f"{name!r} of {os.fspath(source.path)!r} must be zero, as models here "
                f"don't have it. Received: other values, of the shape {array.shape}."
            )


def check_activation(
    head: Any, source: CheckpointSource, report: ConversionReport
) -> None:
    """Note the other form of GELU in a head, and refuse other activations."""
    try:
        note = activation_note(head, source.head_activation)
    except ValueError as error:
        raise CheckpointError(
            f"The model in {os.fspath(source.path)!r} fits no task here. {error}"
        ) from error
    report.notes += [note] if note else []


def check_inputs(report: ConversionReport) -> None:
    """Raise an error for a decoder or encoder with a token table of its own."""
    tables = [name for name in report.unequal if name.endswith("embed_tokens.weight")]
    _refuse(report, tables, "encoder and decoder share one table of tokens here")


def check_copies(report: ConversionReport) -> None:
    """Raise an error for an output table that differs from the token table."""
    _refuse(report, report.untied, "output tables here are tied to the input's")


def _refuse(report, names, why):
    if names:
        source, name = report.source, names[0]
        tied = source.config.get("tie_word_embeddings", True)
        raise CheckpointError(
            f"{name!r} of {os.fspath(source.path)!r} must equal "
            f"{report.unequal[name]!r}: {why}. "
            f"Received: two tensors that differ, with tie_word_embeddings={tied!r}."
        )
