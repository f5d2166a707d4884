"""Exports for ONNX in 8 bits, made by ONNX Runtime's quantiser."""

import contextlib
import dataclasses
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.types import Model, Path

# Operations with weights to round, and the number of the input that holds them.
_WEIGHTS = {"MatMul": 1, "Gemm": 1, "Gather": 0}
_BATCH = 16

Rows = list[dict[str, np.ndarray]]


@checked
@dataclasses.dataclass(frozen=True)
class Int8Settings:
    """How `export(..., format="onnx", quantize=...)` rounds to 8 bits.

    The weights of matrix products and the token tables are rounded once. States are
    rounded at run time, and the products are computed with integers.

    Args:
        texts: a few hundred typical texts, in the form that the model's `predict()`
            takes; or rows, as a dict of arrays with the names of `input_signature()`.
            Only `static=True` and an int for `leave_out` need them.
        static: bool. Whether to measure the ranges of states once, in `texts`. By
            default each call measures its own ranges, which is more exact.
        per_channel: bool. Whether each column of a product's weights has its own scale.
        reduce_range: bool. Whether weights have 7 bits. Use it for x86 processors
            without VNNI, on which products of 8 bits overflow.
        leave_out: what stays in float32. Regular expressions select products and tables
            by their names, for example `"token_embedding"`. An int `n` selects the `n`
            that change the answers to `texts` most if they alone are rounded; this
            takes a pass over the texts for each product and table.

    Raises:
        ValueError: for arguments that don't fit one another.

    Example:

    ```python
    settings = keras_bertfam.export.Int8Settings(
        texts=["A cat sits.", "A dog."], leave_out=1
    )
    settings.per_channel  # True
    ```
    """

    texts: Any = None
    static: bool = False
    per_channel: bool = True
    reduce_range: bool = False
    leave_out: int | Sequence[str] = ()

    def __post_init__(self) -> None:
        count = self.leave_out if isinstance(self.leave_out, int) else 0
        if isinstance(self.leave_out, str | bool) or count < 0:
            raise ValueError(
                "`leave_out` must be an int of at least 0, or several strings. "
                f"Received: {self.leave_out!r}."
            )
        if self.texts is None and (self.static or count):
            raise ValueError(
                "`texts` must be given with `static=True`, and with an int as "
                "`leave_out`. Received: None."
            )


def settings_of(quantize: Any, format: str) -> Int8Settings:
    """Turn the `quantize` of `export()` into settings.

    Raises:
        ValueError: for a format other than ONNX, or a wrong `quantize`.
    """
    if format != "onnx":
        raise ValueError(
            '`quantize` must be `None` for a format other than "onnx". Received: '
            f"quantize={quantize!r}, format={format!r}."
        )
    if quantize == "int8":
        return Int8Settings()
    if not isinstance(quantize, Int8Settings):
        raise ValueError(
            '`quantize` must be `None`, "int8" or an `Int8Settings`. '
            f"Received: quantize={quantize!r}."
        )
    return quantize


def rows_of(model: Model, texts: Any, specs: Mapping[str, Any]) -> Rows:
    """Make batches of rows from texts, or from a dict of arrays.

    Rows of texts have no language, if the model has several. Where an export has a
    fixed length, rows are cut or padded with zeros; a fixed number of rows is that of
    each batch, and rows that are left over aren't used.

    Args:
        model: a backbone or a task.
        texts: see `Int8Settings`.
        specs: dict of the `keras.InputSpec`s of the arrays that rows must have.

    Raises:
        ValueError: for texts, if the model isn't one that is fine-tuned, or has no
            preprocessor; for rows without one of the names; and for fewer rows than a
            batch has.
    """
    size = next(iter(specs.values())).shape[0] or _BATCH
    given_rows = isinstance(texts, Mapping) and not texts.keys().isdisjoint(specs)
    if given_rows:
        arrays = {name: np.asarray(x) for name, x in texts.items()}
        count = max(map(len, arrays.values()), default=0)
        starts = range(0, count, size)
        batches: Any = [
            {name: x[start : start + size] for name, x in arrays.items()}
            for start in starts
        ]
    else:
        preprocessor: Any = getattr(model, "preprocessor", None)
        if not hasattr(preprocessor, "inputs"):
            raise ValueError(
                "`texts` must be a dict of arrays with the names of "
                "`input_signature()`, unless the model is a fine-tuning task with a "
                f"preprocessor. Received: {type(texts).__name__}, for "
                f"{type(model).__name__}."
            )
        batches, _ = preprocessor.inputs(texts, size)
    rows = [{name: np.asarray(x) for name, x in batch.items()} for batch in batches]
    if "language_ids" in specs and not given_rows:
        # Preprocessors of tasks that are fine-tuned know no languages.
        rows = [
            {"language_ids": np.full_like(batch["token_ids"], -1), **batch}
            for batch in rows
        ]
    if not rows or not rows[0].keys() >= specs.keys():
        raise ValueError(
            f"`texts` must have at least one row, with {sorted(specs)}. "
            f"Received: {len(rows)} batches with {[*rows[0]] if rows else []}."
        )
    rows = [
        {name: _as_specified(batch[name], spec) for name, spec in specs.items()}
        for batch in rows
    ]
    fixed = next(iter(specs.values())).shape[0]
    whole = [batch for batch in rows if fixed in (None, _count(batch))]
    if not whole:
        raise ValueError(
            f"`texts` must have at least {fixed} rows, a batch of the export's "
            f"`input_signature`. Received: {sum(map(_count, rows))}."
        )
    return whole


