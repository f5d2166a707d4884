"""Heads of tasks, and the classes of `transformers` that have them."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_bertfam.lazy import Registry
from keras_bertfam.presets.checkpoints.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.converting import configs
from keras_bertfam.presets.families import BACKBONES, transformers_tables
from keras_bertfam.types import Model


@dataclasses.dataclass(frozen=True)
class Counterpart:
    """The class of `transformers` that corresponds to a task.

    Attributes:
        ending: str. The end of the class's name, behind the family's.
        heads: dict from roles, keys of `TransformersTable.heads`, to attributes of
            the task.
        poolers: attributes of the task that may hold a pooler, if the backbone
            has none.
        styled: bool. Whether families have different forms of the head.
        labelled: bool. Whether it has classes.
        config: dict of further keys of its config, and their values.
        required_config: dict from keys to the values that a config may have. The first
            one stands for a config without the key.
        arguments: function that makes arguments of the task from a config.
        config_of: function that makes further keys of a config from a task.
        generator: bool. Whether it has ELECTRA's generator. In `transformers` this is a
            second model, written to the folder `generator` beside the task's files.
        told: dict from roles to dicts, which lead from variables of the head to the
            task's arguments that are their sizes.
        flags: dict from roles to dicts, which lead from variables of the head to the
            task's arguments that tell whether the head has them.
        own: roles that `transformers` lacks. Files of other libraries have them.
        optional: roles that not every family has, and whose attribute may be `None`.
        asked_for: bool. Whether a file is read as this task only if a user names it,
            and as another task otherwise.
    """

    ending: str
    heads: dict[str, str] = dataclasses.field(default_factory=dict)
    poolers: tuple[str, ...] = ()
    styled: bool = False
    labelled: bool = False
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    required_config: dict[str, tuple] = dataclasses.field(default_factory=dict)
    arguments: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda config: {}
    config_of: Callable[[Model], dict[str, Any]] = lambda task: {}
    generator: bool = False
    told: dict[str, dict[str, tuple[str, ...]]] = dataclasses.field(
        default_factory=dict
    )
    flags: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    own: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    asked_for: bool = False

    @property
    def roles(self) -> set[str]:
        """The roles of the heads that every such task has."""
        return {*self.heads} - {*self.optional}

    def parts(self, task: Model) -> dict[str, "Generator"]:
        """Give the models in folders beside a task's own files, by their names."""
        if not self.generator:
            return {}
        queries = task.generator_queries
        return {"generator": Generator(task.generator, task.generator_head, queries)}


@dataclasses.dataclass(frozen=True)
class Generator:
    """ELECTRA's generator, as a masked language model of `transformers`."""

    backbone: Model
    head: Any
    position_queries: Any = None
    preprocessor: Any = None


BACKBONE = Counterpart("Model")
# Counterparts of objectives. Fine-tuning tasks have an attribute `counterpart`.
_OBJECTIVES = {
    "MaskedLM": Counterpart(
        "ForMaskedLM",
        {"masked_lm": "head", "decoder": "position_queries"},
        told={"decoder": {"table": ("decoder_positions",)}},
        optional=("decoder",),
    ),
    "MaskedLMSentencePair": Counterpart(
        "ForPreTraining",
        {"masked_lm": "masked_lm_head", "sentence": "sentence_head"},
        poolers=("new_pooler",),
    ),
    # No other library's files have the decoders of these tasks.
    "DenoisingAutoencoder": Counterpart(
        "ForMaskedLM", {"masked_lm": "head"}, asked_for=True
    ),
    "MaskedPermutedLM": Counterpart(
        "ForMaskedLM", {"masked_lm": "head"}, asked_for=True
    ),
    "MaskedDiffusionLM": Counterpart(
        "ForMaskedLM", {"masked_lm": "head"}, asked_for=True
    ),
    "MaskedAutoencoder": Counterpart(
        "ForMaskedLM", {"masked_lm": "head"}, asked_for=True
    ),
    "LateInteraction": BACKBONE,
    "PermutationLM": Counterpart("LMHeadModel", {"masked_lm": "head"}),
    "CausalLM": Counterpart("LMHeadModel", {"causal_lm": "head"}),
    "TextToText": Counterpart("ForConditionalGeneration", {"seq2seq_lm": "head"}),
    "ReplacedTokenDetection": Counterpart(
        "ForPreTraining",
        {"detector": "head"},
        generator=True,
        flags={"detector": {"norm.gamma": "add_first_token"}},
    ),
    "Generator": Counterpart(
        "ForMaskedLM",
        {"masked_lm": "head", "decoder": "position_queries"},
        optional=("decoder",),
    ),
    "SpanBoundaryLM": Counterpart(
        "ForMaskedLM",
        {"masked_lm": "head", "span_boundary": "span_boundary_head"},
        told={"span_boundary": {"position_table": ("max_span_length", "position_dim")}},
        own=("span_boundary",),
    ),
}
# The roles of heads that give logits of tokens.
LANGUAGE_MODELS = {"masked_lm", "causal_lm", "seq2seq_lm"}
# Classes of fine-tuning tasks that have a counterpart, by name.
FINE_TUNING = Registry()


