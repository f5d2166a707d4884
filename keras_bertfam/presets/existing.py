"""Checks that a preset is there, which need no framework."""

import difflib
import glob
import os
from collections.abc import Iterable

from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.source import CheckpointError
from keras_bertfam.types import Path

CONFIG_FILE = "config.json"
TASK_FILE = "task.json"
WEIGHTS_FILES = ("model.weights.h5", "model.weights.json")


def published_names() -> set[str]:
    """Give the names of the sizes that the families' records have."""
    return {name for record in FAMILIES.values() for name in record.sizes}


def published_family(name: str) -> str | None:
    """Find the family that has a published size of a name, if one has."""
    families = (each for each, record in FAMILIES.items() if name in record.sizes)
    return next(families, None)


def check_findable(preset: Path, name: str = "preset") -> None:
    """Raise a `ValueError` for what is no published name, no handle and no path.

    Args:
        preset: str or path of a checkpoint of any format.
        name: str. The argument's name for the error.
    """
    text, known = os.fspath(preset), published_names()
    if "://" in text or text in known or os.path.exists(text):
        return
    if not glob.glob(f"{glob.escape(text)}.*"):  # TensorFlow 1's have no file of it
        raise _unknown(text, known, name)


def check_preset(
    preset: Path, known_names: Iterable[str], load_weights: bool = True
) -> None:
    """Raise an error if a preset can't be what it should be.

    It is a `CheckpointError` for a preset that isn't whole, and a `ValueError` if there
    is none.

    Args:
        preset: str or path. A directory, or a handle such as `hf://...`.
        known_names: the names that would have been taken.
        load_weights: bool. Whether the weights have to be there.
    """
    preset = os.fspath(preset)
    if "://" in preset:
        return
    if not os.path.isdir(preset):
        raise _unknown(preset, known_names)
    here = set(os.listdir(preset))
    missing = [] if CONFIG_FILE in here else [CONFIG_FILE]
    if load_weights and not here.intersection(WEIGHTS_FILES):
        missing.append(WEIGHTS_FILES[0])
    if missing:
        raise CheckpointError(
            f"The preset directory {preset!r} is not complete. Missing: "
            f"{', '.join(missing)}. There are: {', '.join(sorted(here)) or 'none'}."
        )


def _unknown(preset, known_names, name="preset"):
    near = difflib.get_close_matches(preset, known_names, n=5, cutoff=0)
    return ValueError(
        f"`{name}` must be a known name or the path of a preset directory. "
        f"Received: {preset!r}. The nearest names: {', '.join(near) or 'none'}; "
        "`keras_bertfam.presets.list_presets()` has all."
    )


def check_no_preset(path: Path) -> None:
    """Raise a `ValueError` for a folder whose config.json is a preset's."""
    if any(os.path.exists(os.path.join(path, name)) for name in WEIGHTS_FILES):
        raise ValueError(
            "`path` must not be a preset's folder, whose config.json would be "
            f"replaced. Received: {os.fspath(path)!r}."
        )
