"""Keras's `export()` on each backend, also for models that were never called."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras

from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.models import int8, onnx_graphs, verified
from keras_bertfam.presets import folders
from keras_bertfam.types import Model, Path

# Keras's own exports of these formats need TensorFlow, or fix the length of rows.
_BY_TENSORFLOW = ("tf_saved_model", "onnx", "litert")
# Formats whose runtimes don't have all operations in 16 bits.
_IN_FLOAT32 = {"onnx": "ONNX", "litert": "LiteRT"}
_HALF = ("float16", "bfloat16")
_ARGUMENTS = "arguments.json"
_SPEC = "input_spec"
_EXPORT = """
import sys
import keras_bertfam
from keras_bertfam.models.exported import export_again
export_again(sys.argv[1])
"""


def export_model(
    model: Model,
    keras_export: Callable[..., Any],
    filepath: Path,
    format: str,
    verbose: bool | None,
    input_signature: Any,
    verify: bool,
    quantize: Any = None,
    **kwargs: Any,
) -> None:
    """Export a model; see `LibraryModel.export`.

    Args:
        model: a backbone or a task.
        keras_export: function of a model and the arguments of `keras.Model.export`.
        filepath, format, verbose, input_signature, verify, quantize, **kwargs: see
            `LibraryModel.export`.
    """
    if input_signature is None:
        input_signature = [model.input_signature()]
    input_signature = _named(input_signature)
    if quantize is not None:
        settings = int8.settings_of(quantize, format)
        texts, specs = settings.texts, input_signature[0]
        rows = [] if texts is None else int8.rows_of(model, texts, specs)
        rounded = functools.partial(
            _export_rounded, model, keras_export, rows, settings
        )
        given = (filepath, format, verbose, input_signature, kwargs)
        _put(model, rounded, *given, verify=verify)
        return
    source = model
    half = format in _IN_FLOAT32 and _half_dtype(model)
    if half:
        warnings.warn(
            f"{_IN_FLOAT32[format]}'s runtime lacks operations in {half}: the export "
            "computes in float32.",
            stacklevel=3,
        )
    on_tensorflow = keras.backend.backend() == "tensorflow"
    if format in _BY_TENSORFLOW and not on_tensorflow:
        dtype = "float32" if half else None
        arguments = (filepath, format, verbose, input_signature)
        _export_in_tensorflow(model, arguments, {**kwargs, "verify": verify}, dtype)
        return
    if half:
        with tempfile.TemporaryDirectory() as folder:
            model.save_to_preset(folder)
            source = type(model).from_preset(folder, dtype="float32")
    export = functools.partial(keras_export, source)
    if format == "onnx" and on_tensorflow:
        export = functools.partial(_export_onnx, export)
    given = (filepath, format, verbose, input_signature, kwargs)
    _put(source, export, *given, verify=verify)


def _put(model, export, filepath, format, verbose, signature, kwargs, verify):
    """Export to a temporary folder beside `filepath`, check the export, and move it."""
    filepath = os.path.abspath(filepath)
    place = os.path.dirname(filepath)
    os.makedirs(place, exist_ok=True)
    if os.path.isdir(filepath):
        folders.check_destination(filepath)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        written = os.path.join(folder, os.path.basename(filepath))
        export(written, format, False, signature, **kwargs)
        if verify:
            verified.check(model, written, format, signature)
        # OpenVINO has its weights in a file beside the graph, and so has ONNX above
        # 2 GB.
        for name in sorted(os.listdir(folder)):
            verified.put(os.path.join(folder, name), os.path.join(place, name))
    if verbose is not False:
        print(f"Saved artifact at {filepath!r}.")


def _export_rounded(
    model, keras_export, rows, settings, filepath, format, verbose, signature, **kwargs
):
    with tempfile.TemporaryDirectory(dir=os.path.dirname(filepath)) as folder:
        exact = os.path.join(folder, "float32.onnx")
        given = (exact, format, verbose, signature, False)
        export_model(model, keras_export, *given, **kwargs)
        int8.quantize(exact, filepath, rows, settings)


def row_specs(names: Iterable[str], rank: int = 2) -> dict[str, keras.InputSpec]:
    """Make input specs for any number of rows of any length, by inputs' names."""
    return {
        name: keras.InputSpec(
            shape=(None,) * rank,
            dtype="bool" if name.endswith("_mask") else "int32",
            name=name,
        )
        for name in names
    }


