"""A record for each family: all that is known of it and isn't computation.

A record is registered by the backbone class that has it, when that is defined. The
records themselves are there without it, and without any framework, see `known`.
"""

import functools
import importlib
import pkgutil
from typing import Any

from keras_bertfam.presets.families.keras_hub_table import KerasHubTable
from keras_bertfam.presets.families.record import Family
from keras_bertfam.presets.families.tensorflow1_table import TensorFlow1Table
from keras_bertfam.presets.families.transformers_table import TransformersTable

FAMILIES: dict[str, Family] = {}
BACKBONES: dict[str, Any] = {}


def register(record: Family, backbone: Any) -> None:
    """Makes a record and the class that has it known by the record's name.

    A class that is defined again, as in a notebook, takes the place of the former.

    Raises:
        ValueError: if another class has that name, or another family has another
            layout or head under the same name.
    """
    known = BACKBONES.get(record.name, backbone)
    if (known.__module__, known.__qualname__) != (
        backbone.__module__,
        backbone.__qualname__,
    ):
        raise ValueError(
            "`record` must have a name of its own. Received: "
            f"name={record.name!r}, which {known.__name__} has."
        )
    for other in FAMILIES.values():
        for kind in ("layout", "head_style"):
            mine, theirs = getattr(record, kind), getattr(other, kind)
            if (
                other.name != record.name
                and mine != theirs
                and mine.name == theirs.name
            ):
                raise ValueError(
                    f"`{kind}` must have a name of its own where it isn't that of "
                    f"{other.name!r}. Received: {mine}."
                )
    FAMILIES[record.name], BACKBONES[record.name] = record, backbone


def known() -> dict[str, Family]:
    """All records by name: those of this package, and others that are registered."""
    return {**_own_records(), **FAMILIES}


@functools.cache
def _own_records():
    modules = (
        importlib.import_module(f"{__name__}.{each.name}")
        for each in pkgutil.iter_modules(__path__)
    )
    values = (value for module in modules for value in vars(module).values())
    return {value.name: value for value in values if isinstance(value, Family)}


def transformers_tables() -> dict[str, TransformersTable]:
    """The families that `transformers` has, by name."""
    return {n: r.transformers for n, r in FAMILIES.items() if r.transformers}


def keras_hub_tables() -> dict[str, KerasHubTable]:
    """The families that KerasHub has a class for, by name."""
    return {n: r.keras_hub for n, r in FAMILIES.items() if r.keras_hub}


def tensorflow1_tables() -> dict[str, TensorFlow1Table]:
    """The families whose original code is for TensorFlow 1, by name."""
    return {n: r.tensorflow1 for n, r in FAMILIES.items() if r.tensorflow1}


def family_of_tokenizer(tokenizer: Any) -> Family | None:
    """The first published family with tokenizers of that class, ours or KerasHub's."""
    known: dict[str, Family] = {}
    for record in FAMILIES.values():
        if record.sizes:
            known.setdefault(record.tokenizer_class, record)
    names = (cls.__name__ for cls in type(tokenizer).__mro__)
    return next((known[name] for name in names if name in known), None)


def backbones_of(name: str) -> list[Any]:
    """The classes that take a family's checkpoints, its own first."""
    reading = [other for other, record in FAMILIES.items() if name in record.reads]
    return [BACKBONES[family] for family in (name, *reading)]
