"""Kinds of models of presets, and the tasks that take each; no framework is needed."""

import os
from typing import Any

from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.source import CheckpointError
from keras_bertfam.types import Path

FINE_TUNED = (
    "MultipleChoice",
    "SpanQuestionAnswering",
    "TextClassifier",
    "TextEmbedder",
    "TextRegressor",
    "TokenClassifier",
)
_OWN = ("BidirectionalLM", "CausalLM", "PermutationLM", "RecurrentLM", "TextToText")


def tasks_of(family: str) -> tuple[str, ...]:
    """Name the usual tasks that take the encoder of a family; none of an unknown one.

    Args:
        family: a name of a family that was published, with how it was trained.
    """
    record = FAMILIES.get(family)
    if record is None or not record.pretraining:
        return ()
    trained_by = record.pretraining[""].task
    own = trained_by if trained_by in _OWN else "MaskedLM"
    return (own,) if own in ("RecurrentLM", "TextToText") else (own, *FINE_TUNED)


def family_of_class(name: str) -> str | None:
    """Find the family whose backbone has a class of that name."""
    families = (each for each, record in FAMILIES.items() if record.backbone == name)
    return next(families, None)


def class_of(saved: Any) -> str:
    """Read the name of the class of what a `config.json` or `task.json` describes."""
    return str(saved["registered_name"]).rpartition(">")[2]


def wrong_kind(
    preset: Path, received: str, family: str | None, expected: str
) -> CheckpointError:
    """Make the error of a preset that is of another kind of model than was asked for.

    Args:
        preset: path.
        received: what it is of: the name of a class.
        family: name of its family, if that is known.
        expected: name of the class that was asked for.
    """
    tasks = tasks_of(family or "")
    taken = f" It is for {', '.join(tasks)}." if tasks else ""
    return CheckpointError(
        f"`preset` must hold a {expected}. "
        f"Received: {os.fspath(preset)!r}, which holds a {received}.{taken}"
    )
