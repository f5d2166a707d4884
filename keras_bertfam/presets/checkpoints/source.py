"""The common form of all checkpoints: tensors by `transformers`' names, and its config.

A module for each format reads it into this form. `formats.READERS` lists these modules,
which have two functions:

- `recognises(path)` tells whether a folder or file is of the format. It reads names of
  files, and small files.
- `open_source(path)` returns a `CheckpointSource`, or raises a `CheckpointError`.
"""

import collections.abc
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.types import Path

# Ways to give a tokenizer, for messages.
TOKENIZERS = (
    "the name or folder of a preset, a folder of Hugging Face, or a file: vocab.txt, "
    "tokenizer.json, spiece.model (or another .model), or vocab.json with merges.txt "
    "beside it"
)


class CheckpointError(ValueError):
    """A checkpoint that can't be read, or that no model here fits.

    Reading a checkpoint of any format raises this error for each fault of the
    checkpoint itself: a damaged or missing file, a tensor of a wrong shape, a
    configuration that no model here has.

    Example:

    ```python
    try:
        backbone = keras_bertfam.models.BertBackbone.from_preset("folder")
    except keras_bertfam.presets.CheckpointError as error:
        print(f"This is no checkpoint: {error}")
    ```
    """


def unfit(where: Path, key: str, expected: Any, received: Any) -> CheckpointError:
    """Make the error for a value that no model here has.

    Args:
        where: path of the file, or of its folder.
        key: str, the key of the value.
        expected: the values that are allowed, in words.
        received: the value.
    """
    return CheckpointError(
        f"{key!r} of {os.fspath(where)!r} must be {expected}. Received: {received!r}."
    )


class LazyTensor:
    """A tensor whose shape and dtype are known before it is read.

    `numpy.asarray` reads it.

    Args:
        read: function without arguments that returns a NumPy array.
        shape: tuple of ints.
        dtype: NumPy dtype.
    """

    def __init__(
        self,
        read: Callable[[], np.ndarray],
        shape: Sequence[int],
        dtype: Any = "float32",
    ) -> None:
        self._read = read
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)

    def __array__(self, dtype=None, copy=None):
        array = self._read()
        return array if dtype is None else array.astype(dtype, copy=False)


@checked
@dataclasses.dataclass(frozen=True)
class CheckpointSource:
    """A checkpoint in the terms of `transformers`, before its tensors are read.

    Attributes:
        path: str. The folder or file, for messages.
        family: str. Name of a record in `families`, which is the `model_type` of
            `transformers`, such as "bert" or "xlnet".
        config: dict. The content of a `config.json` of `transformers`.
        tensors: mapping from names, those of a `state_dict` of `transformers`, to
            arrays or `LazyTensor`s in the layout of PyTorch (kernels are
            `(outputs, inputs)`). Iterating reads names only. Names may have a prefix
            such as `bert.`.
        tokenizer_files: mapping from the names that `transformers` gives tokenizer
            files ("vocab.txt", "vocab.json", "merges.txt", "spiece.model",
            "tokenizer.json") to paths.
        tokenizer_config: dict, such as `{"do_lower_case": False}`; the content of
            a `tokenizer_config.json` of `transformers`.
        parts: mapping from names to the sources of models that belong to this
            one: "generator", beside ELECTRA's discriminator.
        head_activation: the activation of the masked language model's head, if it
            isn't the encoder's.
        task_arguments: dict from names of tasks to dicts of arguments that the files
            give.
        preprocessor_arguments: the same for the preprocessors of the tasks.
        notes: sentences on differences between the checkpoint and the model here.
        backbone: str. The name of the backbone's class, if it isn't the family's usual
            one.

    Example:

    ```python
    from keras_bertfam.presets.checkpoints.source import CheckpointSource
    source = CheckpointSource(
        "in memory",
        "bert",
        {"model_type": "bert", "vocab_size": 30522},
        {"embeddings.word_embeddings.weight": np.zeros((30522, 768), "float32")},
    )
    ```
    """

    path: str | os.PathLike
    family: str
    config: dict
    tensors: collections.abc.Mapping
    tokenizer_files: collections.abc.Mapping = dataclasses.field(default_factory=dict)
    tokenizer_config: dict = dataclasses.field(default_factory=dict)
    parts: collections.abc.Mapping = dataclasses.field(default_factory=dict)
    head_activation: str | None = None
    task_arguments: dict = dataclasses.field(default_factory=dict)
    preprocessor_arguments: dict = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    backbone: str | None = None
