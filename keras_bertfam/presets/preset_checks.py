"""Checks of preset directories before they are read."""

import collections
import contextlib
import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras

from keras_bertfam.presets import sizes, untrusted_files
from keras_bertfam.presets.checkpoints import file_keys
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.presets.inspection import (
    CONFIG_FILE,
    PREPROCESSOR_FILE,
    TASK_FILE,
    WEIGHTS_FILES,
)
from keras_bertfam.quantization import values_per_weight
from keras_bertfam.types import Config, Model, Path, Shapes

METADATA_FILE = "metadata.json"
TASK_WEIGHTS_FILE = "task.weights.h5"


@contextlib.contextmanager
def explain_load_errors(preset: Path) -> Iterator[None]:
    """Turn the errors of a damaged preset into a `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except ValueError as error:
        decoding = (json.JSONDecodeError, UnicodeDecodeError)
        if isinstance(error, decoding):
            raise _damaged(preset, error) from error
        raise CheckpointError(str(error)) from error
    except Exception as error:  # constructors raise any kind for damaged values
        raise _damaged(preset, error) from error


def _damaged(preset, error):
    return CheckpointError(
        f"The preset directory {os.fspath(preset)!r} can't be read; a file in it is "
        "truncated or damaged, or an argument doesn't fit what it holds. "
        f"{type(error).__name__}: {error}"
    )


def read_json(preset: Path, name: str) -> Any:
    """Read the serialised object in a preset directory; `None` without that file.

    Raises:
        ValueError: for an object that a preset may not have, see `untrusted`.
    """
    return untrusted_files.read_config(preset, name)


def inspect_backbone(preset: Path) -> Shapes:
    """Check the files of a preset's backbone before it is built.

    A warning names keys of its metadata that aren't known.

    Args:
        preset: path of the directory.

    Returns:
        Dict from names to the shapes of the weights, empty without any.

    Raises:
        ValueError: for links to other places, classes that may not be in a preset, or
            a config whose sizes aren't those of the weights.
    """
    untrusted_files.check_directory(preset)
    config = untrusted_files.read_config(preset, CONFIG_FILE)
    metadata = untrusted_files.read_json(preset, METADATA_FILE) or {}
    where = os.path.join(preset, METADATA_FILE)
    if notes := file_keys.METADATA.notes(metadata, where):
        warnings.warn(f"{os.fspath(preset)!r}: {notes[0]}", stacklevel=3)
    shapes = untrusted_files.backbone_shapes(preset)
    sizes.check_sizes(config, shapes, os.path.join(preset, CONFIG_FILE))
    return shapes


def inspect_task(preset: Path) -> Shapes:
    """Check the files of a preset's task before it is built.

    Returns:
        Dict from names to the shapes of the task's own weights.
    """
    weights = untrusted_files.path_inside(preset, TASK_WEIGHTS_FILE)
    shapes = untrusted_files.shapes_in(weights) if weights.exists() else {}
    task, backbone = read_json(preset, TASK_FILE), read_json(preset, CONFIG_FILE)
    both = {
        **untrusted_files.backbone_shapes(preset),
        **{f"task{k}": v for k, v in shapes.items()},
    }
    if task is not None:
        where = os.path.join(preset, TASK_FILE)
        sizes.check_sizes(task["config"], both, where)
        if shapes:
            check_task_sizes(task, backbone, shapes, where)
    preprocessor = read_json(preset, PREPROCESSOR_FILE)
    if backbone is not None:
        check_new_weights(backbone, preprocessor, task, both, os.fspath(preset))
    return shapes


def check_loaded(
    weights: Sequence[Any], save: Callable[[str], None], shapes: Shapes, preset: Path
) -> None:
    """Warn of weights that aren't finite, and of stored weights without a variable.

    Args:
        weights: list of the variables that were loaded.
        save: function that writes the variables to a path.
        shapes: dict of `inspect_backbone`.
        preset: path of the directory, for the messages.
    """
    if len(shapes) > len(weights):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, WEIGHTS_FILES[0])
            save(path)
            unused = sorted(shapes.keys() - untrusted_files.shapes_in(path).keys())
        warnings.warn(
            f"The preset directory {os.fspath(preset)!r} holds weights that nothing "
            f"here takes: {', '.join(unused)}.",
            stacklevel=3,
        )
    warn_if_not_finite(weights, preset)


def warn_if_not_finite(variables: Iterable[Any], source: Path) -> None:
    """Warn if a variable has values that are NaN or infinite."""
    bad = [
        variable.path
        for variable in variables
        if keras.backend.is_float_dtype(variable.dtype)
        and not keras.ops.convert_to_numpy(
            keras.ops.all(keras.ops.isfinite(variable.value))
        )
    ]
    if bad:
        warnings.warn(
            f"Weights from {os.fspath(source)!r} have values that are NaN or infinite: "
            f"{', '.join(bad)}.",
            stacklevel=3,
        )


def load_serialized(preset: Path, name: str) -> Any:
    """Rebuild a preprocessor or tokenizer from a preset directory.

    Args:
        preset: path of the directory.
        name: str. Name of the object's JSON file.

    Returns:
        The object with its assets loaded, or `None` if there is no such file.

    Raises:
        ValueError: for an object that a preset may not have, or a vocabulary with a
            token twice.
    """
    config = read_json(preset, name)
    if config is None:
        return None
    check_lengths(config, os.path.join(preset, name))
    cls = keras.saving.get_registered_object(config["registered_name"])
    if not hasattr(cls, "load_preset_assets"):
        raise ValueError(
            f"{name!r} of {os.fspath(preset)!r} must hold a preprocessor or a "
            f"tokenizer. Received: {cls.__name__}."
        )
    untrusted_files.check_directory(preset)
    untrusted_files.check_vocabulary(preset)
    layer = keras.saving.deserialize_keras_object(config)
    layer.load_preset_assets(os.fspath(preset))
    return layer


def check_vocabulary_size(preprocessor: Any, backbone: Model, preset: Path) -> None:
    """Warn if a preset's tokenizer has fewer tokens than its backbone has rows."""
    size = preprocessor.tokenizer.vocabulary_size() if preprocessor else None
    if size is not None:
        size += len(getattr(preprocessor, "new_tokens", ()))
    if size is not None and size < backbone.vocabulary_size:
        warnings.warn(
            f"The preset directory {os.fspath(preset)!r} has a tokenizer of {size} "
            f"tokens, and a backbone with rows for {backbone.vocabulary_size}.",
            stacklevel=3,
        )


