"""Labels as class numbers."""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.types import TFTensor

# The tag of a word without a label, as in `transformers` and PyTorch's losses.
NO_LABEL = -100


def is_no_label(label: object) -> bool:
    """Tell whether a tag stands for no label: -100, as a number or string."""
    return label in (NO_LABEL, str(NO_LABEL), str(NO_LABEL).encode())


def have_labels(y: TFTensor) -> TFTensor:
    """Tell which tags are labels, in the shape of `y`. Works in a graph."""
    none = str(NO_LABEL) if y.dtype == tf.string else tf.cast(NO_LABEL, y.dtype)
    return tf.not_equal(y, none)


def check_labels(
    num_classes: int | None, label_names: Iterable[str] | None
) -> tuple[int | None, list[str] | None]:
    """Check the number of classes and their names; infer the number from the names.

    Raises:
        ValueError: if they contradict each other, or a name comes twice.
    """
    if label_names is None:
        return num_classes, None
    label_names = [str(name) for name in label_names]
    if len(set(label_names)) < len(label_names) or not label_names:
        raise ValueError(
            f"`label_names` must be different names. Received: {label_names}."
        )
    if num_classes not in (None, len(label_names)):
        raise ValueError(
            "`label_names` must have a name for each of the num_classes="
            f"{num_classes} classes. Received: {label_names}."
        )
    return len(label_names), label_names


def class_numbers(
    y: TFTensor,
    num_classes: int | None = None,
    label_names: list[str] | None = None,
    rows: Sequence[int] | None = None,
) -> TFTensor:
    """Turn labels into class numbers. Works in a graph.

    Args:
        y: integer or string tensor of any shape.
        num_classes: int or `None`. Labels must be below it; `None` checks nothing.
        label_names: list of strings, the classes in order, or `None`.
        rows: sequence of ints, the rows' numbers for errors; `None` for 0, 1, 2, ...

    Returns:
        An int32 tensor of the same shape.

    Raises:
        ValueError: for labels that are neither integers nor strings, strings
            without `label_names`, or a label that is no class: in a graph that is
            a `tf.errors.InvalidArgumentError`.
    """
    if y.dtype == tf.string:
        if label_names is None:
            raise ValueError(
                "`y` may be strings only with `label_names`. Received: strings, and "
                "label_names=None."
            )
        matches = tf.equal(y[..., None], tf.constant(label_names))
        known = tf.reduce_any(matches, -1)
        expected = f"of label_names={label_names}"
        numbers = tf.argmax(matches, -1, output_type=tf.int32)
    elif y.dtype.is_integer:
        numbers = tf.cast(y, tf.int32)
        known = (numbers >= 0) & (tf.cast(numbers, y.dtype) == y)
        if num_classes is not None:
            known &= numbers < num_classes
        expected = f"in [0, num_classes={num_classes})"
    else:
        raise ValueError(
            "`y` must be integers, the numbers of classes, or strings. "
            f"Received: dtype={y.dtype.name}{_first_fraction(y)}."
        )
    return check_values(numbers, y, known, expected, rows=rows)


def class_sets(
    y: TFTensor, num_classes: int | None, label_names: list[str] | None = None
) -> TFTensor:
    """Turn labels, any number for each example, into zeros and ones. Works in a graph.

    Args:
        y: ragged tensor with a list of integers or strings for each example; a dense
            tensor of strings; or a dense tensor `(batch, num_classes)` of zeros and
            ones.
        num_classes: int.
        label_names: list of strings, the classes in order, or `None`.

    Returns:
        A float32 tensor `(batch, num_classes)`.

    Raises:
        ValueError: without `num_classes`, for what `class_numbers` refuses, and for
            lists of integers that have one twice: they may be zeros and ones.
    """
    if num_classes is None:
        raise ValueError(
            "`num_classes` or `label_names` must be given for labels that are lists. "
            "Received: num_classes=None."
        )
    if not isinstance(y, tf.RaggedTensor):
        if y.shape.rank != 2:
            raise ValueError(
                "`y` must have a list of labels for each example. Received: "
                f"shape={y.shape}."
            )
        if y.dtype != tf.string and y.shape[1] in (None, num_classes):
            y = tf.ensure_shape(y, [None, num_classes])
            hot = tf.cast(y, tf.float32)
            return check_values(hot, y, (hot == 0) | (hot == 1), "zeros and ones")
        y = tf.RaggedTensor.from_tensor(y)
    rows = ragged.row_ids(y)
    row_numbers = rows.numpy() if tf.executing_eagerly() else None
    numbers = class_numbers(y.flat_values, num_classes, label_names, row_numbers)
    hot = tf.one_hot(numbers, num_classes)
    counts = tf.math.unsorted_segment_sum(hot, rows, y.nrows())
    if y.dtype != tf.string:
        once = tf.gather_nd(counts, tf.stack([tf.cast(rows, tf.int32), numbers], 1)) < 2
        expected = "lists with each class once, or an array of zeros and ones"
        counts = check_values(counts, y.flat_values, once, expected, rows=row_numbers)
    return tf.minimum(counts, 1.0)


