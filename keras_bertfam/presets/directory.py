"""Preset directories, checked before they are read."""

import contextlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras

from keras_bertfam.presets import sizes, untrusted
from keras_bertfam.presets.existing import CONFIG_FILE, TASK_FILE, WEIGHTS_FILES
from keras_bertfam.presets.source import CheckpointError
from keras_bertfam.presets.task_sizes import (
    check_lengths,
    check_new_weights,
    check_task_sizes,
)
from keras_bertfam.types import Model, Path, Shapes

PREPROCESSOR_FILE = "preprocessor.json"
TOKENIZER_FILE = "tokenizer.json"
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
    except Exception as error:  # whatever a constructor makes of a damaged value
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
    return untrusted.read_config(preset, name)


def inspect_backbone(preset: Path) -> Shapes:
    """Check the files of a preset's backbone before it is built.

    Args:
        preset: path of the directory.

    Returns:
        Dict from names to the shapes of the weights, empty without any.

    Raises:
        ValueError: for files that lead elsewhere, classes that may not be in a
            preset, or a config of other sizes than the weights.
    """
    untrusted.check_directory(preset)
    config = untrusted.read_config(preset, CONFIG_FILE)
    shapes = untrusted.backbone_shapes(preset)
    sizes.check_sizes(config, shapes, os.path.join(preset, CONFIG_FILE))
    return shapes


def inspect_task(preset: Path) -> Shapes:
    """Check the files of a preset's task before it is built.

    Returns:
        Dict from names to the shapes of the task's own weights.
    """
    weights = untrusted.path_inside(preset, TASK_WEIGHTS_FILE)
    shapes = untrusted.shapes_in(weights) if weights.exists() else {}
    task, backbone = read_json(preset, TASK_FILE), read_json(preset, CONFIG_FILE)
    both = {
        **untrusted.backbone_shapes(preset),
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
    """Warn of weights that aren't finite, and of those that nothing has taken.

    Args:
        weights: list of the variables that were loaded.
        save: function that writes them to a path.
        shapes: dict, what `inspect_backbone` gave.
        preset: path of the directory, for the messages.
    """
    if len(shapes) > len(weights):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, WEIGHTS_FILES[0])
            save(path)
            unused = sorted(shapes.keys() - untrusted.shapes_in(path).keys())
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
    untrusted.check_directory(preset)
    untrusted.check_vocabulary(preset)
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
