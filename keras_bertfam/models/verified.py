"""Checks of exports: their runtimes open them and answer a small batch."""

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from keras_bertfam.presets import folders
from keras_bertfam.types import Model, Path

Inputs = Mapping[str, np.ndarray]

# The sizes of axes of any length when a runtime is tried: two rows, as ELMo's language
# model reads pairs, and a length that no window or block divides.
_BATCH, _LENGTH = 2, 11


def check(model: Model, path: Path, format: str, signature: Any) -> None:
    """Open an export with its runtime, and let it answer a small batch.

    Args:
        model: the model that was exported.
        path: path of the export.
        format: str, see `keras.Model.export`.
        signature: list of one dict from names to specs. With another signature the
            export is opened, but answers nothing.

    Raises:
        RuntimeError: if the runtime refuses the export, or answers with NaN or other
            shapes than the model. The error has the reason.
        ImportError: if the runtime is missing.
    """
    path = os.fspath(path)
    if format not in _RUNTIMES:
        raise ValueError(
            f"`verify` must be `False` for a format that isn't one of {[*_RUNTIMES]}. "
            f"Received: format={format!r}."
        )
    try:
        answer = _RUNTIMES[format](path)
    except ImportError as error:
        raise ImportError(
            f"An export as {format!r} is checked by its runtime, which is missing. Run "
            "pip install 'keras-bertfam[export]', or give verify=False. "
            f"{error}"
        ) from error
    except Exception as error:  # each runtime has its own errors
        raise _refused(format, error) from error
    if len(signature) != 1 or not isinstance(signature[0], Mapping):
        return
    backbone = getattr(model, "backbone", model)
    positions = getattr(backbone, "max_sequence_length", None) or _LENGTH
    length = min(_LENGTH, positions)
    inputs = {name: _example(spec, length) for name, spec in signature[0].items()}
    try:
        received = [np.asarray(value) for value in answer(inputs)]
    except Exception as error:
        raise _refused(format, error) from error
    expected = keras.tree.flatten(model(inputs, training=False))
    shapes = [[tuple(x.shape) for x in side] for side in (received, expected)]
    numbers = (x for x in received if x.dtype.kind == "f")
    if sorted(shapes[0]) != sorted(shapes[1]) or not all(
        np.isfinite(x).all() for x in numbers
    ):
        raise RuntimeError(
            f"The runtime of {format!r} must answer with finite numbers of the shapes "
            f"{shapes[1]}. Received: {shapes[0]}."
        )


def put(written: Path, path: Path) -> None:
    """Move an export to its place, and overwrite what is there in one operation."""
    if os.path.isdir(path) and os.path.isdir(written):
        # Requests of an export that was there name signatures that go.
        shutil.rmtree(os.path.join(path, "assets.extra"), ignore_errors=True)
        with folders.write_aside(path) as aside:
            shutil.copytree(written, aside, dirs_exist_ok=True)
    else:
        os.replace(written, path)


def _refused(format, error):
    return RuntimeError(
        f"The runtime of {format!r} doesn't take the export that TensorFlow or Keras "
        "wrote. The export is deleted; verify=False would keep it. "
        f"{type(error).__name__}: {error}"
    )


def _example(spec, length):
    """Make an input of rows of first tokens, without padding."""
    lengths = [length if size is None else size for size in spec.shape[1:]]
    shape = (_BATCH if spec.shape[0] is None else spec.shape[0], *lengths)
    dtype = keras.backend.standardize_dtype(spec.dtype)
    return np.ones(shape, dtype) if dtype == "bool" else np.zeros(shape, dtype)


def _saved_model(path):
    import tensorflow as tf

    loaded = tf.saved_model.load(path)
    return lambda inputs: keras.tree.flatten(loaded.serve(inputs))


def _onnx(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return lambda inputs: session.run(None, inputs)


def _litert(path):
    from ai_edge_litert import interpreter

    runner = interpreter.Interpreter(model_path=path).get_signature_runner()
    return lambda inputs: [*runner(**inputs).values()]


def _openvino(path):
    import openvino

    compiled = openvino.Core().compile_model(path, "CPU")
    return lambda inputs: [*compiled(inputs).values()]


def _torch(path):
    import torch

    program = torch.export.load(path).module()

    def answer(inputs):
        with torch.no_grad():
            given = {name: torch.from_numpy(x) for name, x in inputs.items()}
            found = keras.tree.flatten(program(given))
        return [x.float().numpy() for x in found]

    return answer


_RUNTIMES: dict[str, Callable[[str], Callable[[Inputs], list[Any]]]] = {
    "tf_saved_model": _saved_model,
    "onnx": _onnx,
    "litert": _litert,
    "openvino": _openvino,
    "torch": _torch,
}
