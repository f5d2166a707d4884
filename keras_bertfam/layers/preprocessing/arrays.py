"""What users give to preprocessors, as tensors."""

import tensorflow as tf


def as_strings(x, rank=1, name="x"):
    """Converts strings to a tensor, refusing what is none.

    Args:
        x: string, nested lists of strings, or a string tensor.
        rank: int. The rank of a batch; an example has one less.
        name: str. The argument's name for the error.

    Returns:
        A string tensor.

    Raises:
        ValueError: for anything else.
    """
    try:
        strings = tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must be strings. {error}") from error
    if strings.dtype != tf.string or strings.shape.rank not in (rank - 1, rank):
        raise ValueError(
            f"`{name}` must be strings of rank {rank - 1} or {rank}. Received: "
            f"dtype={strings.dtype.name}, shape={strings.shape}."
        )
    return strings


def as_tensor(x):
    """A tensor, or `None` for `None`."""
    return None if x is None else tf.convert_to_tensor(x)


def map_given(function, example):
    """A structure of tensors and `None`s, a function applied to the tensors."""
    return tf.nest.map_structure(
        lambda value: None if value is None else function(value), example
    )
