"""Makes backbones and tasks of a checkpoint's source, by the tables of its family."""

import contextlib
import contextvars
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_bertfam.presets import inspection, sizes
from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.checkpoints.huggingface import unequal_copies
from keras_bertfam.presets.checkpoints.late_interaction import fit_to_vocabulary
from keras_bertfam.presets.checkpoints.sentence_transformers import (
    PROJECTION,
    truncation,
)
from keras_bertfam.presets.checkpoints.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.converting import configs
from keras_bertfam.presets.converting.heads import (
    BACKBONE,
    LANGUAGE_MODELS,
    class_names,
    counterpart,
    given_names,
    is_other_head,
)
from keras_bertfam.presets.converting.report import ConversionReport, warn
from keras_bertfam.presets.converting.weight_checks import (
    check_activation,
    check_copies,
    check_identities,
    check_inputs,
    check_names,
    check_size,
    check_zeros,
    prefix_of,
)
from keras_bertfam.presets.families import backbones_of, transformers_tables
from keras_bertfam.presets.families.parts.weight_maps import applying
from keras_bertfam.presets.tokenizer_formats import tokenizer_files
from keras_bertfam.types import Model

_LENGTHS = ("sequence_length", "query_length", "target_length")
_SHORTEST = 5  # tokens of a row, so that a pair of texts has room


def load_backbone(
    cls: Any, source: CheckpointSource, load_weights: bool = True, **kwargs: Any
) -> Model:
    """Load a backbone from a checkpoint.

    Args:
        cls: a backbone class of the source's family, or a base of one.
        source: `CheckpointSource`.
        load_weights: bool. Whether to read the weights, or begin with new ones.
        **kwargs: arguments of the constructor that replace the checkpoint's.

    Returns:
        A backbone.

    Raises:
        CheckpointError: if the checkpoint is incomplete, or of another family.
    """
    report = ConversionReport(source)
    backbone = read_backbone(cls, source, report, load_weights, **kwargs)
    if load_weights:
        report.warn()
    return backbone


def read_backbone(
    cls: Any,
    source: CheckpointSource,
    report: ConversionReport,
    load_weights: bool = True,
    **kwargs: Any,
) -> Model:
    """Load a backbone as `load_backbone` does, but fill in a report and don't warn."""
    cls = _backbone_class(cls, source)
    arguments = configs.to_ours(source)
    check_names(source)
    if source.tensors:
        report.unequal = unequal_copies(source)
        check_inputs(report)
        arguments |= _output_table(source, report)
    if source.tensors and any(
        "pooler" in weight.ours for weight in _weight_maps(source)
    ):
        arguments["pooler"] = any("pooler." in name for name in source.tensors)
    for name, told in transformers_tables()[source.family].told_by.items():
        if prefix_of(source) + name in source.tensors:
            arguments |= told
    arguments |= kwargs
    shapes = {n: t.shape for n, t in source.tensors.items()} if load_weights else {}
    folder = os.fspath(source.path)
    try:
        sizes.check_sizes(arguments, shapes, folder)
        if load_weights:
            check_size(cls, source, arguments)
        with skip_initialization() if load_weights else contextlib.nullcontext():
            backbone = cls(**arguments)
    except CheckpointError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"The config of {folder!r} fits no {cls.__name__}. {error}"
        ) from error
    if load_weights:
        _fill(backbone, _weight_maps(source), backbone, report, prefix_of(source))
        _fill(backbone, _table(source).output_weights, backbone, report)
        check_identities(source, report)
    return backbone