def counterparts() -> dict[str, Counterpart]:
    """Give the counterparts of all tasks that are registered with Keras, by name."""
    own = [
        (name, cls.counterpart)
        for name, cls in FINE_TUNING.items()
        if keras.saving.get_registered_object(f"keras_bertfam>{name}") is cls
    ]
    # Tasks may have the same class or tensors: the narrower task comes first.
    own.sort(key=lambda each: (*_breadth(each[1]), each[0]))
    return _OBJECTIVES | dict(own)


def _breadth(ours):
    return -len(ours.config), not ours.labelled, not ours.styled, ours.asked_for


def counterpart(cls: type) -> Counterpart | None:
    """Find the `Counterpart` of a task's class; give `None` if it has none."""
    names = (base.__name__ for base in cls.__mro__)
    known = (_OBJECTIVES[name] for name in names if name in _OBJECTIVES)
    return getattr(cls, "counterpart", None) or next(known, None)


def fine_tuned_roles() -> set[str]:
    """Give the roles of heads that replace the heads of pre-training."""
    roles = {role for cls in FINE_TUNING.values() for role in cls.counterpart.heads}
    return roles - LANGUAGE_MODELS


def shared_heads(theirs: type, ours: type) -> list[tuple[str, str]]:
    """List pairs of attributes in which two classes of tasks have the same head.

    Heads of fine-tuning aren't shared, as their classes differ.
    """
    first, second = (getattr(counterpart(cls), "heads", {}) for cls in (theirs, ours))
    roles = first.keys() & second.keys() - fine_tuned_roles() - {"decoder"}
    return [(first[role], second[role]) for role in sorted(roles)]


def is_other_head(task: Model, source: CheckpointSource, role: str) -> bool:
    """Tell whether a checkpoint's fine-tuned head belongs to another task.

    Several tasks have tensors of the same names. The head belongs to another task if
    the config names that task or other classes, or if its logits have another shape.
    """
    if role not in fine_tuned_roles() or not _has_role(source, role):
        return False
    kernel = source.tensors.get(_logits(source, role, "kernel"))
    shape = tuple(task.head.logits.kernel.shape)
    if kernel is not None and tuple(kernel.shape)[::-1] != shape:
        return True
    ours, given = counterpart(type(task)), getattr(task, "label_names", None)
    names = class_names(source, ours) if given and ours else []
    other_names = bool(names) and None not in names and names != given
    return other_names or _is_of_another(source, role)


def _has_role(source, role):
    """Tell whether the family has such a head in `transformers`."""
    return role in transformers_tables()[source.family].heads


def _is_of_another(source, role):
    """Tell whether the config names a task whose head has another role."""
    name = task_name(source)
    there = counterparts()[name].heads.keys() if name else set()
    return bool(there & fine_tuned_roles()) and role not in there


def _logits(source, role, part):
    weights = transformers_tables()[source.family].heads[role]
    (name,) = next(
        weight.theirs for weight in weights if weight.ours == f"logits.{part}"
    )
    return name


