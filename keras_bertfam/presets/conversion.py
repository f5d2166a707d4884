"""Backbones and tasks from a checkpoint's source, by the tables of their family."""

import dataclasses
import math
import os
import sys
import warnings

import keras
import numpy as np

from keras_bertfam.presets import configs, reading
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.family import CONSTANTS, COPIES
from keras_bertfam.presets.heads import counterpart
from keras_bertfam.presets.rows import applying
from keras_bertfam.presets.source import CheckpointError

_PACKAGE = __name__.partition(".")[0]


@dataclasses.dataclass
class Report:
    """What became of a checkpoint.

    Attributes:
        source: `CheckpointSource`.
        mapped: list of `(ours, theirs)`: path of a variable, names of tensors.
        missing: list of the paths of variables that keep their initial values.
        not_finite: list of the names of tensors with NaN or infinite values.
    """

    source: object
    mapped: list = dataclasses.field(default_factory=list)
    missing: list = dataclasses.field(default_factory=list)
    not_finite: list = dataclasses.field(default_factory=list)

    @property
    def left_over(self):
        """The names of tensors that were not read."""
        family = FAMILIES[self.source.family]
        known = {name for _, theirs in self.mapped for name in theirs}
        known |= {*COPIES, *CONSTANTS, *(f"{family.prefix}.{n}" for n in CONSTANTS)}
        return [name for name in self.source.tensors if name not in known]

    def warn(self):
        """One warning for all that isn't as it should be."""
        lines = [
            f"{text}: {_listing(names)}."
            for text, names in (
                ("Not in the checkpoint, and new", self.missing),
                ("In the checkpoint, and left out", self.left_over),
                ("With NaN or infinite values", self.not_finite),
            )
            if names
        ]
        if lines:
            text = f"{os.fspath(self.source.path)!r} was loaded in part. "
            warnings.warn(text + " ".join(lines), stacklevel=_callers_level())


