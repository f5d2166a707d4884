"""The families' records: all facts about a family, but no computation.

The records in this folder are loaded at once and need no framework. A user's own record
is registered when the backbone class that has it is defined.
"""

import importlib
import pkgutil
from typing import Any

from keras_bertfam.lazy import Registry
from keras_bertfam.presets.families.parts.record import Family
from keras_bertfam.presets.families.parts.tables import (
    KerasHubTable,
    TensorFlow1Table,
    TransformersTable,
)


def _records():
    """Yield the record that each file defines, which is the last record in it."""
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        values = [each for each in vars(module).values() if isinstance(each, Family)]
        yield from values[-1:]


FAMILIES: dict[str, Family] = {record.name: record for record in _records()}
BACKBONES = Registry()


def register(record: Family, backbone: Any) -> None:
    """Register a record and its backbone class by the record's name.

    A class that is defined again, as in a notebook, replaces the earlier one.

    Raises:
        ValueError: if another class has this name, or if another family has a different
            layout or head style of the same name.
    """
    for other in FAMILIES.values():
        for kind in ("layout", "head_style"):
            mine, theirs = getattr(record, kind), getattr(other, kind)
            if (
                other.name != record.name
                and mine != theirs
                and mine.name == theirs.name
            ):
                raise ValueError(
                    f"`{kind}` must have a name of its own, as it differs from that of "
                    f"{other.name!r}. Received: {mine}."
                )
    known = BACKBONES.enter(record.name, backbone)
    if known is not backbone:
        raise ValueError(
            "`record` must have a name of its own. Received: "
            f"name={record.name!r}, which {known.__name__} has."
        )
    FAMILIES[record.name] = record


def transformers_tables() -> dict[str, TransformersTable]:
    """Give the tables of the families that `transformers` has, by name."""
    return {n: r.transformers for n, r in FAMILIES.items() if r.transformers}


def keras_hub_tables() -> dict[str, KerasHubTable]:
    """Give the tables of the families that KerasHub has a class for, by name."""
    return {n: r.keras_hub for n, r in FAMILIES.items() if r.keras_hub}


def tensorflow1_tables() -> dict[str, TensorFlow1Table]:
    """Give the tables of the families from TensorFlow 1, by name."""
    return {n: r.tensorflow1 for n, r in FAMILIES.items() if r.tensorflow1}


def family_of_tokenizer(tokenizer: Any) -> Family | None:
    """Find the first published family of a tokenizer's class, ours or KerasHub's."""
    known: dict[str, Family] = {}
    for record in FAMILIES.values():
        if record.sizes:
            known.setdefault(record.tokenizer_class, record)
    names = (cls.__name__ for cls in type(tokenizer).__mro__)
    return next((known[name] for name in names if name in known), None)


def backbones_of(name: str) -> list[Any]:
    """List the classes that read a family's checkpoints, its own class first."""
    reading = [other for other, record in FAMILIES.items() if name in record.reads]
    return [BACKBONES[family] for family in (name, *reading)]
