"""Ids, positions, labels and weights that a model can compute with."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bertfam.layers.data.arrays import as_tf_tensors
from keras_bertfam.types import TFTensor

_FAILED = re.compile(r"assertion failed: \[(`.+?\.)\]", re.DOTALL)


class Range(NamedTuple):
    """What the values of an array may be: whole numbers from 0, or finite ones.

    Attributes:
        name: str. What the limit is, for errors.
        limit: int or `None`. Values must be below it.
        axis: int or `None`. The axis of `token_ids` whose size is the limit.
        whole: bool. `False` for any finite numbers.
    """

    name: str = ""
    limit: int | None = None
    axis: int | None = None
    whole: bool = True


FINITE = Range(whole=False)


class _Check(NamedTuple):
    name: str
    values: TFTensor
    range: Range
    limit: Any  # int, scalar tensor or `None`


@tf.autograph.experimental.do_not_convert
def check_ranges(
    ranges: Mapping[str, Any], x: Any, y: Any = None, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """Refuses values that a model can't compute with, or that would be in its weights.

    Args:
        ranges: dict from the names in `x` to a `Range`, and from `"y"` to that of
            labels, or to a dict of them. What isn't named must be finite.
        x: dict of arrays or tensors, `token_ids` among them.
        y: array, tensor, dict of them, or `None`.
        sample_weight: the same.

    Returns:
        A tuple of `x`, `y` and `sample_weight`; in a graph, what to use in their
        place.

    Raises:
        ValueError: with the argument, the value and the row of the first that isn't
            in its range: in a graph that is a `tf.errors.InvalidArgumentError`, see
            `plain_error`.
    """
    batch = x, y, sample_weight
    with tf.device("CPU:0"):
        checks = [*_checks(ranges, *batch)]
        if not checks:
            return batch
        fits = [_fits(check) for check in checks]
        refusals = [
            (tf.logical_not(fit), lambda check=check: _refusal(check))
            for fit, check in zip(fits, checks, strict=True)
        ]
        message = tf.cond(
            tf.reduce_all(fits),
            lambda: tf.constant(""),
            lambda: tf.case(refusals, default=lambda: tf.constant("")),
        )
        if tf.executing_eagerly():
            if message != "":
                raise ValueError(message.numpy().decode())
            return batch
        fit = tf.equal(message, "")
        assertion = tf.raw_ops.Assert(condition=fit, data=[message])
        with tf.control_dependencies([assertion]):
            return tf.nest.map_structure(
                lambda part: None if part is None else tf.identity(part), batch
            )


def plain_error(error: BaseException) -> ValueError | None:
    """The `ValueError` for what was refused in a graph; `None` for other errors."""
    if not isinstance(error, tf.errors.InvalidArgumentError):
        return None
    refused = _FAILED.search(str(error))
    return ValueError(refused[1]) if refused else None


def _checks(ranges: Any, x: Any, y: Any, sample_weight: Any) -> Iterator[_Check]:
    token_ids = as_tf_tensors(x["token_ids"])
    if token_ids.shape.rank in (0, 1):
        raise ValueError(
            "`token_ids` must be rows of tokens, `(batch, length)`. Received: "
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
    if not values.dtype.is_integer:
        return tf.reduce_all(_each_fits(check))
    # Read without a sign, negative numbers are large: one reduction, and no copy.
    if values.dtype.size < 4:
        values = tf.cast(values, tf.int32)
    limit = values.dtype.max if limit is None else limit
    unsigned = {4: tf.uint32, 8: tf.uint64}[values.dtype.size]
    largest = tf.reduce_max(tf.bitcast(values, unsigned))
    return largest < tf.cast(limit, unsigned)


def _each_fits(check):
    values = check.values
    if values.dtype.is_integer:
        values = tf.cast(values, tf.int64)
        fits = values >= 0
    else:
        fits = tf.math.is_finite(values)
        if check.range.whole:
            fits &= (values >= 0) & tf.equal(values, tf.floor(values))
    if check.limit is not None:
        fits &= values < tf.cast(check.limit, values.dtype)
    return fits


def _refusal(check):
    place = tf.where(~_each_fits(check))[0]
    value = tf.gather_nd(check.values, place)
    if not check.range.whole:
        expected = ["finite numbers"]
    elif check.limit is None:
        expected = ["whole numbers from 0"]
    else:
        limit = tf.as_string(check.limit)
        expected = ["whole numbers in [0, ", check.range.name, "=", limit, ")"]
    whole = value.dtype.is_integer
    value = tf.as_string(
        tf.cast(value, tf.int64 if whole else tf.float32), shortest=not whole
    )
    return tf.strings.join(
        [
            f"`{check.name}` must be ",
            *expected,
            ". Received: ",
            value,
            ", in row ",
            tf.as_string(place[0]),
            ".",
        ]
    )
