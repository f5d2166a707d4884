"""Checks of where an export is from and goes to, before there is work to lose."""

import os
from typing import Any

from keras_bertfam.types import Path


def check_places(model: Any, path: Path) -> None:
    """Raise a `ValueError` for a folder that isn't there, or a place that is taken.

    Args:
        model: a model, or the path of a preset directory.
        path: what is to be written.
    """
    if os.path.exists(path):
        raise ValueError(f"`path` must not exist yet. Received: path={path!r}.")
    if isinstance(model, (str, os.PathLike)) and not os.path.isdir(model):
        raise ValueError(
            "`model` must be a model or an existing preset directory. "
            f"Received: model={os.fspath(model)!r}."
        )