@contextlib.contextmanager
def explain_weights_errors(path: Path, variables: Iterable[Any]) -> Iterator[None]:
    """Turn the errors of Keras's loader into a `CheckpointError` that names the file.

    Args:
        path: the file, or the index of several.
        variables: the variables that are to be loaded.
    """
    path = os.fspath(path)
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"{path!r} can't be read; it is truncated, damaged or of another format. "
            f"{type(error).__name__}: {error}"
        ) from error
    except ValueError as error:
        single = path.endswith(".h5")
        if "could not be loaded" not in str(error):
            raise
        stored = (
            untrusted_files.shapes_in(path)
            if single
            else untrusted_files.backbone_shapes(os.path.dirname(path))
        )
        raise _mismatch(path, variables, stored) from error


def _mismatch(path, variables, stored):
    """Make the error that names the first variable without a weight of its shape."""
    left = collections.Counter(stored.values())
    missing = []
    for variable in variables:
        shape = tuple(variable.shape)
        if left[shape]:
            left[shape] -= 1
        else:
            missing.append(f"{variable.path!r} {shape}")
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    expected = f"{missing[0]}{more}" if missing else "each layer"
    shapes = sorted(left.elements())[:8]
    others = f"the shapes {shapes}" if shapes else "none"
    return CheckpointError(
        f"The weights in {path!r} don't fit the model, or the config beside them. "
        f"Expected weights for {expected}. Received, beside those that fit: {others}."
    )


_PACKAGES = ("keras_bertfam>", "keras_hub>", "keras_nlp>")
# Arguments that are sizes of a task's own weights. Each function gives the shape of one
# such weight, from the argument's value, the width of the backbone and the task's
# config.
_STORED_SIZES = {
    "num_classes": lambda n, width, config: _of_classes(n, width, config),
    "arc_dim": lambda n, width, config: (n, n),
    "relation_dim": lambda n, width, config: (width, n),
    "hidden_dim": lambda n, width, config: (width, n),
    "decoder_positions": lambda n, width, config: (n, width),
    "position_dim": lambda n, width, config: (2 * width + n, width),
    "max_span_length": lambda n, width, config: (n, config.get("position_dim")),
}
# Weights that aren't stored, a memory and new heads, have sizes that are products of
# these.
_NEW_SIZES = (
    ("batch_size", "memory_length", "num_layers", "hidden_dim"),
    ("num_classes", "hidden_dim"),
    ("vocabulary_size", "hidden_dim"),
    ("position_dim", "hidden_dim"),
    ("decoder_positions", "hidden_dim"),
    ("max_span_length", "hidden_dim"),
    ("max_span_length", "position_dim"),
    ("arc_dim", "arc_dim"),
    ("arc_dim", "hidden_dim"),
    ("relation_dim", "hidden_dim"),
    ("num_classes", "relation_dim", "relation_dim"),
)
_NEW_FOR_EACH = 100  # Most numbers that aren't stored, for each stored number
_ANY_PRESET, _ALL_NEW = 1 << 20, 1 << 30
_MAX_LENGTH = 1 << 20  # of rows and of their parts


