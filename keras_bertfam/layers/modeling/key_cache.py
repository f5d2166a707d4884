"""What a decoder knows of the tokens that it has seen."""

import keras
from keras import ops

from keras_bertfam.types import Tensor


def with_rows(cache: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Put rows into a cache, from a place on.

    Args:
        cache: float tensor `(batch, keys, ...)`.
        index: int scalar, the first place.
        rows: float tensor `(batch, count, ...)`.

    Returns:
        A tensor like `cache`.
    """
    rows = ops.cast(rows, cache.dtype)
    if keras.backend.backend() == "torch":
        # Keras's function gives each number four indices of its own, if the place is
        # a tensor, which takes as long as the attention to the rows.
        places = ops.arange(rows.shape[1], dtype="int64") + ops.cast(index, "int64")
        return cache.index_copy(1, places, rows)
    others = (0,) * (len(cache.shape) - 2)
    return ops.slice_update(cache, (0, index, *others), rows)
