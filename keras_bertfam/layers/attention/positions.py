"""Positions in attention: rotations of queries and keys, and biases by distance."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.types import Config, Initializer, Shape, Tensor


def rotary_positions(
    position_ids: Tensor, head_dim: int, base: float
) -> tuple[Tensor, Tensor]:
    """Compute the cosines and sines of rotary position embeddings.

    The pair of dimensions `k` and `k + head_dim / 2` is rotated by the angle
    `position * base ** (-2 k / head_dim)`.

    Args:
        position_ids: int tensor `(rows, length)`.
        head_dim: int. Even width of a head.
        base: float.

    Returns:
        A tuple of two float32 tensors `(rows, length, head_dim // 2)`.

    Reference: [Su et al., 2021](https://arxiv.org/abs/2104.09864), section 3.2.
    """
    speeds = base ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = ops.expand_dims(ops.cast(position_ids, "float32"), -1)
    angles = angles * ops.convert_to_tensor(speeds.astype("float32"))
    return ops.cos(angles), ops.sin(angles)


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate queries or keys by their positions, in float32.

    Args:
        x: float tensor `(batch, length, num_heads, head_dim)`.
        rotary: what `rotary_positions` gives for the same tokens.

    Returns:
        Float tensor of the shape and dtype of `x`.
    """
    cos, sin = (ops.expand_dims(ops.cast(part, "float32"), 2) for part in rotary)
    half = x.shape[-1] // 2
    first, second = (
        ops.cast(part, "float32") for part in (x[..., :half], x[..., half:])
    )
    rotated = (first * cos - second * sin, second * cos + first * sin)
    return ops.cast(ops.concatenate(rotated, axis=-1), x.dtype)


def rotary_at(
    rotary: tuple[Tensor, Tensor], positions: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Take the cosines and sines at given positions of each row.

    Args:
        rotary: what `rotary_positions` gives.
        positions: int tensor `(batch, count)`, or `None` for all.
    """
    if positions is None:
        return rotary
    cos, sin = (
        ops.take(part[0], ops.cast(positions, "int32"), axis=0)
        if part.shape[0] == 1
        else take_positions(part, positions)
        for part in rotary
    )
    return cos, sin


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RelativePositionBias(keras.layers.Layer):
    """T5's bias: a learned number for each head and range of distances.

    Attention adds it to the scores. All blocks of a stack add the same bias. The ranges
    are called buckets. Half of the buckets hold one distance each. The others grow
    logarithmically up to `max_distance`; the last one holds all larger distances too.

    Args:
        num_heads: int.
        num_buckets: int. Number of buckets, a multiple of 4 if `bidirectional`, else
            of 2.
        max_distance: int. It must be more than the number of buckets of one distance
            on each side.
        bidirectional: bool. If true, keys after the query have one half of the buckets
            and the other keys the other half. If false, keys after the query count as
            distance 0.
        initializer: initializer of the table.

    Call arguments:
        queries: int. The number of queries.
        keys: int. The number of keys.
        first_query: int, or int scalar. The position of the first query among the keys.
        positions: int tensor `(batch, count)`, or `None`. Compute the bias of the
            queries at these positions only.

    Returns:
        Float tensor `(1, num_heads, queries, keys)`; with `positions`
        `(batch, num_heads, count, keys)`.

    Raises:
        ValueError: for a `num_buckets` that isn't such a multiple, or a `max_distance`
            that is too small.

    Example:

    ```python
    from keras_bertfam.layers.attention.positions import RelativePositionBias
    bias = RelativePositionBias(num_heads=2)
    bias(queries=5, keys=7).shape  # (1, 2, 5, 7)
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.1.
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        sides = 2 if bidirectional else 1
        if num_buckets < 2 * sides or num_buckets % (2 * sides):
            raise ValueError(
                f"`num_buckets` must be a positive multiple of {2 * sides}. "
                f"Received: num_buckets={num_buckets}."
            )
        if max_distance <= num_buckets // (2 * sides):
            raise ValueError(
                f"`max_distance` must be more than {num_buckets // (2 * sides)}, "
                f"for num_buckets={num_buckets}. Received: max_distance={max_distance}."
            )
        self.num_heads = num_heads
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape: Shape | None = None) -> None:
        self.table = self.add_weight(
            name="table",
            shape=(self.num_buckets, self.num_heads),
            initializer=self.initializer.clone(),
        )
        self.built = True

    def bucket(self, distances: Tensor) -> Tensor:
        """Find the row of the table for each distance.

        Args:
            distances: int tensor, the query's position minus the key's.

        Returns:
            int32 tensor of the same shape.
        """
        # Example: 8 buckets, bidirectional, max_distance=16. The distances 0, 1, 2, 5,
        # 6, 20 are in the buckets 0, 1, 2, 2, 3, 3, and -1, -6 in 5, 7.
        distances = ops.cast(distances, "int32")
        count, first = self.num_buckets, 0
        if self.bidirectional:
            count //= 2
            first = ops.where(distances < 0, count, 0)
            distances = ops.abs(distances)
        distances = ops.maximum(distances, 0)
        exact = count // 2
        # Bounds are integers: rounding of float logarithms could give either bucket.
        growth = (self.max_distance / exact) ** (1 / (count - exact))
        bounds = [math.ceil(exact * growth**k - 1e-6) for k in range(1, count - exact)]
        bucket = ops.minimum(distances, exact)
        for bound in bounds:
            bucket = bucket + ops.cast(distances >= bound, "int32")
        return bucket + first

    def call(
        self,
        queries: int | Tensor,
        keys: int | Tensor,
        first_query: int | Tensor = 0,
        positions: Tensor | None = None,
    ) -> Tensor:
        # Distances descend. The first query's distance to the first key has as many
        # numbers before it as there are queries.
        distances = queries - ops.arange(queries + keys, dtype="int32") + first_query
        by_distance = ops.transpose(self._by_distance(distances))
        by_distance = ops.broadcast_to(
            ops.expand_dims(by_distance, 1), (self.num_heads, queries, queries + keys)
        )
        bias = ops.expand_dims(shift_rows(by_distance, keys), 0)
        if positions is not None:
            bias = self._at(bias, positions, queries, keys)
        return ops.cast(bias, self.compute_dtype)

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Compute the bias of tokens that aren't in the order of the text.

        Args:
            queries: int tensor `(batch, queries)`, the queries' positions in the text.
            keys: int tensor `(batch, keys)`, the keys' positions in the text.

        Returns:
            Float tensor `(batch, num_heads, queries, keys)`.
        """
        most = self.max_distance  # larger distances share a bucket
        by_distance = self._by_distance(ops.arange(-most, most + 1, dtype="int32"))
        queries, keys = (ops.cast(x, "int32") for x in (queries, keys))
        apart = ops.expand_dims(queries, 2) - ops.expand_dims(keys, 1)
        bias = ops.take(by_distance, ops.clip(apart, -most, most) + most, axis=0)
        return ops.cast(ops.transpose(bias, (0, 3, 1, 2)), self.compute_dtype)

    def _by_distance(self, distances):
        """Look up the numbers of all heads, float32 `(distances, num_heads)`."""
        bucket = ops.expand_dims(self.bucket(distances), -1)
        # PyTorch's `one_hot` reads the values, which don't exist in a graph.
        rows = ops.cast(
            bucket == ops.arange(self.num_buckets, dtype="int32"), "float32"
        )
        # A product gives a dense gradient, and an exact bias in any dtype policy.
        return ops.matmul(rows, ops.cast(self.table, "float32"))

    def _at(self, bias, positions, queries, keys):
        bias = ops.reshape(
            ops.transpose(bias, (0, 2, 1, 3)), (1, queries, self.num_heads * keys)
        )
        batch, count = ops.shape(positions)
        bias = take_positions(bias, ops.reshape(positions, (1, batch * count)))
        if positions.shape[1] == 1:  # tf2onnx writes a wrong transpose of one query
            return ops.reshape(bias, (batch, self.num_heads, 1, keys))
        bias = ops.reshape(bias, (batch, count, self.num_heads, keys))
        return ops.transpose(bias, (0, 2, 1, 3))

    def compute_output_shape(
        self, queries: int, keys: int, *args: Any, **kwargs: Any
    ) -> Shape:
        return (1, self.num_heads, queries, keys)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "initializer": keras.initializers.serialize(self.initializer),
        }


def shift_rows(scores: Tensor, num_keys: int | Tensor) -> Tensor:
    """Turn scores by distance into scores by key, for queries in order.

    Row `i` moves left by one column less than row `i - 1` does. A reshape moves them
    all, without an index.

    Args:
        scores: tensor `(..., queries, distances)`. A distance is the query's position
            minus the key's. The first column is for a distance of the number of
            queries plus the first query's position; each next one is for 1 less.
        num_keys: int or int scalar.

    Returns:
        Tensor `(..., queries, num_keys)`. If the distances end at 0, the scores of
        later keys are arbitrary.
    """
    # Example: three queries and keys, columns of the distances 3, 2, 1, 0, -1, -2. The
    # flat row loses its first three numbers and gets rows of five; three columns stay.
    #   3 2 1 0 -1 -2      0 -1 -2  3 2      0 -1 -2
    #   3 2 1 0 -1 -2  ->  1  0 -1 -2 3  ->  1  0 -1
    #   3 2 1 0 -1 -2      2  1  0 -1 -2     2  1  0
    shape = ops.shape(scores)
    rows, width = shape[-2:]
    # ONNX would get -1 for a product of the tensor's own sizes, and -1 fails for an
    # empty batch.
    width = num_keys + (width - num_keys)
    flat = ops.reshape(scores, (*shape[:-2], rows * width))[..., rows:]
    return ops.reshape(flat, (*shape[:-2], rows, width - 1))[..., :num_keys]