def _first_fraction(y):
    """Say which value of floats is the first that isn't whole; "" in a graph."""
    if not (y.dtype.is_floating and tf.executing_eagerly()):
        return ""
    places = tf.where(~(tf.equal(y, tf.floor(y)) & tf.math.is_finite(y)))
    if not len(places):
        return ""
    return f", with {tf.gather_nd(y, places[0]).numpy()} in row {places[0][0]}"


def check_values(
    numbers: TFTensor,
    y: TFTensor,
    valid: TFTensor,
    expected: str,
    name: str = "y",
    rows: Sequence[int] | None = None,
) -> TFTensor:
    """Return `numbers` if all labels are valid. Works in a graph.

    Args:
        numbers: tensor, the numbers of the labels.
        y: tensor, the labels.
        valid: bool tensor of the shape of `y`.
        expected: string. What `y` must be, for the error.
        name: str. The name of `y`, for the error.
        rows: see `class_numbers`.

    Returns:
        `numbers`.

    Raises:
        ValueError: for a label that isn't valid: in a graph that is a
            `tf.errors.InvalidArgumentError`.
    """
    message = f"`{name}` must be {expected}. Received:"
    others = ragged.keep(tf.reshape(y, [-1]), tf.reshape(~valid, [-1]))
    if tf.executing_eagerly():
        if len(others):
            where = ""
            if y.shape.rank:
                row = int(tf.where(~valid)[0, 0])
                where = f", first in row {row if rows is None else rows[row]}"
            others = sorted({*others.numpy().tolist()})[:8]
            raise ValueError(f"{message} {others}{where}.")
        return numbers
    check = tf.debugging.Assert(tf.equal(tf.size(others), 0), [message, others], 8)
    with tf.control_dependencies([check]):
        return tf.identity(numbers)


def one_each(values: TFTensor, name: str = "y") -> TFTensor:
    """Reshape values `(batch,)`, or Keras's `(batch, 1)`, to `(batch,)`.

    Args:
        values: tensor; a scalar is that of a single example.
        name: str. The argument's name for the error.

    Returns:
        A tensor of at most one axis.

    Raises:
        ValueError: for a tensor of another shape.
    """
    if values.shape.rank is None:  # the graph was traced for both shapes
        return tf.reshape(values, [-1])
    if values.shape.rank == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.shape.rank > 1:
        raise ValueError(
            f"`{name}` must have a value for each example, the shape `(batch,)`. "
            f"Received: shape={values.shape}."
        )
    return values


def finite_numbers(y: TFTensor, name: str = "y") -> TFTensor:
    """Convert labels to finite float32 numbers. Works in a graph.

    Args:
        y: tensor of any shape.
        name: str. The argument's name for the error.

    Returns:
        A float32 tensor of the same shape.

    Raises:
        ValueError: for strings, and for a number that isn't finite: in a graph that
            is a `tf.errors.InvalidArgumentError`.
    """
    if y.dtype == tf.string:
        raise ValueError(f"`{name}` must be numbers. Received: strings.")
    numbers = tf.cast(y, tf.float32)
    finite = tf.math.is_finite(numbers)
    return check_values(numbers, y, finite, "finite numbers", name)
