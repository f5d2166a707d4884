"""Errors for files of weights that can't be read, or are of another model."""

import collections
import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from keras_bertfam.presets import untrusted
from keras_bertfam.presets.source import CheckpointError
from keras_bertfam.types import Path


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
            untrusted.shapes_in(path)
            if single
            else untrusted.backbone_shapes(os.path.dirname(path))
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
