"""Tasks' heads and their counterparts in `transformers`."""

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
    """The class of `transformers` that a task is.

    Attributes:
        ending: str. How its name ends, after the family's.
        heads: dict from roles, keys of `TransformersTable.heads`, to attributes of
            the task.
        poolers: attributes of the task that may hold a pooler, if the backbone
            has none.
        styled: bool. Whether its head differs by family.
        labelled: bool. Whether it has classes.
        config: dict of what else its config has.
        required_config: dict of keys and the values that a config must have, that
            without the key first.
        arguments: function of a config, gives arguments of the task that it says.
        config_of: function of a task, gives what else of its config is the task's.
        generator: bool. Whether it has ELECTRA's generator, a model of its own in
            `transformers`, in the folder `generator` beside the task's files.
        told: dict from roles to variables of the head, and the task's arguments that
            are the sizes of each.
        flags: dict from roles to variables of the head, and the task's argument that
            says whether it is there.
        own: roles that `transformers` hasn't, and that only others' files have.
        optional: roles that not every family has, and whose attribute may be `None`.
        asked_for: bool. Whether a file that another task may be is that one's, unless
            this one is asked for.
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
        """The roles of the heads that each such task has."""
        return {*self.heads} - {*self.optional}

    def parts(self, task: Model) -> dict[str, "Generator"]:
        """Give the models in folders beside a task's own files, by their names."""
        if not self.generator:
            return {}
        queries = task.generator_queries
        return {"generator": Generator(task.generator, task.generator_head, queries)}


@dataclasses.dataclass(frozen=True)
class Generator:
    """ELECTRA's generator as `transformers` has it: a masked language model."""

    backbone: Model
    head: Any
    position_queries: Any = None
    preprocessor: Any = None


BACKBONE = Counterpart("Model")
# Those of objectives; fine-tuning tasks have theirs as `counterpart`.
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
    # Their decoders are in no file of others.
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
# Classes of fine-tuning tasks with a counterpart of their own, by name.
FINE_TUNING = Registry()


def counterparts() -> dict[str, Counterpart]:
    """Give the counterparts of all tasks that Keras knows as ours, by name."""
    own = [
        (name, cls.counterpart)
        for name, cls in FINE_TUNING.items()
        if keras.saving.get_registered_object(f"keras_bertfam>{name}") is cls
    ]
    # Of two with the same class or the same tensors, the narrower one comes first.
    own.sort(key=lambda each: (*_breadth(each[1]), each[0]))
    return _OBJECTIVES | dict(own)


def _breadth(ours):
    return -len(ours.config), not ours.labelled, not ours.styled, ours.asked_for


def counterpart(cls: type) -> Counterpart | None:
    """Find the `Counterpart` of a class of ours, or `None`."""
    names = (base.__name__ for base in cls.__mro__)
    known = (_OBJECTIVES[name] for name in names if name in _OBJECTIVES)
    return getattr(cls, "counterpart", None) or next(known, None)


def fine_tuned_roles() -> set[str]:
    """Give the roles of heads that take the place of those of pre-training."""
    roles = {role for cls in FINE_TUNING.values() for role in cls.counterpart.heads}
    return roles - LANGUAGE_MODELS


def shared_heads(theirs: type, ours: type) -> list[tuple[str, str]]:
    """List pairs of attributes where two classes of tasks have the same heads.

    Heads of fine-tuning aren't shared: they differ by their classes.
    """
    first, second = (getattr(counterpart(cls), "heads", {}) for cls in (theirs, ours))
    roles = first.keys() & second.keys() - fine_tuned_roles() - {"decoder"}
    return [(first[role], second[role]) for role in sorted(roles)]


def is_other_head(task: Model, source: CheckpointSource, role: str) -> bool:
    """Tell whether a checkpoint's fine-tuned head is of another kind than a task's.

    Several tasks have tensors of the same names. The head is another task's if the
    config names that task, or other classes, or if its logits are of another shape.
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
    """Name our class for the model that a checkpoint is.

    The config names the model. If it doesn't, the model is the one with the most heads
    whose tensors are all there, fine-tuned ones first.

    Returns:
        str, or `None` for a backbone, and for a model that no task here is.
    """
    for name in ("SparseEncoder", "LateInteraction"):
        if source.task_arguments.get(name):  # as its modules say
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
    """Tell whether all of a task of ours is in a checkpoint."""
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
        theirs: the activation there, or `None` for one that is never another.

    Returns:
        str, or `None` if they are the same.

    Raises:
        ValueError: for another activation, the forms of GELU apart.
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
        List of their names, `None` for each without one; empty without a head.

    Raises:
        CheckpointError: if the head's tensors are of different numbers of classes,
            or of another width than the model.
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
    given = [n for n in found if isinstance(n, str) and not n.startswith("LABEL_")]
    return found if len({*given}) == count else [None] * count


def class_config(task: Model) -> dict[str, Any]:
    """Make what the config of `transformers` says of a task's classes."""
    names = task.label_names or [f"LABEL_{i}" for i in range(task.num_classes)]
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
