"""The registry of formats: which module reads which path."""

import importlib
import os
from types import ModuleType

from keras_bertfam.types import Path

# Modules of this package, each with `recognises` and `open_source`.
READERS = (
    "keras_bertfam.presets.checkpoints.sentence_transformers",
    "keras_bertfam.presets.checkpoints.dpr",
    "keras_bertfam.presets.checkpoints.late_interaction",
    "keras_bertfam.presets.checkpoints.huggingface",
    "keras_bertfam.presets.checkpoints.kerashub",
    "keras_bertfam.presets.checkpoints.tensorflow1",
    "keras_bertfam.presets.checkpoints.fairseq",
)


def find_reader(path: Path) -> ModuleType | None:
    """Find the module that reads a path; `None` if it holds no foreign checkpoint.

    Args:
        path: str or path of a folder or file.

    Returns:
        A module with `recognises` and `open_source`, or `None`; see `source`.
    """
    path = os.fspath(path)
    for name in READERS:
        reader = importlib.import_module(name)
        if reader.recognises(path):
            return reader
    return None
