"""What feeds the objectives of pre-training."""

import typing
from typing import Any

from keras_bertfam import tasks
from keras_bertfam.presets.families.objectives import OBJECTIVES


def pretraining_preprocessor(cls: Any) -> Any:
    """The class that feeds a task in pre-training."""
    # Its own is for pairs of texts.
    return (
        tasks.DenoisingPreprocessor if cls is tasks.TextToText else cls.preprocessor_cls
    )


def packings(objective: str) -> tuple[str, ...]:
    """What the rows of an objective can hold: as its preprocessor makes them.

    Args:
        objective: a key of `OBJECTIVES`.

    Returns:
        Tuple of the values of `packing`, the default first.
    """
    cls = pretraining_preprocessor(getattr(tasks, OBJECTIVES[objective].task))
    rows = typing.get_type_hints(cls.make_rows)["return"]
    found: tuple[str, ...] = rows.packings
    return found
