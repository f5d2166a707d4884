"""Ranges of ids, positions, labels and weights that a model can compute with."""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.user_inputs import as_tf_tensors
from keras_bertfam.types import TFTensor

# Inputs that have the length of rows; the targets' length is that of the first present.
_TOKENS = ("token_ids", "decoder_token_ids", "query_token_ids", "passage_token_ids")
# Messages of `_refuse`, of assertions in pipelines, and of readers of files.
_FAILED = re.compile(
    r"ValueError: (?P<here>`.+? in row \d+\.)|assertion failed: \[(?P<there>`.+?\.)\]"
    r"|ValueError: (?P<file>[^`\n][^\n]* must [^\n]+)",
    re.DOTALL,
)


class Range(NamedTuple):
    """The values that an array may have: whole numbers, or finite ones.

    Attributes:
        name: str. The limit's name, for errors.
        limit: int or `None`. Values must be below it.
        axis: int or `None`. The axis of `token_ids` whose size is the limit.
        whole: bool. Whether values must be whole numbers; `False` allows any finite
            numbers.
        least: int. The least allowed whole number.
    """

    name: str = ""
    limit: int | None = None
    axis: int | None = None
    whole: bool = True
    least: int = 0


FINITE = Range(whole=False)


class _Check(NamedTuple):
    name: str
    values: TFTensor
    range: Range
    limit: Any  # int, scalar tensor or `None`


@as_written
def check_ranges(
    ranges: Mapping[str, Any], x: Any, y: Any = None, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """Refuse values that a model can't compute with, or that would spoil its weights.

    Args:
        ranges: dict from the names in `x` to a `Range`, and from `"y"` to the labels'
            `Range`, or to a dict of these. Other values must be finite.
        x: dict of arrays or tensors. It contains one of `token_ids`,
            `decoder_token_ids`, `query_token_ids` and `passage_token_ids`.
        y: array, tensor, dict of them, or `None`.
        sample_weight: the same.

    Returns:
        A tuple of `x`, `y` and `sample_weight`. In a graph, use these in place of the
        arguments.

    Raises:
        ValueError: for a value out of its range. The error gives the argument, the
            value and the row of the first one. In a graph the error is a
            `tf.errors.InvalidArgumentError`, see `plain_error`.
    """
    batch = x, y, sample_weight
    with tf.device("CPU:0"):
        checks = [*_checks(ranges, *batch)]
        if not checks:
            return batch
        fit = tf.reduce_all([_fits(check) for check in checks])
        values = [check.values for check in checks]
        limits = [-1 if check.limit is None else check.limit for check in checks]
        refuse = functools.partial(_refuse, checks)
        if tf.executing_eagerly():
            if not fit:
                refuse(np.asarray(limits), *(value.numpy() for value in values))
            return batch
        # The message is made by a single operation, which rarely runs.
        fit = tf.cond(
            fit,
            lambda: fit,
            lambda: tf.numpy_function(refuse, [tf.stack(limits), *values], tf.bool),
        )
        with tf.control_dependencies([fit]):
            return tf.nest.map_structure(
                lambda part: None if part is None else tf.identity(part), batch
            )


def plain_error(error: BaseException) -> ValueError | None:
    """Make a `ValueError` of a graph's refusal; give `None` for other errors."""
    if not isinstance(error, tf.errors.InvalidArgumentError):
        return None
    refused = _FAILED.search(str(error))
    return ValueError(next(filter(None, refused.groups()))) if refused else None


def _checks(ranges: Any, x: Any, y: Any, sample_weight: Any) -> Iterator[_Check]:
    name = next(name for name in _TOKENS if name in x)
    token_ids = as_tf_tensors(x[name])
    if token_ids.shape.rank in (0, 1):
        raise ValueError(
            f"`{name}` must be rows of tokens, `(batch, length)`. Received: "
            f"shape={token_ids.shape}."
        )
    for name, part, expected in (
        ("", x, ranges),
        ("y", y, ranges.get("y")),
        ("sample_weight", sample_weight, None),
    ):
        for key, value in (part if isinstance(part, dict) else {"": part}).items():
            allowed = expected.get(key) if isinstance(expected, dict) else expected
            allowed = allowed or FINITE
            value = None if value is None else as_tf_tensors(value)
            if _may_be_wrong(value, allowed):
                named = f"{name}[{key!r}]" if name and key else name or key
                limit = allowed.limit
                if allowed.axis is not None:
                    limit = token_ids.shape[allowed.axis]
                    limit = limit or tf.shape(token_ids)[allowed.axis]
                yield _Check(named, value, allowed, limit)


def _may_be_wrong(value, allowed):
    if not isinstance(value, tf.Tensor) or value.shape.rank == 0:
        return False
    return value.dtype.is_floating or (value.dtype.is_integer and allowed.whole)


def _fits(check):
    values, limit = check.values, check.limit
    if least := check.range.least:
        values -= tf.cast(least, values.dtype)
        limit = None if limit is None else limit - least
    if not values.dtype.is_integer:
        fits = tf.math.is_finite(values)
        if check.range.whole:
            fits &= (values >= 0) & tf.equal(values, tf.floor(values))
        if limit is not None:
            fits &= values < tf.cast(limit, values.dtype)
        return tf.reduce_all(fits)
    # As unsigned ints, negative numbers are large: one reduction checks both bounds.
    if values.dtype.size < 4:
        values = tf.cast(values, tf.int32)
    limit = values.dtype.max if limit is None else limit
    unsigned = {4: tf.uint32, 8: tf.uint64}[values.dtype.size]
    largest = tf.reduce_max(tf.bitcast(values, unsigned))
    return largest < tf.cast(limit, unsigned)


def _refuse(checks, limits, *arrays):
    """Raise the error of the first value that isn't in its range."""
    for check, limit, values in zip(checks, limits, arrays, strict=True):
        expected = "finite numbers"
        with np.errstate(invalid="ignore"):
            fits = np.isfinite(values)
            if check.range.whole:
                least = check.range.least
                expected = f"whole numbers from {least}"
                fits &= (values >= least) & (values == np.floor(values))
            if check.limit is not None:
                expected = f"whole numbers in [{least}, {check.range.name}={limit})"
                fits &= values < limit
        if not fits.all():
            place = tuple(np.argwhere(~fits)[0])
            whole = np.issubdtype(values.dtype, np.integer)
            value = values[place] if whole else f"{float(values[place]):.7g}"
            raise ValueError(
                f"`{check.name}` must be {expected}. Received: {value}, "
                f"in row {place[0]}."
            )
