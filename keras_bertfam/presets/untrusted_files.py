"""Checks of a preset directory's files, before anything is built from them.

A preset may come from anywhere. Its configs may name registered classes, and classes of
Keras that neither run code nor open files. No name in it may lead out of its directory.
No shape in a config may be larger than the stored weights.
"""

import collections
import math
import os
import pathlib
from typing import Any

import h5py
import keras

from keras_bertfam.presets.checkpoints import file_keys, reading
from keras_bertfam.types import Config, Path, Shapes

# Modules of Keras whose objects a preset may have: values, not layers.
_KERAS_MODULES = (
    "keras.activations",
    "keras.constraints",
    "keras.dtype_policies",
    "keras.initializers",
    "keras.losses",
    "keras.metrics",
    "keras.optimizers",
    "keras.regularizers",
)
_KERAS_VALUES = {"__bytes__", "__ellipsis__", "__numpy__", "__slice__", "__tensor__"}
_KERAS_VALUES |= {"__tuple__", "DTypePolicy", "FloatDTypePolicy", "DTypePolicyMap"}
# Arguments by which a tokenizer would open a file.
_FILE_ARGUMENTS = ("vocabulary", "merges", "proto")
_STORED_FOR_EACH = 1000  # Bytes declared for each byte stored, at most: as in Keras


def path_inside(folder: Path, name: str) -> pathlib.Path:
    """Give the path of a file in a directory, after a check that it stays inside.

    A link may lead to another file of the directory. In a cache of `huggingface_hub` it
    may also lead to the cache's own store.

    Args:
        folder: path.
        name: str, with `/` between folders.

    Returns:
        `pathlib.Path`.

    Raises:
        ValueError: if the name leads out of the directory, or isn't a file's.
    """
    folder = pathlib.Path(folder)
    path, home = (folder / name).resolve(), folder.resolve()
    stores = [home]
    if home.parent.name == "snapshots":
        stores.append(home.parent.parent / "blobs")
    parts = pathlib.PurePath(name).parts
    if ".." in parts or not any(path.is_relative_to(store) for store in stores):
        raise ValueError(
            f"A file of the preset directory {str(folder)!r} must be inside it. "
            f"Received: {name!r}, which leads to {str(path)!r}."
        )
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "a device or a pipe"
        raise ValueError(
            f"{name!r} of the preset directory {str(folder)!r} must be a file. "
            f"Received: {kind}."
        )
    return folder / name


def check_directory(folder: Path) -> None:
    """Raise a `ValueError` if an entry of a preset directory leads out of it."""
    for at, folders, files in os.walk(folder):
        for name in files:
            path_inside(folder, os.path.relpath(os.path.join(at, name), folder))
        for name in folders:
            if os.path.islink(os.path.join(at, name)):
                raise ValueError(
                    f"The preset directory {os.fspath(folder)!r} must have no links "
                    f"to directories. Received: {name!r}."
                )


def read_json(folder: Path, name: str) -> Config | None:
    """Read the object in a JSON file of a preset directory; `None` without the file.

    Raises:
        ValueError: if the file isn't a JSON object, or is too large for a preset.
    """
    path = path_inside(folder, name)
    if not path.exists():
        return None
    return reading.read_json(path)


def read_config(folder: Path, name: str) -> Any:
    """Read a serialised object in a preset directory, and check it; `None` without one.

    Raises:
        ValueError: for an object of a class that isn't registered, or one that
            would run code or open a file.
    """
    config = read_json(folder, name)
    if config is None:
        return None
    where = str(pathlib.Path(folder, name))
    if not isinstance(config.get("config"), dict):
        raise ValueError(f"{where!r} must hold a serialised object with a `config`.")
    keys = {key for key, *_ in file_keys.SERIALIZED.entries()}
    for key in config:
        if key not in keys:
            raise ValueError(
                f"{where!r} must have no other keys than {', '.join(sorted(keys))}. "
                f"Received: {key}={config[key]!r}."
            )
    _check_class(config, where, registered=True)
    _check_values(config["config"], where)
    return config


def _check_values(value, where):
    if isinstance(value, list):
        for item in value:
            _check_values(item, where)
    if not isinstance(value, dict):
        return
    if "class_name" in value:
        _check_class(value, where)
    for name in _FILE_ARGUMENTS:
        if isinstance(value.get(name), str):
            raise ValueError(
                f"`{name}` in {where!r} must not be a path. Received: {value[name]!r}."
            )
    file = value.get("config_file")
    if file is not None and (not isinstance(file, str) or not _is_bare(file)):
        raise ValueError(
            f"`config_file` in {where!r} must be the name of a file. "
            f"Received: {file!r}."
        )
    for item in value.values():
        _check_values(item, where)


def _is_bare(name):
    return name not in ("", ".", "..") and "\\" not in name and "/" not in name


def _is_function_of_keras_hub(value):
    """Tell whether a value names a function such as an activation."""
    name = value.get("config")
    return (
        value["class_name"] == "function"
        and isinstance(name, str)
        and name.startswith(("keras_hub>", "keras_nlp>"))
        and keras.saving.get_registered_object(name) is not None
    )


