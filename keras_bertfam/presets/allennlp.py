"""ELMo as AllenNLP and bilm-tf write it: options in JSON, weights in HDF5."""

import os
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from keras_bertfam.presets import reading
from keras_bertfam.presets.source import CheckpointError
from keras_bertfam.types import Config, Path

# Options that there is nothing else for, and values of those that may be missing.
_REQUIRED: Config = {
    "lstm.use_skip_connections": (True, True),
    "char_cnn.activation": ("relu", "relu"),
    "char_cnn.n_characters": (262, 261),
}


def elmo_arguments(options_file: Path) -> Config:
    """Arguments of an `ElmoBackbone` from a file of options.

    Args:
        options_file: path of `options.json`.

    Raises:
        CheckpointError: for options that are missing, or that no model here has.
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

    for name, expected in _REQUIRED.items():
        if option(name) not in expected:
            raise CheckpointError(
                f"The option {name!r} in {os.fspath(options_file)!r} must be "
                f"{expected[0]!r}. Received: {option(name)!r}."
            )
    return {
        "num_layers": option("lstm.n_layers"),
        "hidden_dim": 2 * option("lstm.projection_dim"),
        "cell_dim": option("lstm.dim"),
        "cell_clip": option("lstm.cell_clip"),
        "projection_clip": option("lstm.proj_clip"),
        "embedding_dim": option("char_cnn.embedding.dim"),
        "filters": option("char_cnn.filters"),
        "num_highways": option("char_cnn.n_highway"),
        "max_characters": option("char_cnn.max_characters_per_token"),
    }


def elmo_weights(
    weights_file: Path, arguments: Config
) -> Iterator[tuple[str, np.ndarray]]:
    """Weights by paths of attributes of an `ElmoBackbone`, one after the other.

    Args:
        weights_file: path of the HDF5 file.
        arguments: what `elmo_arguments` gives.

    Raises:
        CheckpointError: for a file that isn't HDF5, or lacks a weight.
    """
    try:
        file = h5py.File(weights_file, "r")
    except OSError as error:
        raise CheckpointError(
            f"{os.fspath(weights_file)!r} must be an HDF5 file. {error}."
        ) from error
    with file:
        for attribute, name, part in _names(arguments):
            if not isinstance(file.get(name), h5py.Dataset):
                raise CheckpointError(
                    f"{os.fspath(weights_file)!r} must have the weight {name!r}. "
                    "Received: none."
                )
            yield attribute, np.asarray(file[name][part])


def _names(arguments):
    """Attribute, name in the file, and which part of that it is."""
    everything, first = (), (0,)
    yield "characters.embeddings", "char_embed", everything
    for k in range(len(arguments["filters"])):
        yield f"characters.convolutions.{k}.kernel", f"CNN/W_cnn_{k}", first
        yield f"characters.convolutions.{k}.bias", f"CNN/b_cnn_{k}", everything
    for k in range(arguments["num_highways"]):
        for ours, theirs in (("gate", "carry"), ("transform", "transform")):
            at, file = f"characters.highways.{k}.{ours}", f"CNN_high_{k}"
            yield f"{at}.kernel", f"{file}/W_{theirs}", everything
            yield f"{at}.bias", f"{file}/b_{theirs}", everything
    yield "characters.projection.kernel", "CNN_proj/W_proj", everything
    yield "characters.projection.bias", "CNN_proj/b_proj", everything
    width = arguments["hidden_dim"] // 2
    for number, direction in enumerate(("forward", "backward")):
        for k in range(arguments["num_layers"]):
            at = f"lstm.{direction}_layers.{k}"
            file = f"RNN_{number}/RNN/MultiRNNCell/Cell{k}/LSTMCell"
            yield f"{at}.kernel", f"{file}/W_0", np.s_[:width]
            cell = f"{at}.recurrence.cell"
            yield f"{cell}.recurrent_kernel", f"{file}/W_0", np.s_[width:]
            yield f"{at}.bias", f"{file}/B", everything
            yield f"{cell}.projection", f"{file}/W_P_0", everything