def load_task(
    cls: Any,
    source: CheckpointSource,
    load_weights: bool = True,
    backbone_cls: Any | None = None,
    backbone_arguments: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Model:
    """Load a task from a checkpoint, with the heads that the checkpoint has.

    Args:
        cls: a task class.
        source: `CheckpointSource`.
        load_weights: bool. Whether to read the weights, or begin with new ones.
        backbone_cls: class of the backbone, or a base of it; `None` for any.
        backbone_arguments: arguments of the backbone that replace the checkpoint's.
        **kwargs: arguments of the task. If `preprocessor` is left out, the task gets
            one with the checkpoint's tokenizer, if there is any. With
            `preprocessor=None` it gets none.

    Returns:
        A task.

    Raises:
        CheckpointError: if the checkpoint is incomplete, or of another family.
    """
    report = ConversionReport(source)
    task = read_task(
        cls, source, report, load_weights, backbone_cls, backbone_arguments, **kwargs
    )
    if load_weights:
        report.warn()
    return task


def read_task(
    cls: Any,
    source: CheckpointSource,
    report: ConversionReport,
    load_weights: bool = True,
    backbone_cls: Any | None = None,
    backbone_arguments: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Model:
    """Load a task as `load_task` does, but fill in a report and don't warn."""
    arguments = backbone_arguments or {}
    backbone_cls = backbone_cls or cls.backbone_cls
    backbone = read_backbone(backbone_cls, source, report, load_weights, **arguments)
    wanted, chosen = "preprocessor" not in kwargs, {*kwargs} - {"preprocessor"}
    preprocessor = kwargs.pop("preprocessor", None)
    refused = tokenizer_files.refusal(source)
    if wanted and cls.preprocessor_cls and refused:
        report.notes.append(refused)
    elif wanted and source.tokenizer_files and cls.preprocessor_cls:
        tokenizer = tokenizer_files.load_tokenizer(source)
        preprocessor = _preprocessor(cls, tokenizer, backbone, report)
    kwargs = {**_generator_arguments(cls, source, load_weights, kwargs), **kwargs}
    kwargs = {**_head_arguments(cls, source, report, kwargs), **kwargs}
    try:
        task = cls(backbone=backbone, preprocessor=preprocessor, **kwargs)
    except ValueError as error:
        if chosen or isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{os.fspath(source.path)!r} fits no {cls.__name__}. {error}"
        ) from error
    if load_weights:
        given = getattr(kwargs.get("generator"), "weights", ())
        if getattr(task, "projection_dim", None) and counterpart(cls) is BACKBONE:
            filled = _fill(task, PROJECTION, backbone, report, label="task.")
            given = [v for v in task.projection.weights if id(v) in filled]
        fill_heads(task, source, report, given)
    return task


def _preprocessor(cls, tokenizer, backbone, report):
    """Make a task's default preprocessor; report embeddings without a token."""
    tokens, rows = tokenizer.vocabulary_size(), backbone.vocabulary_size
    usual = cls.default_preprocessor(tokenizer, backbone)
    # Tokens that a task adds have embeddings behind those of the tokenizer.
    new = len(getattr(usual, "new_tokens", ()))
    if tokens < rows != tokens + new:
        report.notes.append(f"The tokenizer has {tokens} tokens for {rows} embeddings.")
    given = report.source.preprocessor_arguments.get(cls.__name__)
    if not given and {base.__name__ for base in cls.__mro__} & {
        *inspection.fine_tuned()
    }:
        given = _told_by_tokenizer(report, usual)
    if not given:
        return usual
    longest = getattr(backbone, "max_sequence_length", None)
    if longest is not None:
        lengths = {n: v for n, v in given.items() if n in _LENGTHS}
        given = given | {name: min(value, longest) for name, value in lengths.items()}
    if "skipped_tokens" in given:
        given = fit_to_vocabulary(given, tokenizer, report.notes)
    config = {**usual.get_config(), **given, "tokenizer": tokenizer}
    return cls.preprocessor_cls(**config)


def _told_by_tokenizer(report, usual):
    """Read how long rows are, and which side of a long text is cut, as arguments."""
    config = usual.get_config()
    length = config.get("sequence_length") or 0
    longest = report.source.tokenizer_config.get("model_max_length")
    side, told = truncation(report.source), {}
    if type(longest) is int and _SHORTEST <= longest < length:
        told = {"sequence_length": longest}
        if hasattr(usual, "lengths_for"):
            told |= usual.lengths_for(longest)
    if side and side["truncate"] in getattr(usual, "truncations", ()):
        told |= side
    elif side:
        report.notes.append("In spite of truncation_side='left', the end is cut.")
    return told


def _generator_arguments(cls, source, load_weights, kwargs):
    """Load the generator of a discriminator, if any, and make arguments of it."""
    ours, part = counterpart(cls), source.parts.get("generator")
    names = {"generator", "generator_size", "generator_depth", "tie"}
    chosen = names & kwargs.keys() or kwargs.get("sharing") not in (None, "full")
    if part is None or chosen or ours is None or not ours.generator:
        return {}
    masked_lm = keras.saving.get_registered_object("keras_bertfam>MaskedLM")
    # In `transformers` these are two models, which share no tables.
    return {"generator": load_task(masked_lm, part, load_weights), "tie": "none"}


def _head_arguments(cls, source, report, kwargs):
    """Read the arguments of a task from the config and tensors of a checkpoint."""
    of_backbone = {name for _, names in report.mapped for name in names}
    ours, arguments = counterpart(cls), {}
    dropouts = transformers_tables()[source.family].dropouts
    roles = dropouts.keys() & (ours.heads if ours else ())
    if roles and "dropout" not in kwargs:
        arguments["dropout"] = configs.head_dropout(source, *roles)
    if ours is not None:
        arguments |= ours.arguments(source.config)
    known = [source.task_arguments.get(base.__name__) for base in cls.__mro__]
    arguments |= next(filter(None, known), {})
    for role, told in ours.told.items() if ours else ():
        for name, sizes_of in told.items():
            weights = transformers_tables()[source.family].heads.get(role, ())
            names = [
                theirs
                for weight in weights
                if weight.ours == name
                for theirs in weight.theirs
            ]
            if names and names[0] in source.tensors.keys() - of_backbone:
                shape = source.tensors[names[0]].shape[: len(sizes_of)]
                arguments |= zip(sizes_of, shape, strict=True)
    # A detection head tells nothing about variants that predict tokens.
    predicts = kwargs.get("variant") in ("replace_mlm", "all_tokens_mlm")
    for role, flags in ours.flags.items() if ours and not predicts else ():
        weights = transformers_tables()[source.family].heads.get(role, ())
        found = {
            weight.ours: theirs in source.tensors
            for weight in weights
            for theirs in weight.theirs
        }
        if any(found.values()):
            arguments |= {flags[n]: there for n, there in found.items() if n in flags}
    if ours is not None and ours.styled:
        arguments["head_style"] = configs.head_style(source)
    if ours is not None and ours.labelled:
        names = class_names(source, ours)
        if names and not {"num_classes", "label_names"} & kwargs.keys():
            named = None not in names
            if not named and (unusable := given_names(source)):
                warn(
                    f"The names of classes in {os.fspath(source.path)!r} aren't used, "
                    f"as each class must have one of its own: {unusable[:9]}."
                )
            arguments |= (
                {"label_names": names} if named else {"num_classes": len(names)}
            )
    return arguments


def fill_heads(
    task: Model,
    source: CheckpointSource,
    report: ConversionReport,
    given: Sequence[Any] = (),
) -> None:
    """Load the heads of a task that a checkpoint has; report the others as missing.

    Args:
        task: a task whose backbone is loaded.
        source: `CheckpointSource`.
        report: `ConversionReport` that is filled in.
        given: variables that have their values already.
    """
    table = transformers_tables()[source.family]
    ours = counterpart(type(task))
    loaded = {id(variable) for variable in (*task.backbone.weights, *given)}
    heads, config = (ours.heads, ours.required_config) if ours else ({}, {})
    for role, attribute in heads.items():
        head, weights = getattr(task, attribute), table.heads.get(role, ())
        if is_other_head(task, source, role):
            continue
        if role == "sentence" and head.num_classes != 2:
            continue  # heads in files have two classes; one with three is new
        if any(name in source.tensors for weight in weights for name in weight.theirs):
            for required in (table.required_heads.get(role, {}), config):
                configs.check_head(source, required)
        filled = _fill(head, weights, task.backbone, report, label=f"{attribute}.")
        loaded |= filled
        if filled and role in LANGUAGE_MODELS and hasattr(head, "activation"):
            check_activation(head, source, report)
        if role == "masked_lm":
            check_copies(report)
        if role in ("causal_lm", "seq2seq_lm"):
            check_copies(report)
            check_zeros(source)
    report.missing += [
        variable.path
        for variable in task.weights
        if variable.trainable and id(variable) not in loaded
    ]


def _backbone_class(cls, source):
    """Choose the class to build: `cls` itself, or the family's subclass of it."""
    classes = backbones_of(source.family)
    fitting = [family for family in classes if issubclass(family, cls)]
    fitting.sort(key=lambda family: family.__name__ != source.backbone)
    if any(issubclass(cls, family) for family in classes):
        return cls
    if fitting:
        return fitting[0]
    names = " or ".join(c.__name__ for c in classes)
    raise inspection.wrong_kind_error(source.path, names, source.family, cls.__name__)


def _table(source):
    return transformers_tables()[source.family]


def _weight_maps(source):
    return _table(source).weights


def _output_table(source, report):
    """Read whether the token table computes the logits, as an argument.

    Raises:
        CheckpointError: for a language model without a table that it must have.
    """
    table, output = _table(source), _table(source).output
    if output is None:
        return {}
    told, lacks = source.config.get("tie_word_embeddings"), output not in source.tensors
    tied = output not in report.unequal and (told is not False or lacks)
    if lacks and not told and not table.ties and _predicts_tokens(source):
        raise CheckpointError(
            f"The checkpoint {os.fspath(source.path)!r} lacks {output!r}, which "
            "computes the logits unless its config has tie_word_embeddings=True."
        )
    if tied and told is False and table.ties:
        report.notes.append(
            f"In spite of tie_word_embeddings=False, the token table computes the "
            f"logits, as there is no {output!r}."
        )
    return {"tie_embeddings": tied}


def _predicts_tokens(source):
    """Tell whether a checkpoint has a head that predicts masked tokens."""
    table, ending = _table(source), "ForMaskedLM"
    name = f"{table.title}{table.endings.get(ending, ending)}"
    head = [n for weight in table.heads["masked_lm"] for n in weight.theirs]
    said = source.config.get("architectures") or ()
    return name in said or not source.tensors.keys().isdisjoint(head)


def _fill(owner, weights, backbone, report, prefix="", label=""):
    """Assign the variables that weight maps name, and return the `id` of each."""
    tensors, loaded = report.source.tensors, set()
    for weight, variable in applying(weights, owner, backbone):
        names = [prefix + name for name in weight.theirs]
        lacking = [name for name in names if name not in tensors]
        if lacking and not label and weight.required:
            raise CheckpointError(
                f"The checkpoint {os.fspath(report.source.path)!r} lacks "
                f"{', '.join(lacking)}{_alike(lacking[0], weight.theirs[0], tensors)}."
            )
        if lacking:
            if not label:
                report.missing.append(variable.path)
                if len(variable.shape) > 1:
                    variable.assign(backbone.make_initializer()(variable.shape))
            continue
        heads = (backbone.num_heads,) if weight.transform.takes_heads else ()
        variable.assign(_value(weight, variable, names, report, *heads))
        report.mapped.append((label + weight.ours, tuple(names)))
        report.progress(len(names))
        loaded.add(id(variable))
    return loaded


def _alike(lacking, plain, names):
    """Name a tensor with another prefix than the one that is looked for, if any."""
    endings = (lacking, f".{plain}")
    found = next((name for name in names if name.endswith(endings)), None)
    return f", but has {found!r}: other names may be needed" if found else ""


def _value(weight, variable, names, report, *heads):
    """Read the value of a variable from the tensors of its map."""
    tensors = [report.source.tensors[name] for name in names]
    shapes = [tuple(tensor.shape) for tensor in tensors]
    with reading.errors_of(report.source.path, Exception):
        arrays = [np.asarray(tensor) for tensor in tensors]
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind not in "fV" or not array.size:
            raise CheckpointError(
                f"The tensor {name!r} of {os.fspath(report.source.path)!r} must be of "
                f"floats. Received: {array.dtype} of the shape {array.shape}."
            )
        if not (np.isfinite(array.min()) and np.isfinite(array.max())):
            report.not_finite.append(name)
    try:
        value = weight.transform.join(arrays, *heads)
    except (ValueError, IndexError):
        value = None
    if value is None or value.shape != tuple(variable.shape):
        raise CheckpointError(
            f"The tensors {', '.join(names)} of {os.fspath(report.source.path)!r} "
            f"don't fit {weight.ours}. Expected: the shape {tuple(variable.shape)}. "
            f"Received: {', '.join(map(str, shapes))}."
        )
    return value.astype(variable.dtype, copy=False)


_blank = contextvars.ContextVar("blank", default=False)


@contextlib.contextmanager
def skip_initialization() -> Iterator[None]:
    """Make backbones with zeros as initial values inside this context.

    Random initial values would take time, and fragment the memory.
    """
    token = _blank.set(True)
    try:
        yield
    finally:
        _blank.reset(token)


def initialization_is_skipped() -> bool:
    """Tell whether the call is in the context of `skip_initialization`."""
    return _blank.get()