def _of_classes(count, width, config):
    """Give the shape of the weight that makes logits of classes.

    With `relation_dim` it has a biaffine form for each class.
    """
    if config.get("relation_dim") is not None:
        return config["relation_dim"], count * (config["relation_dim"] + 1)
    return config.get("hidden_dim") or width, count


def check_task_sizes(
    task: Config, backbone: Config, shapes: Shapes, where: str
) -> None:
    """Raise a `ValueError` if a task's config doesn't fit its stored weights.

    Classes of the user are not checked, since the meaning of their arguments is
    unknown.

    Args:
        task: serialised object.
        backbone: serialised object; the task may have another copy of it.
        shapes: dict, the shapes of the task's own weights.
        where: str, for the message.
    """
    if not str(task["registered_name"]).startswith(_PACKAGES):
        return
    config, width = _with_classes(task["config"]), _width(backbone)
    if _width(config.get("backbone", backbone)) != width:
        raise ValueError(
            f"The backbone in {where!r} must have the hidden_dim={width!r} of that "
            f"beside it. Received: {_width(config['backbone'])!r}."
        )
    sizes = {
        name: config[name] for name in _STORED_SIZES if config.get(name) is not None
    }
    for name, size in sizes.items():
        shape = _STORED_SIZES[name](size, width, config)
        forms = _stored_forms(shape, values_per_weight(config.get("quantized_layers")))
        if type(size) is not int or not forms & {*shapes.values()}:
            raise ValueError(
                f"{where!r} doesn't fit its weights. Expected a weight of the shape "
                f"{shape} for {name}={size!r}. Received: {sorted({*shapes.values()})}."
            )


def _stored_forms(shape, packed):
    """List the shapes that a weight may have in a file: one axis may be packed."""
    forms = {shape}
    if packed > 1 and all(isinstance(dim, int) for dim in shape):
        for axis, dim in enumerate(shape):
            forms.add((*shape[:axis], -(-dim // packed), *shape[axis + 1 :]))
    return forms


def check_new_weights(
    backbone: Config,
    preprocessor: Config | None,
    task: Config | None,
    shapes: Shapes,
    where: str,
) -> None:
    """Raise a `ValueError` if far more would be allocated than is stored.

    Args:
        backbone: serialised object.
        preprocessor: serialised object or `None`.
        task: serialised object or `None`.
        shapes: dict, the shapes of all weights that are stored.
        where: str, for the message.
    """
    most = max(_ANY_PRESET, _NEW_FOR_EACH * sum(map(math.prod, shapes.values())))
    if not shapes:  # all of it is new
        most = _ALL_NEW
    for part in (preprocessor, task):
        config = {} if part is None else _with_classes(part["config"])
        names = config.get("label_names") or []
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise ValueError(
                f"`label_names` in {where!r} must be a list of strings. "
                f"Received: {names!r}."
            )
        sizes = {**config, **backbone["config"]}
        for group in _NEW_SIZES:
            values: list[Any] = [sizes.get(name) for name in group]
            if all(type(value) is int for value in values) and math.prod(values) > most:
                raise ValueError(
                    f"{where!r} declares far more than is stored in it. Expected: at "
                    f"most {most} numbers. Received: {', '.join(group)} = {values}."
                )


def _with_classes(config):
    names = config.get("label_names")
    if config.get("num_classes") is None and isinstance(names, list):
        return {**config, "num_classes": len(names)}
    return config


def _width(backbone):
    config = backbone.get("config") if isinstance(backbone, dict) else None
    return config.get("hidden_dim") if isinstance(config, dict) else None


def check_lengths(config: Any, where: str) -> None:
    """Raise a `ValueError` for a preprocessor or tokenizer of endless rows.

    Classes of the user are not checked.

    Args:
        config: serialised object; what is within it is checked as well.
        where: str, for the message.
    """
    if not str(config.get("registered_name") or _PACKAGES[0]).startswith(_PACKAGES):
        return
    for name, value in config.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                check_lengths(part, where)
            elif isinstance(part, int) and part > _MAX_LENGTH and name != "seed":
                raise ValueError(
                    f"`{name}` in {where!r} must be at most {_MAX_LENGTH}. "
                    f"Received: {part}."
                )