def task_name(source: CheckpointSource) -> str | None:
    """Name our task for the model in a checkpoint.

    The config may name the model. Otherwise it is the task with the most heads among
    those whose tensors are all in the checkpoint; fine-tuning tasks come first.

    Returns:
        str, or `None` for a backbone, and for a model without a task here.
    """
    for name in ("SparseEncoder", "LateInteraction"):
        if source.task_arguments.get(name):  # from the modules of its folder
            return name
    table, config = transformers_tables()[source.family], source.config
    architectures = config.get("architectures")
    tasks = {name: ours for name, ours in counterparts().items() if ours.heads}
    named = architectures if isinstance(architectures, list) else []
    if not isinstance(architectures, list):
        order = sorted(tasks, key=lambda name: _rank(tasks[name]))
        tasks = {name: tasks[name] for name in order if name != "Generator"}
    told = config.get("problem_type")
    told = "regression" if told is None and _has_one_output(source) else told
    for name, ours in tasks.items():
        fits = ours.config.get("problem_type") in (None, told)
        if not fits or not ours.roles <= table.heads.keys():
            continue
        if table.architecture(ours.ending) in named:
            return name
        if not isinstance(architectures, list) and _holds(source, name, ours):
            return name
    return None


def _has_one_output(source):
    if not _has_role(source, "classifier"):
        return False
    kernel = source.tensors.get(_logits(source, "classifier", "kernel"))
    return kernel is not None and tuple(kernel.shape)[:1] == (1,)


def _rank(ours):
    return -len(ours.roles), "masked_lm" in ours.heads


def _holds(source, name, ours):
    """Tell whether a checkpoint has all tensors of a task."""
    heads = transformers_tables()[source.family].heads
    weights = [weight for role in ours.roles for weight in heads[role]]
    task = keras.saving.get_registered_object(f"keras_bertfam>{name}")
    return (
        issubclass(BACKBONES[source.family], task.backbone_cls)
        and (not ours.generator or "generator" in source.parts)
        and all(
            theirs in source.tensors for weight in weights for theirs in weight.theirs
        )
    )


def activation_note(head: Any, theirs: str | None) -> str | None:
    """Describe how a masked language model's head differs from that of `transformers`.

    Args:
        head: a layer.
        theirs: the activation in `transformers`, or `None` if it is always the same.

    Returns:
        str, or `None` if they are the same.

    Raises:
        ValueError: for another activation; the two forms of GELU are allowed.
    """
    if theirs is None or theirs == head.activation:
        return None
    if {theirs, head.activation} != {"gelu", "gelu_tanh"}:
        raise ValueError(
            "The head of such a language model has the activation "
            f"{theirs!r} in `transformers`. Received: activation={head.activation!r}."
        )
    return (
        "GELU in the head of the masked language model has the erf form in "
        "`transformers`, and the tanh form here: logits differ by about 1e-3."
    )


def class_names(source: CheckpointSource, ours: Counterpart) -> list[str | None]:
    """List the names of the classes that a checkpoint has a head for.

    Args:
        source: `CheckpointSource`.
        ours: `Counterpart`.

    Returns:
        List of the names of the classes, with `None` for each class without a name. It
        is empty if there is no head.

    Raises:
        CheckpointError: if the head's kernel and bias have different numbers of
            classes, or if the kernel's width isn't the model's.
    """
    (role,) = ours.heads
    if not _has_role(source, role):
        return []
    names = [_logits(source, role, part) for part in ("kernel", "bias")]
    if _is_of_another(source, role) or any(n not in source.tensors for n in names):
        return []
    kernel, bias = (tuple(source.tensors[name].shape) for name in names)
    if kernel != (*bias, configs.to_ours(source)["hidden_dim"]) or len(bias) != 1:
        raise CheckpointError(
            f"The tensors {' and '.join(names)} of {os.fspath(source.path)!r} must be "
            "of the shapes (classes, hidden) and (classes,). "
            f"Received: {kernel} and {bias}."
        )
    (count,) = bias
    labels = source.config.get("id2label")
    labels = labels if isinstance(labels, dict) else {}
    found = [labels.get(str(index)) for index in range(count)]
    found = [str(name) if isinstance(name, int) else name for name in found]
    # `transformers` writes these where nobody gave names.
    if found == [f"LABEL_{index}" for index in range(count)]:
        return [None] * count
    given = {name for name in found if isinstance(name, str)}
    return found if len(given) == count else [None] * count


def given_names(source: CheckpointSource) -> list[Any]:
    """List the names of classes that somebody gave, whether or not they are usable."""
    labels = source.config.get("id2label")
    labels = labels if isinstance(labels, dict) else {}
    return [name for index, name in labels.items() if name != f"LABEL_{index}"]


def class_config(task: Model) -> dict[str, Any]:
    """Make the keys of a config of `transformers` on a task's classes."""
    names = task.label_names or [f"LABEL_{i}" for i in range(task.num_classes)]
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
