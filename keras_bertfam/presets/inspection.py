"""Checks of presets and paths that need no framework."""

import difflib
import glob
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from keras_bertfam.lazy import modules_of_names
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.types import Path

CONFIG_FILE, TOKENIZER_FILE = "config.json", "tokenizer.json"
TASK_FILE, PREPROCESSOR_FILE = "task.json", "preprocessor.json"
SERIALIZED_FILES = (CONFIG_FILE, TOKENIZER_FILE, TASK_FILE, PREPROCESSOR_FILE)
WEIGHTS_FILES = ("model.weights.h5", "model.weights.json")


def published_names() -> set[str]:
    """Give the names of the sizes that the families' records have."""
    return {name for record in FAMILIES.values() for name in record.sizes}


def published_family(name: str) -> str | None:
    """Find the family that has a published size of this name, or give `None`."""
    families = (each for each, record in FAMILIES.items() if name in record.sizes)
    return next(families, None)


def check_findable(preset: Path, name: str = "preset") -> None:
    """Raise a `ValueError` unless a value is a published name, a handle or a path.

    Args:
        preset: str or path of a checkpoint of any format.
        name: str. The argument's name for the error.
    """
    text, known = os.fspath(preset), published_names()
    if "://" in text or text in known or os.path.exists(text):
        return
    if not glob.glob(f"{glob.escape(text)}.*"):  # TensorFlow 1's names are prefixes
        raise _unknown(text, known, name)


def check_preset(
    preset: Path, known_names: Iterable[str], load_weights: bool = True
) -> None:
    """Raise an error unless a preset exists and is complete.

    Args:
        preset: str or path. A directory, or a handle such as `hf://...`.
        known_names: known names, for the error.
        load_weights: bool. Whether the weights are needed.

    Raises:
        CheckpointError: for an incomplete preset.
        ValueError: if there is no preset.
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


def check_no_export(path: Path) -> None:
    """Raise a `ValueError` for a folder with others' files that a preset would replace.

    A preset has a `config.json` and a `tokenizer.json` of its own.
    """
    names = [name for name in (CONFIG_FILE, TOKENIZER_FILE) if _is_others(path, name)]
    if names:
        raise ValueError(
            "A preset must be saved to another folder than a checkpoint or a tokenizer "
            f"of `transformers`, whose {' and '.join(names)} would be replaced. "
            f"Received: {os.fspath(path)!r}."
        )


def _is_others(path, name):
    """Tell whether a folder has a file of this name that isn't a preset's."""
    file = os.path.join(path, name)
    return os.path.isfile(file) and (
        b'"registered_name"' not in pathlib.Path(file).read_bytes()
    )


# Fine-tuning tasks that begin with a masked language model's head.
_OF_MASKED_LM = ("SparseEncoder",)
_OWN = ("BidirectionalLM", "CausalLM", "PermutationLM", "RecurrentLM", "TextToText")


def fine_tuned() -> tuple[str, ...]:
    """Name the fine-tuning tasks: public classes of their folder with preprocessors."""
    public = modules_of_names("tasks")
    return tuple(
        name
        for name in sorted(public)
        if ".tasks.finetuning." in public[name] and f"{name}Preprocessor" in public
    )


def tasks_of(family: str) -> tuple[str, ...]:
    """Name the usual tasks for a family's encoder; none for an unknown family.

    Args:
        family: name of a published family.
    """
    record = FAMILIES.get(family)
    if record is None or not record.pretraining:
        return ()
    trained_by = record.pretraining[""].task
    own = trained_by if trained_by in _OWN else "MaskedLM"
    if own in ("RecurrentLM", "TextToText"):
        return (own,)
    if own == "MaskedLM":
        return (own, *fine_tuned())
    return (own, *(name for name in fine_tuned() if name not in _OF_MASKED_LM))


def family_of_class(name: str) -> str | None:
    """Find the family whose backbone class has this name."""
    families = (each for each, record in FAMILIES.items() if record.backbone == name)
    return next(families, None)


def class_of(saved: Any) -> str:
    """Read the class name in the content of a `config.json` or `task.json`."""
    return str(saved["registered_name"]).rpartition(">")[2]


def wrong_kind_error(
    preset: Path, received: str, family: str | None, expected: str
) -> CheckpointError:
    """Make the error for a preset that holds another class than expected.

    Args:
        preset: path.
        received: name of the preset's class.
        family: name of the preset's family, if known.
        expected: name of the expected class.
    """
    tasks = tasks_of(family or "")
    taken = f" It is for {', '.join(tasks)}." if tasks else ""
    return CheckpointError(
        f"`preset` must hold a {expected}. "
        f"Received: {os.fspath(preset)!r}, which holds a {received}.{taken}"
    )


def check_export_paths(model: Any, path: Path) -> None:
    """Raise a `ValueError` for a missing preset, or an export path that exists.

    Args:
        model: a model, or the path of a preset directory.
        path: path of the export.
    """
    if os.path.exists(path):
        raise ValueError(f"`path` must not exist yet. Received: path={path!r}.")
    if isinstance(model, (str, os.PathLike)) and not os.path.isdir(model):
        raise ValueError(
            "`model` must be a model or an existing preset directory. "
            f"Received: model={os.fspath(model)!r}."
        )