_USER_ERRORS = (ValueError, TypeError, OSError, ImportError)
_USER_ERROR = 3  # the exit status of a process that has printed one
_CHILD = """
import json, sys, traceback
from keras_bertfam.models.exported import _USER_ERROR, _USER_ERRORS
try:
    exec(sys.argv.pop(1))
except _USER_ERRORS as error:
    kind = [isinstance(error, kind) for kind in _USER_ERRORS].index(True)
    traceback.print_exc()
    print(json.dumps([kind, str(error)]))
    sys.exit(_USER_ERROR)
"""


def run_with_tensorflow(code: str, *arguments: str) -> None:
    """Run Python code with the TensorFlow backend in a process of its own.

    Args:
        code: str.
        *arguments: `sys.argv[1:]`.

    Raises:
        ValueError, TypeError, OSError, ImportError: as the code.
        RuntimeError: for another failure. The error has the process's error output.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, code, *arguments],
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
    )
    if done.returncode == _USER_ERROR:
        kind, message = json.loads(done.stdout.splitlines()[-1])
        raise _USER_ERRORS[kind](message) from RuntimeError(done.stderr)
    if done.returncode:
        raise RuntimeError(f"The export with TensorFlow failed:\n{done.stderr}")


def _named(signature):
    """Name inputs by their keys; LiteRT would call unnamed inputs `args_0`."""
    if isinstance(signature, list | tuple):
        return [_named(part) for part in signature]
    if not isinstance(signature, Mapping):
        return signature
    standardize = keras.backend.standardize_dtype
    return {
        name: keras.InputSpec(standardize(spec.dtype), tuple(spec.shape), name=name)
        for name, spec in signature.items()
    }


def _export_onnx(keras_export, filepath, *args, opset_version=None, **kwargs):
    onnx_graphs.teach_erfc()
    opset = onnx_graphs.OPSET if opset_version is None else opset_version
    keras_export(filepath, *args, opset_version=opset, **kwargs)
    onnx_graphs.fuse_norms(filepath)
    onnx_graphs.name_output(filepath)


def _half_dtype(model):
    """Find the 16-bit dtype that a layer computes in, or `None`."""
    dtypes = {layer.compute_dtype for layer in layers_of(model)}
    return next((dtype for dtype in _HALF if dtype in dtypes), None)


def _export_in_tensorflow(model, arguments, kwargs, dtype):
    with tempfile.TemporaryDirectory() as folder:
        model.save_to_preset(os.path.join(folder, "preset"))
        name = keras.saving.get_registered_name(type(model))
        filepath, *others, signature = arguments
        signature = keras.tree.map_structure(_described, signature)
        arguments = [os.fspath(filepath), *others, signature]
        with open(os.path.join(folder, _ARGUMENTS), "w", encoding="utf-8") as file:
            json.dump([name, arguments, kwargs, dtype], file)
        run_with_tensorflow(_EXPORT, folder)


def _described(spec):
    """Turn an `InputSpec`, or anything with shape and dtype, into JSON values."""
    dtype = keras.backend.standardize_dtype(spec.dtype)
    return {_SPEC: [list(spec.shape), dtype, getattr(spec, "name", None)]}


def _spec(described):
    if _SPEC not in described:
        return described
    shape, dtype, name = described[_SPEC]
    return keras.InputSpec(shape=tuple(shape), dtype=dtype, name=name)


def export_again(folder: Path) -> None:
    """Do the export that another process, without TensorFlow, described in a folder."""
    with open(os.path.join(folder, _ARGUMENTS), encoding="utf-8") as file:
        name, arguments, kwargs, dtype = json.load(file, object_hook=_spec)
    cls: Model = keras.saving.get_registered_object(name)
    given = {} if dtype is None else {"dtype": dtype}
    model = cls.from_preset(os.path.join(folder, "preset"), **given)
    model.export(*arguments, **kwargs)
