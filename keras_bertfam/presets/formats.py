"""Which format a path holds."""

import importlib
import os
from types import ModuleType

from keras_bertfam.types import Path

# Modules of this package, each with `recognises` and `open_source`.
READERS = (
    "sentence_transformers",
    "dpr",
    "huggingface",
    "kerashub",
    "tensorflow1",
    "fairseq",
)


def find_reader(path: Path) -> ModuleType | None:
    """The module that reads a path, or `None` if it holds no foreign checkpoint.

    Args:
        path: str or path of a folder or file.

    Returns:
        A module with `recognises` and `open_source`, see `source`.
    """
    path = os.fspath(path)
    for name in READERS:
        reader = importlib.import_module(f"keras_bertfam.presets.{name}")
        if reader.recognises(path):
            return reader
    return None