def _listing(names, most=30):
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _callers_level():
    """The `stacklevel` of the first frame outside the package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals["__name__"].startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def load_backbone(cls, source, load_weights=True, **kwargs):
    """A backbone from a checkpoint.

    Args:
        cls: a backbone class: one that has the family's models, or a base of one.
        source: `CheckpointSource`.
        load_weights: bool.
        **kwargs: arguments of the constructor to override.

    Returns:
        A backbone.

    Raises:
        CheckpointError: if the checkpoint isn't whole, or of another family.
    """
    backbone, report = backbone_and_report(cls, source, load_weights, **kwargs)
    report.warn()
    return backbone


def backbone_and_report(cls, source, load_weights=True, **kwargs):
    """`load_backbone` that returns a `Report` in place of a warning."""
    cls = _backbone_class(cls, source)
    arguments = configs.to_ours(source)
    if source.tensors and any("pooler" in row.ours for row in _rows(source)):
        arguments["pooler"] = any("pooler." in name for name in source.tensors)
    arguments |= kwargs
    try:
        if load_weights:
            _check_size(cls, source, arguments)
        backbone = cls(**arguments)
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"The config of {os.fspath(source.path)!r} makes no {cls.__name__}. {error}"
        ) from error
    report = Report(source)
    if load_weights:
        _fill(backbone, _rows(source), backbone, report, _prefix(source))
        _check_required(source, report)
    return backbone, report


def load_task(cls, source, load_weights=True, preprocessor=None, **kwargs):
    """A task from a checkpoint, with the heads that are in it.

    Args:
        cls: a task class.
        source: `CheckpointSource`.
        load_weights: bool.
        preprocessor: `None` for one with the checkpoint's tokenizer, if any.
        **kwargs: arguments of the task; `dtype` goes to the backbone.

    Returns:
        A task.

    Raises:
        CheckpointError: if the checkpoint isn't whole, or of another family.
    """
    task, report = task_and_report(cls, source, load_weights, preprocessor, **kwargs)
    report.warn()
    return task


def task_and_report(cls, source, load_weights=True, preprocessor=None, **kwargs):
    """`load_task` that returns a `Report` in place of a warning."""
    from keras_bertfam.presets import tokenizer_files

    dtype = {"dtype": kwargs.pop("dtype")} if "dtype" in kwargs else {}
    backbone, report = backbone_and_report(
        cls.backbone_cls, source, load_weights, **dtype
    )
    if preprocessor is None and source.tokenizer_files and cls.preprocessor_cls:
        tokenizer = tokenizer_files.load_tokenizer(source)
        preprocessor = cls.preprocessor_cls(tokenizer)
    task = cls(backbone=backbone, preprocessor=preprocessor, **kwargs)
    if load_weights:
        fill_heads(task, source, report)
    return task, report


def fill_heads(task, source, report):
    """Load the heads of a task that a checkpoint has; note the others as missing."""
    family, ours = FAMILIES[source.family], counterpart(type(task))
    loaded = {id(variable) for variable in task.backbone.weights}
    for role, attribute in ours.heads.items() if ours else ():
        head, rows = getattr(task, attribute), family.heads.get(role, ())
        loaded |= _fill(head, rows, task.backbone, report, label=f"{attribute}.")
        if role == "masked_lm":
            _check_copies(source)
    report.missing += [
        variable.path
        for variable in task.weights
        if variable.trainable and id(variable) not in loaded
    ]


def _backbone_class(cls, source):
    """The class to build: the one asked for, or the usual one below it."""
    names = FAMILIES[source.family].backbones
    classes = [
        keras.saving.get_registered_object(f"keras_bertfam>{name}") for name in names
    ]
    fitting = [family for family in classes if issubclass(family, cls)]
    if any(issubclass(cls, family) for family in classes):
        return cls
    if fitting:
        return fitting[0]
    raise CheckpointError(
        f"The checkpoint {os.fspath(source.path)!r} is of the family "
        f"{source.family!r}, which {' and '.join(names)} are. Received: {cls.__name__}"
    )


def _check_size(cls, source, arguments):
    """Raise an error for a config of more weights than the checkpoint has."""
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


def _rows(source):
    return FAMILIES[source.family].weights


def _prefix(source):
    prefix = f"{FAMILIES[source.family].prefix}."
    return prefix if any(name.startswith(prefix) for name in source.tensors) else ""


def _fill(owner, rows, backbone, report, prefix="", label=""):
    """Assign the variables that rows lead to; the ids of those assigned."""
    tensors, loaded = report.source.tensors, set()
    for row, variable in applying(rows, owner, backbone):
        names = [prefix + name for name in row.theirs]
        lacking = [name for name in names if name not in tensors]
        if lacking and not label and row.required:
            raise CheckpointError(
                f"The checkpoint {os.fspath(report.source.path)!r} lacks "
                f"{', '.join(lacking)}."
            )
        if lacking:
            if not label:
                report.missing.append(variable.path)
            continue
        variable.assign(_value(row, variable, names, report))
        report.mapped.append((label + row.ours, tuple(names)))
        loaded.add(id(variable))
    return loaded


def _value(row, variable, names, report):
    """What a variable becomes, read from the tensors of a row."""
    tensors = [report.source.tensors[name] for name in names]
    shapes = [tuple(tensor.shape) for tensor in tensors]
    with reading.errors_of(report.source.path, Exception):
        arrays = [np.asarray(tensor) for tensor in tensors]
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind not in "fV" or not array.size:
            raise CheckpointError(
                f"The tensor {name!r} of {os.fspath(report.source.path)!r} must be of "
                f"floats. Received: {array.dtype} of the shape {array.shape}"
            )
        if not (np.isfinite(array.min()) and np.isfinite(array.max())):
            report.not_finite.append(name)
    try:
        value = row.transform.join(arrays)
    except (ValueError, IndexError):
        value = None
    if value is None or value.shape != tuple(variable.shape):
        raise CheckpointError(
            f"The tensors {', '.join(names)} of {os.fspath(report.source.path)!r} "
            f"don't fit {row.ours}. Expected: the shape {tuple(variable.shape)}. "
            f"Received: {', '.join(map(str, shapes))}"
        )
    return value.astype(variable.dtype, copy=False)


def _check_required(source, report):
    """Raise an error for a tensor that means another computation than ours."""
    required = FAMILIES[source.family].required_tensors
    mapped = {name for _, theirs in report.mapped for name in theirs}
    for name in required:
        if _prefix(source) + name not in mapped:
            raise CheckpointError(
                f"The model in {os.fspath(source.path)!r} is of no backbone here: "
                f"{name!r} has no place in one of this config."
            )


def _check_copies(source):
    """Raise an error for an output table that isn't the input table."""
    tensors = source.tensors
    for name, original in COPIES.items():
        original = next(
            (n for n in (original, _prefix(source) + original) if n in tensors), None
        )
        if name in tensors and original is not None:
            if not np.array_equal(np.asarray(tensors[name]), tensors[original]):
                raise CheckpointError(
                    f"{name!r} of {os.fspath(source.path)!r} must equal {original!r}: "
                    "output tables here are tied to the input's."
                )