def _count(batch):
    return len(next(iter(batch.values())))


def _as_specified(rows, spec):
    """Give rows the rank and the fixed lengths of an export's input."""
    if rows.ndim > len(spec.shape):  # rows in groups, as rankers read them
        rows = rows.reshape(-1, *rows.shape[2:])
    for axis, length in enumerate(spec.shape[1:], 1):
        if length is not None:
            rows = rows.take(range(min(length, rows.shape[axis])), axis)
            missing = [(0, 0)] * rows.ndim
            missing[axis] = 0, length - rows.shape[axis]
            rows = np.pad(rows, missing)
    return rows


def quantize(path: Path, written: Path, rows: Rows, settings: Int8Settings) -> None:
    """Round a file of ONNX.

    Args:
        path: path of the file in float32.
        written: path to write.
        rows: list of dicts of arrays, batches of `settings.texts`.
        settings: `Int8Settings`.

    Raises:
        ValueError: if nothing is left to round, or `leave_out` matches nothing.
        ImportError: without ONNX Runtime.
    """
    with _quiet(), tempfile.TemporaryDirectory(dir=os.path.dirname(written)) as folder:
        from onnxruntime.quantization.shape_inference import quant_pre_process

        prepared = os.path.join(folder, "prepared.onnx")
        quant_pre_process(
            path, prepared, skip_optimization=True, skip_symbolic_shape=True
        )
        names = _rounded_names(prepared)
        kept = _kept(names, prepared, folder, rows, settings)
        if not set(names) - kept:
            raise ValueError(
                "`leave_out` must leave at least one product or table to round. "
                f"Received: leave_out={settings.leave_out!r}, for {len(names)} in all."
            )
        others = [name for name in names if name not in kept]
        _write(prepared, os.fspath(written), others, rows, settings)


def _rounded_names(path):
    """Name the nodes that have weights to round, in the order in which they run."""
    import onnx

    graph = onnx.load(path).graph
    weights = {
        one.name
        for one in graph.initializer
        if one.data_type == onnx.TensorProto.FLOAT and len(one.dims) == 2
    }
    return [
        node.name
        for node in graph.node
        if node.op_type in _WEIGHTS and node.input[_WEIGHTS[node.op_type]] in weights
    ]


def _kept(names, path, folder, rows, settings):
    """Find the nodes that stay in float32."""
    if not isinstance(settings.leave_out, int):
        found = {
            pattern: {name for name in names if re.search(pattern, name)}
            for pattern in settings.leave_out
        }
        for pattern, those in found.items():
            if not those:
                raise ValueError(
                    "`leave_out` must match a name of a product or table. Received: "
                    f"{pattern!r}, with the names {names}."
                )
        return set().union(*found.values())
    if not settings.leave_out:
        return set()
    expected, alone, harm = _answers(path, rows), os.path.join(folder, "a.onnx"), {}
    for name in names:
        _write(path, alone, [name], rows, settings)
        received = _answers(alone, rows)
        harm[name] = sum(
            np.square(one - other).sum() / max(np.square(other).sum(), 1e-30)
            for one, other in zip(received, expected, strict=True)
        )
    return set(sorted(names, key=harm.__getitem__)[-settings.leave_out :])


def _write(path, written, names, rows, settings):
    """Let the quantiser round the named nodes."""
    import onnxruntime.quantization as quantization

    given = {
        "nodes_to_quantize": names,
        "op_types_to_quantize": [*_WEIGHTS],
        "per_channel": settings.per_channel,
        "reduce_range": settings.reduce_range,
        "weight_type": quantization.QuantType.QInt8,
    }
    if not settings.static:
        quantization.quantize_dynamic(path, written, **given)
        return

    class Calibration(quantization.CalibrationDataReader):
        def __init__(self):
            self.batches = iter(_inputs(path, rows))

        def get_next(self):
            return next(self.batches, None)

    kind = quantization.QuantType.QUInt8
    quantization.quantize_static(
        path, written, Calibration(), activation_type=kind, **given
    )


def _inputs(path, rows):
    """Give batches the names and dtypes of a file's inputs."""
    import onnx

    kinds = {
        one.name: onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type)
        for one in onnx.load(path).graph.input
    }
    return [
        {name: batch[name].astype(kind) for name, kind in kinds.items()}
        for batch in rows
    ]


def _answers(path, rows):
    """List the outputs of a file for rows."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    answers = (session.run(None, inputs) for inputs in _inputs(path, rows))
    return [np.asarray(x, "float64") for batch in answers for x in batch]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the quantiser's advice in the root logger, which is followed anyway."""
    log = logging.getLogger()

    def others(record: logging.LogRecord) -> bool:
        return "onnxruntime" not in record.pathname

    log.addFilter(others)
    try:
        yield
    finally:
        log.removeFilter(others)
