"""A record for each family: all that is known of it and isn't computation.

A record is registered by the backbone class that has it, when that is defined.
"""

from keras_bertfam.presets.families.keras_hub_table import KerasHubTable
from keras_bertfam.presets.families.record import Family
from keras_bertfam.presets.families.tensorflow1_table import TensorFlow1Table
from keras_bertfam.presets.families.transformers_table import TransformersTable

FAMILIES: dict[str, Family] = {}


def register(record: Family) -> None:
    """Makes a record known by its name; again, as in a notebook, replaces it.

    Raises:
        ValueError: if the record of another class has that name.
    """
    known = FAMILIES.get(record.name, record)
    if known.backbone != record.backbone:
        raise ValueError(
            "`record` must have a name of its own. Received: "
            f"name={record.name!r}, which {known.backbone} has."
        )
    FAMILIES[record.name] = record


def transformers_tables() -> dict[str, TransformersTable]:
    """The families that `transformers` has, by name."""
    return {n: r.transformers for n, r in FAMILIES.items() if r.transformers}


def keras_hub_tables() -> dict[str, KerasHubTable]:
    """The families that KerasHub has a class for, by name."""
    return {n: r.keras_hub for n, r in FAMILIES.items() if r.keras_hub}


def tensorflow1_tables() -> dict[str, TensorFlow1Table]:
    """The families whose original code is for TensorFlow 1, by name."""
    return {n: r.tensorflow1 for n, r in FAMILIES.items() if r.tensorflow1}


def backbones_of(name: str) -> list[str]:
    """Names of the classes that take a family's checkpoints, its own first."""
    reading = [r.backbone for r in FAMILIES.values() if name in r.reads]
    return [FAMILIES[name].backbone, *reading]
