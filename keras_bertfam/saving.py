"""Preset directories: written aside and renamed, checked before they are read."""

import contextlib
import difflib
import json
import os
import pathlib
import shutil
import tempfile

import keras

CONFIG_FILE = "config.json"
TASK_FILE = "task.json"
PREPROCESSOR_FILE = "preprocessor.json"
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS_FILES = ("model.weights.h5", "model.weights.json")
TASK_WEIGHTS_FILE = "task.weights.h5"

_being_written = set()


@contextlib.contextmanager
def write_aside(path):
    """Give a folder to write to, and move what is in it to `path` at the end.

    Nothing appears at `path` before everything is written. Files already there
    stay unless one of the same name replaces them. After an exception `path` is
    as it was. Calls may nest: the inner one writes to the outer one's folder.

    Args:
        path: the folder to fill.

    Returns:
        A context manager that yields the path of the folder to write to.
    """
    path = os.path.abspath(path)
    if path in _being_written:
        yield path
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    aside = tempfile.mkdtemp(prefix=".writing-", dir=os.path.dirname(path))
    _being_written.add(aside)
    try:
        yield aside
        _move_into(aside, path)
    finally:
        _being_written.discard(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _move_into(source, target):
    if not os.path.exists(target):
        os.chmod(source, 0o777 & ~_umask())
        os.rename(source, target)
        return
    for folder, _, files in os.walk(source):
        goal = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(goal, exist_ok=True)
        for name in files:
            os.replace(os.path.join(folder, name), os.path.join(goal, name))


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_preset(preset, known_names, load_weights=True):
    """Raise a `ValueError` if a preset can't be what it should be.

    Args:
        preset: str or path. A directory, or a handle such as `hf://...`.
        known_names: the names that would have been taken.
        load_weights: bool. Whether the weights have to be there.
    """
    preset = os.fspath(preset)
    if "://" in preset:
        return
    if not os.path.isdir(preset):
        near = difflib.get_close_matches(preset, known_names, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(
            "`preset` must be a known name or the path of a preset directory. "
            f"Received: preset={preset!r}.{hint} Known names: "
            f"{', '.join(sorted(known_names)) or 'none'}"
        )
    here = set(os.listdir(preset))
    missing = [] if CONFIG_FILE in here else [CONFIG_FILE]
    if load_weights and not here.intersection(WEIGHTS_FILES):
        missing.append(WEIGHTS_FILES[0])
    if missing:
        raise ValueError(
            f"The preset directory {preset!r} is not complete. Missing: "
            f"{', '.join(missing)}. There are: {', '.join(sorted(here)) or 'none'}"
        )


@contextlib.contextmanager
def explain_load_errors(preset):
    """Turn the errors of a damaged preset into a `ValueError` that names it."""
    try:
        yield
    except (OSError, KeyError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"The preset directory {os.fspath(preset)!r} can't be read; a file in "
            f"it is truncated or damaged. {type(error).__name__}: {error}"
        ) from error


def read_json(preset, name):
    """The object in a JSON file of a preset directory, or `None` without one."""
    path = pathlib.Path(preset, name)
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def load_serialized(preset, name):
    """Rebuild a preprocessor or tokenizer from a preset directory.

    Args:
        preset: path of the directory.
        name: str. Name of the object's JSON file.

    Returns:
        The object with its assets loaded, or `None` if there is no such file.
    """
    config = read_json(preset, name)
    if config is None:
        return None
    layer = keras.saving.deserialize_keras_object(config)
    layer.load_preset_assets(os.fspath(preset))
    return layer
