"""Conversion of users' inputs of preprocessors to tensors."""

import numbers
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bertfam.types import TFDataset, TFTensor


def as_columns(x: Any) -> Any:
    """Turn a list of dicts, as in JSON lines, into a dict of lists.

    Args:
        x: list of dicts. Anything else is returned as it is.

    Raises:
        ValueError: if the dicts have different keys.
    """
    if not (isinstance(x, list | tuple) and x and isinstance(x[0], dict)):
        return x
    names = {*x[0]}
    for number, each in enumerate(x):
        if not isinstance(each, dict) or {*each} != names:
            received = sorted(each) if isinstance(each, dict) else each
            raise ValueError(
                f"`x` must be dicts with the keys of the first, {sorted(names)}. "
                f"Received, in row {number}: {received!r}."
            )
    return {name: [each[name] for each in x] for name in x[0]}


def as_strings(x: Any, rank: int = 1, name: str = "x") -> TFTensor:
    """Convert strings to a tensor, or raise a `ValueError`.

    Args:
        x: string, nested lists of strings, or a string tensor.
        rank: int. The rank of a batch; a single example has one less.
        name: str. The argument's name for the error.

    Returns:
        A string tensor.

    Raises:
        ValueError: for anything else.
    """
    try:
        strings = tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be strings. {_first_other(x, (str, bytes)) or error}"
        ) from error
    if strings.shape.num_elements() == 0 and strings.dtype != tf.string:
        raise ValueError(f"`{name}` must have at least one example. Received: {x!r}.")
    if strings.dtype != tf.string or strings.shape.rank not in (rank - 1, rank):
        raise ValueError(
            f"`{name}` must be strings of rank {rank - 1} or {rank}. Received: "
            f"dtype={strings.dtype.name}, shape={strings.shape}."
        )
    return strings


def _first_other(values, kinds, row=None):
    """Name, for an error, the first value of another kind and its row; or give ""."""
    if isinstance(values, kinds):
        return ""
    if not isinstance(values, (list, tuple)) and getattr(values, "ndim", 0) < 1:
        return f"Received: {values!r}{'' if row is None else f', in row {row}'}."
    others = (
        _first_other(value, kinds, number if row is None else row)
        for number, value in enumerate(values)
    )
    return next(filter(None, others), "")


def as_label_tensor(y: Any, given: Any = None) -> TFTensor:
    """Convert labels to a tensor.

    Args:
        y: array or list.
        given: the user's value from which `y` was made; the error names its rows.
            `None` for `y` itself.

    Raises:
        ValueError: for labels of several kinds. The error names the first of another
            kind.
    """
    try:
        return tf.convert_to_tensor(y)
    except (TypeError, ValueError, OverflowError) as error:
        given = y if given is None else given
        kinds = (str, bytes) if _begins_with_text(given) else (numbers.Number,)
        raise ValueError(
            "`y` must be labels of one kind, integers, strings or numbers. "
            f"{_first_other(given, kinds) or error}"
        ) from error


def as_label_lists(y: Any, label_names: Any = None) -> TFTensor:
    """Make a tensor of lists of labels; it is ragged if they are given as lists.

    Args:
        y: list of lists of labels, or an array or tensor.
        label_names: the names of classes, or `None`. If all lists are empty, it says
            whether labels are strings.

    Raises:
        ValueError: for anything else. The error names the first wrong value.
    """
    if not isinstance(y, (list, tuple)):
        return y if isinstance(y, tf.RaggedTensor) else as_label_tensor(y)
    for row, labels in enumerate(y):
        if isinstance(labels, (str, bytes)) or not np.iterable(labels):
            raise ValueError(
                "`y` must be a list of labels for each example. Received: "
                f"{labels!r}, in row {row}."
            )
    values = [label for labels in y for label in labels]
    flat = as_label_tensor(values, y)
    if not values:
        flat = tf.constant([], tf.string if label_names else tf.int32)
    return tf.RaggedTensor.from_row_lengths(flat, [len(labels) for labels in y])


def _begins_with_text(y):
    while np.iterable(y) and not isinstance(y, (str, bytes)):
        y = next(iter(y), None)
    return isinstance(y, (str, bytes))


def as_texts(x: Any, most: int | None = 2) -> TFTensor | tuple[TFTensor, ...]:
    """Convert texts, or pairs of them, to string tensors.

    Args:
        x: texts, or pairs. Pairs are a tuple of two batches of texts, or a list of
            tuples of two strings, as from `list(zip(first, second))`. A list of lists
            is refused, since it could mean either.
        most: 2, or `None` for tuples of two or more texts.

    Raises:
        ValueError: for values that aren't strings of the right rank, or pairs.
    """
    if isinstance(x, list) and x and isinstance(x[0], (list, tuple)):
        x = _columns_of_pairs(x, most)
    if not isinstance(x, tuple):
        return as_strings(x)
    if most is None and len(x) > 1:
        return tuple(map(as_strings, x))
    if len(x) != 2:
        raise ValueError(
            "`x` must hold two batches of strings, for sentence pairs, if it is a "
            f"tuple; give a batch as a list. Received: a tuple of {len(x)}."
        )
    return as_strings(x[0]), as_strings(x[1])