def _check_class(value, where, registered=False):
    """Raise unless it names a registered class, or a value of Keras."""
    name, module = value.get("registered_name"), value.get("module")
    known = keras.saving.get_registered_object(name) if isinstance(name, str) else None
    if isinstance(known, type) or _is_function_of_keras_hub(value):
        return
    if (since := _registered_since(value)) is not None:
        value["registered_name"] = since
        return
    harmless = isinstance(module, str) and (
        module.startswith(_KERAS_MODULES) or value["class_name"] in _KERAS_VALUES
    )
    if registered or not harmless or not isinstance(value["class_name"], str):
        raise ValueError(
            f"{where!r} names an object that a preset may not have. Expected a class "
            "registered by keras_bertfam, keras_hub or a module that you have "
            "imported, with `@keras.saving.register_keras_serializable(...)`. "
            f"Received: class_name={value.get('class_name')!r}, "
            f"registered_name={name!r}, module={module!r}."
        )


def _registered_since(value):
    """Name the class that a config means, if it was registered after it was saved."""
    known = keras.saving.get_custom_objects()
    found = [
        name
        for name, cls in known.items()
        if isinstance(cls, type)
        and cls.__name__ == value.get("class_name")
        and value.get("module") in (None, cls.__module__)
    ]
    return found[0] if len(found) == 1 else None


def backbone_shapes(folder: Path) -> Shapes:
    """Give the shapes of the weights of the backbone in a preset directory.

    Returns:
        Dict from the names in the files to shapes; empty without weights.

    Raises:
        ValueError: for files elsewhere, links to other files, or shapes far larger
            than what is stored.
        OSError: for a file that isn't HDF5.
    """
    shapes: Shapes = {}
    for path in _weights_files(folder):
        shapes |= shapes_in(path)
    return shapes


def shapes_in(path: Path, most: int = _STORED_FOR_EACH) -> Shapes:
    """Give the shapes of the weights in a file, see `backbone_shapes`.

    Args:
        path: path of the file.
        most: int. Bytes that may be declared for each that is stored.
    """
    shapes: Shapes = {}
    with h5py.File(path, "r") as file:
        _collect(file, shapes, str(path), most)
    return shapes


def _weights_files(folder):
    single = path_inside(folder, "model.weights.h5")
    if single.exists():
        return [single]
    index = read_json(folder, "model.weights.json") or {}
    names = index.get("weight_map", {})
    if not isinstance(names, dict):
        raise ValueError("`weight_map` in 'model.weights.json' must be an object.")
    flat = (v if isinstance(v, list) else [v] for v in names.values())
    shards = {str(name) for names in flat for name in names}
    for name in shards:
        if not _is_bare(name):
            raise ValueError(
                f"'model.weights.json' must name files beside it. Received: {name!r}."
            )
    return [path_inside(folder, name) for name in sorted(shards)]


def _collect(group, shapes, where, most):
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"{where!r} must have no links. Received: {name!r}.")
        item = group[name]
        if h5py.h5o.get_info(item.id).rc > 1:  # each way to it would be gone
            raise ValueError(f"{where!r} must hold {item.name!r} once.")
        if isinstance(item, h5py.Group):
            _collect(item, shapes, where, most)
            continue
        if item.external or item.is_virtual:
            raise ValueError(
                f"{where!r} must hold its own data. Received: {item.name!r} with the "
                "data of another file."
            )
        if item.dtype.hasobject:
            raise ValueError(f"{where!r} must hold numbers. Received: {item.name!r}.")
        declared = math.prod(item.shape) * item.dtype.itemsize
        if declared > max(1 << 20, most * item.id.get_storage_size()):
            raise ValueError(
                f"{where!r} declares {declared} bytes for {item.name!r}, of which only "
                f"{item.id.get_storage_size()} are stored."
            )
        shapes[item.name] = tuple(item.shape)


def check_vocabulary(folder: Path) -> None:
    """Raise a `ValueError` for a vocabulary that is too large, or has a token twice.

    An id that occurs twice raises the same error.
    """
    for path in pathlib.Path(folder, "assets").rglob("*"):
        if path.is_file():
            reading.check_bytes(path)
    text = path_inside(folder, "assets/tokenizer/vocabulary.txt")
    if text.exists():
        with text.open(encoding="utf-8") as lines:
            _check_unique([line.rstrip() for line in lines], "token", text)
    ids = path_inside(folder, "assets/tokenizer/vocabulary.json")
    if ids.exists():
        pairs = reading.read_json(ids, pairs=True, vocabulary=True)
        if not all(isinstance(pair[1], int) for pair in pairs):
            raise ValueError(f"{str(ids)!r} must map tokens to ids.")
        _check_unique([token for token, _ in pairs], "token", ids)
        _check_unique([number for _, number in pairs], "id", ids)


def _check_unique(values, kind, path):
    for value, count in collections.Counter(values).most_common(1):
        if count > 1:
            raise ValueError(
                f"A {kind} must be in {str(path)!r} once. Received: {value!r} "
                f"{count} times."
            )
