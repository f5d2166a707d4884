"""A record for each family: all that is known of it and isn't computation.

A record is registered by the backbone class that has it, when that is defined.
"""

from keras_bertfam.presets.families.record import Family

FAMILIES: dict[str, Family] = {}


def register(record: Family) -> None:
    """Makes a record known by its name.

    Raises:
        ValueError: if another record has that name.
    """
    known = FAMILIES.setdefault(record.name, record)
    if known is not record:
        raise ValueError(
            "`record` must have a name of its own. Received: "
            f"name={record.name!r}, which {known.backbone} has."
        )


def with_table(kind: str) -> dict[str, Family]:
    """The records that have a table of a kind, by name.

    Args:
        kind: `"transformers"`, `"keras_hub"` or `"tensorflow1"`.
    """
    return {
        name: record
        for name, record in FAMILIES.items()
        if getattr(record, kind) is not None
    }


def backbones_of(name: str) -> list[str]:
    """Names of the classes that take a family's checkpoints, its own first."""
    reading = [r.backbone for r in FAMILIES.values() if name in r.reads]
    return [FAMILIES[name].backbone, *reading]
