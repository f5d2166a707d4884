"""ELMo as AllenNLP and bilm-tf write it: options in JSON, weights in HDF5."""

import math
import numbers
import os
import warnings
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from keras_bertfam.presets import untrusted_files
from keras_bertfam.presets.checkpoints import file_keys, reading
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.presets.converting.report import warn
from keras_bertfam.types import Config, Path

# Characters of a word: bounded here, as no weight's shape depends on their number.
_MAX_CHARACTERS = 10_000
_CHARACTERS = 261


def elmo_arguments(options_file: Path) -> Config:
    """Read the arguments of an `ElmoBackbone` from a file of options.

    Args:
        options_file: path of `options.json`.

    Raises:
        CheckpointError: for a missing option, and for a value that no model here has.
    """
    options = reading.read_json(options_file)

    def option(name: str) -> Any:
        value: Any = options
        for key in name.split("."):
            if not isinstance(value, dict) or key not in value:
                raise CheckpointError(
                    f"{os.fspath(options_file)!r} must have the option {name!r}. "
                    f"Received: {sorted(value) if isinstance(value, dict) else value}."
                )
            value = value[key]
        return value

    for note in file_keys.ELMO.notes(_flat(options), options_file):
        warn(note)
    for name in file_keys.ELMO.only:
        if "." in name:
            option(name)

    def size(name, least=1, most=2**31 - 1):
        value = option(name)
        if type(value) is not int or not least <= value <= most:
            raise _unfit(options_file, name, f"an int from {least} to {most}", value)
        return value

    def clip(name):
        value = option(name)
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < math.inf):
            raise _unfit(options_file, name, "a number above 0, or null", value)
        return value

    filters = option("char_cnn.filters")
    if (
        not isinstance(filters, list)
        or not all(map(_is_filter, filters))
        or not filters
    ):
        raise _unfit(options_file, "char_cnn.filters", "pairs of sizes", filters)
    return {
        "num_layers": size("lstm.n_layers"),
        "hidden_dim": 2 * size("lstm.projection_dim"),
        "cell_dim": size("lstm.dim"),
        "cell_clip": clip("lstm.cell_clip"),
        "projection_clip": clip("lstm.proj_clip"),
        "embedding_dim": size("char_cnn.embedding.dim"),
        "filters": filters,
        "num_highways": size("char_cnn.n_highway", 0),
        "max_characters": size(
            "char_cnn.max_characters_per_token", most=_MAX_CHARACTERS
        ),
    }


def _flat(options):
    """Flatten nested options to names such as `lstm.dim`."""
    flat: Config = {}
    for name, value in options.items():
        inner = _flat(value) if isinstance(value, dict) and value else {"": value}
        flat |= {f"{name}.{key}".rstrip("."): each for key, each in inner.items()}
    return flat


def _is_filter(value):
    sizes = value if isinstance(value, list) and len(value) == 2 else [None]
    return all(type(n) is int and n > 0 for n in sizes)


def _unfit(path, name, expected, value):
    return CheckpointError(
        f"The option {name!r} in {os.fspath(path)!r} must be {expected}. Received: "
        f"{value!r}."
    )


def check_elmo_weights(weights_file: Path, arguments: Config) -> None:
    """Check that a file has the weights that the options declare.

    A warning names further weights. Only shapes are read, so that a model larger than
    its file is refused before it is built.

    Args:
        weights_file: path of the HDF5 file.
        arguments: dict, the result of `elmo_arguments`.

    Raises:
        CheckpointError: for a file that isn't HDF5, that refers to other files or
            declares more than it stores, and for a weight that is missing or has
            another shape.
    """
    if not os.path.isfile(weights_file):
        raise CheckpointError(f"{os.fspath(weights_file)!r} is not a file.")
    with reading.errors_of(weights_file, ValueError, RuntimeError, KeyError):
        shapes = untrusted_files.shapes_in(weights_file, most=1)
    for _, name, _, expected in _names(arguments):
        if shapes.get(f"/{name}") != expected:
            raise CheckpointError(
                f"{os.fspath(weights_file)!r} must have the weight {name!r} of the "
                f"shape {expected}, as the options say. Received: "
                f"{shapes.get(f'/{name}', 'none')}."
            )
    unused = sorted(shapes.keys() - {f"/{name}" for _, name, *_ in _names(arguments)})
    if unused:
        warnings.warn(
            f"{os.fspath(weights_file)!r} holds weights that nothing here takes, by "
            f"the options: {', '.join(unused)}.",
            stacklevel=3,
        )


def elmo_weights(
    weights_file: Path, arguments: Config
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the path of an attribute of an `ElmoBackbone` and its weight, one by one.

    Args:
        weights_file: path of an HDF5 file that `check_elmo_weights` accepts.
        arguments: dict, the result of `elmo_arguments`.

    Raises:
        CheckpointError: for a weight that can't be read, or isn't of floats.
    """
    with (
        reading.errors_of(weights_file, KeyError),
        h5py.File(weights_file, "r") as file,
    ):
        for attribute, name, part, _ in _names(arguments):
            if file[name].dtype.kind != "f":
                raise CheckpointError(
                    f"The weight {name!r} of {os.fspath(weights_file)!r} must be of "
                    f"floats. Received: {file[name].dtype}."
                )
            yield attribute, np.asarray(file[name][part])


def _names(arguments):
    """Yield for each weight its attribute, its name in the file, slice and shape there.

    Two weights may be slices of one array. The shape is that of the whole array.
    """
    everything, first = (), (0,)
    dim, filters = arguments["embedding_dim"], arguments["filters"]
    yield "characters.embeddings", "char_embed", everything, (_CHARACTERS, dim)
    for k, (chars, count) in enumerate(filters):
        at, file = f"characters.convolutions.{k}", "CNN"
        yield f"{at}.kernel", f"{file}/W_cnn_{k}", first, (1, chars, dim, count)
        yield f"{at}.bias", f"{file}/b_cnn_{k}", everything, (count,)
    inner = sum(count for _, count in filters)
    for k in range(arguments["num_highways"]):
        for ours, theirs in (("gate", "carry"), ("transform", "transform")):
            at, file = f"characters.highways.{k}.{ours}", f"CNN_high_{k}"
            yield f"{at}.kernel", f"{file}/W_{theirs}", everything, (inner, inner)
            yield f"{at}.bias", f"{file}/b_{theirs}", everything, (inner,)
    width, cells = arguments["hidden_dim"] // 2, arguments["cell_dim"]
    projection, file = "characters.projection", "CNN_proj"
    yield f"{projection}.kernel", f"{file}/W_proj", everything, (inner, width)
    yield f"{projection}.bias", f"{file}/b_proj", everything, (width,)
    kernel = (2 * width, 4 * cells)
    for number, direction in enumerate(("forward", "backward")):
        for k in range(arguments["num_layers"]):
            at = f"lstm.{direction}_layers.{k}"
            file = f"RNN_{number}/RNN/MultiRNNCell/Cell{k}/LSTMCell"
            yield f"{at}.kernel", f"{file}/W_0", np.s_[:width], kernel
            cell = f"{at}.recurrence.cell"
            yield f"{cell}.recurrent_kernel", f"{file}/W_0", np.s_[width:], kernel
            yield f"{at}.bias", f"{file}/B", everything, (4 * cells,)
            yield f"{cell}.projection", f"{file}/W_P_0", everything, (cells, width)