def is_pairs(x: Any) -> bool:
    """Tell whether texts are pairs, in one of the forms that `as_texts` takes."""
    return isinstance(x, tuple) or (
        isinstance(x, list) and bool(x) and isinstance(x[0], tuple)
    )


def _columns_of_pairs(x, most):
    count = 2 if most else max(2, len(x[0]))
    for row, pair in enumerate(x):
        if not isinstance(pair, tuple) or len(pair) != count:
            of = "two" if count == 2 else count
            raise ValueError(
                f"`x` must be strings, or pairs: a list of tuples of {of} strings, or "
                f"a tuple of {of} lists. Received: {pair!r}, in row {row}."
            )
    return tuple(map(list, zip(*x, strict=True)))


def as_tensor(x: Any) -> TFTensor | None:
    """Convert an array to a tensor, and `None` to `None`."""
    return None if x is None else tf.convert_to_tensor(x)


def as_rows(x: Any, y: Any = None, sample_weight: Any = None) -> TFDataset:
    """Make a dataset of the rows of arrays, tensors or lists.

    Args:
        x: an array, or a tuple or dict of arrays.
        y: the same, or `None`.
        sample_weight: the same, or `None`.

    Returns:
        A `tf.data.Dataset` of `x`, `(x, y)` or `(x, y, sample_weight)`.

    Raises:
        ValueError: for a single example, or parts with unequal numbers of rows.
    """
    parts = {"x": x, "y": y, "sample_weight": sample_weight}
    parts = {
        name: _named_tensors(part, name)
        for name, part in parts.items()
        if part is not None
    }
    refuse_single(parts["x"], 0)
    check_equally_many(parts)
    x, y, sample_weight = (parts.get(name) for name in ("x", "y", "sample_weight"))
    return tf.data.Dataset.from_tensor_slices(
        keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
    )


def rows_by_size(x: Any, count: int | None = None) -> tuple[TFDataset, np.ndarray]:
    """Make a dataset of texts, the shortest first.

    Args:
        x: a string tensor, or a tuple or dict of string tensors and numbers.
        count: int or `None`. Take only this many rows, the first ones.

    Returns:
        A `tf.data.Dataset`, and an int array: each row's place in the dataset.

    Raises:
        ValueError: for parts with unequal numbers of rows.
    """
    check_equally_many({"x": x})
    x = tf.nest.map_structure(lambda part: part[:count], x)
    parts = (part for part in tf.nest.flatten(x) if part.dtype == tf.string)
    sizes = (tf.strings.length(part).numpy() for part in parts)
    total = sum(part.sum(axis=tuple(range(1, part.ndim))) for part in sizes)
    order = np.argsort(total, kind="stable")
    rows = as_rows(tf.nest.map_structure(lambda part: tf.gather(part, order), x))
    return rows, np.argsort(order)


def _named_tensors(part, name):
    try:
        return as_tf_tensors(part)
    except (TypeError, ValueError, OverflowError) as error:
        kinds = (str, bytes, numbers.Number, dict)
        raise ValueError(
            f"`{name}` must be arrays, or lists of values of one kind. "
            f"{_first_other(part, kinds) or error}"
        ) from error


def as_tf_tensors(part: Any) -> Any:
    """Convert each array in tuples and dicts to a tensor of TensorFlow."""
    if isinstance(part, dict):
        return {name: as_tf_tensors(value) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(as_tf_tensors(value) for value in part)
    if tf.is_tensor(part):
        return part
    return tf.convert_to_tensor(
        ops.convert_to_numpy(part) if ops.is_tensor(part) else part
    )


def map_given(function: Callable[[TFTensor], TFTensor], example: Any) -> Any:
    """Apply a function to the tensors of a structure; `None` stays `None`."""
    return tf.nest.map_structure(
        lambda value: None if value is None else function(value), example
    )


def refuse_single(x: Any, single_rank: int) -> Any:
    """Return `x` if its first tensor is a batch of at least one example.

    Raises:
        ValueError: for a single example, and for an empty batch.
    """
    first = tf.nest.flatten(x)[0]
    if first.shape.rank == single_rank:
        raise ValueError(
            "`x` must be a batch, such as a list of one example. Received: a single "
            f"example, {first}."
        )
    if first.shape[0] == 0:
        raise ValueError("`x` must have at least one example. Received: none.")
    return x


def check_equally_many(parts: dict[str, Any]) -> None:
    """Check that all tensors of all parts have the same number of examples.

    Args:
        parts: dict from the names of arguments to structures of tensors.

    Raises:
        ValueError: if they don't. The error gives the names and the numbers.
    """
    counts = {
        name: sorted({value.shape[0] if value.shape.rank else 0 for value in values})
        for name, values in ((name, tf.nest.flatten(parts[name])) for name in parts)
    }
    if len({count for part in counts.values() for count in part}) > 1:
        received = ", ".join(
            f"{name} of {' and '.join(map(str, part))}" for name, part in counts.items()
        )
        raise ValueError(
            f"{', '.join(f'`{name}`' for name in parts)} must have equally many "
            f"examples. Received: {received}."
        )
