"""Disentangled attention: scores from what tokens are, and how far apart they are."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.attention.pattern import VisibleKeys
from keras_bertfam.layers.attention.positions import shift_rows
from keras_bertfam.layers.attention.self_attention import SelfAttention
from keras_bertfam.layers.blocks.dense import (
    flat_dense,
    mark_matrices,
    take_positions,
)
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.types import Config, Initializer, Shape, Tensor


def rows_by_distance(num_buckets: int, max_distance: int) -> np.ndarray:
    """Find the row of a table of relative positions for each distance.

    Example: 16 buckets, and distances up to 16. The middle row, 8, is for distance 0.
    The distances -4 to 4 have a row each: rows 4 to 12. Larger ones share rows: 5 and 6
    have row 13, 7 to 9 row 14, and 10 to 15 row 15.

    Distances up to a quarter of `num_buckets` have a row each, on both sides of the
    middle. The ranges of the other rows grow logarithmically. If `max_distance` is at
    most half of `num_buckets`, each distance has its own row.

    Args:
        num_buckets: int. Number of rows of the table; the middle one is for distance 0.
        max_distance: int. This distance and larger ones have the row of
            `max_distance - 1`.

    Returns:
        int32 array of `2 * max_distance` row numbers, for the distances from
        `-max_distance` to `max_distance - 1`. A distance is the query's position minus
        the key's.

    Reference: [He et al., 2020](https://arxiv.org/abs/2006.03654), section 3.1; the
    logarithm in the released code of the second version.
    """
    distances, half = np.arange(-max_distance, max_distance), num_buckets // 2
    if max_distance > half:
        middle = half // 2
        size = np.minimum(np.abs(distances), max_distance - 1)
        # Bounds are integers: rounding of float logarithms could give either row.
        steps = np.arange(middle - 1) / max(middle - 1, 1)
        bounds = np.floor(middle * ((max_distance - 1) / middle) ** steps + 1e-6)
        size = np.minimum(size, middle) + np.searchsorted(bounds, size)
        distances = np.sign(distances) * size
    return np.clip(distances + half, 0, num_buckets - 1).astype("int32")


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RelativeTable(keras.layers.Layer):
    """Vectors of relative positions, one table for all blocks of a stack.

    Args:
        num_buckets: int. Even number of rows, see `rows_by_distance`.
        hidden_dim: int.
        max_distance: int. See `rows_by_distance`.
        norm_epsilon: float. Epsilon of the table's layer norm; `None` for no norm.
        initializer: initializer of the table.

    Call arguments:
        length: int. Number of tokens of a row.

    Returns:
        A tuple of three tensors: the part of the table that rows of this length need,
        `(rows, hidden_dim)`; and two int tensors `(2 * length,)` of places in this
        part. The first is for the distances `length`, `length - 1`, ..., the second for
        `-length`, `-length + 1`, ...

    Example:

    ```python
    from keras_bertfam.layers.attention.disentangled import RelativeTable
    table = RelativeTable(16, hidden_dim=8, max_distance=16)
    rows, down, up = table(length=3)
    rows.shape, down  # (5, 8), [4, 4, 3, 2, 1, 0]
    ```
    """

    def __init__(
        self,
        num_buckets: int,
        hidden_dim: int,
        max_distance: int,
        norm_epsilon: float | None = None,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.hidden_dim = hidden_dim
        self.max_distance = max_distance
        self.norm_epsilon = norm_epsilon
        self.initializer = keras.initializers.get(initializer)
        self._rows = rows_by_distance(num_buckets, max_distance)
        self.norm = None
        if norm_epsilon is not None:
            self.norm = keras.layers.LayerNormalization(
                epsilon=norm_epsilon, name="norm", dtype=self.dtype_policy
            )

    def build(self, input_shape: Shape | None = None) -> None:
        shape = (self.num_buckets, self.hidden_dim)
        initializer = self.initializer.clone()
        self.table = self.add_weight(name="table", shape=shape, initializer=initializer)
        if self.norm is not None:
            self.norm.build(shape)
        self.built = True

    def call(self, length: int | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        table, first = ops.cast(self.table, self.compute_dtype), 0
        if isinstance(length, int):
            # Take only the rows that distances in a row of this length have.
            ends = self._rows_of(np.array([1 - length, length - 1]), np)
            first, last = (int(row) for row in ends)
            table = table[first : last + 1]
        if self.norm is not None:
            table = self.norm(table)
        up = ops.arange(2 * length, dtype="int32") - length
        down, up = (
            self._rows_of(ops.clip(d, 1 - length, length - 1), ops) - first
            for d in (-up, up)
        )
        return table, down, up

    def _rows_of(self, distances, array):
        most = self.max_distance
        places = array.clip(distances, -most, most - 1) + most
        return array.take(self._rows, places)

    def compute_output_shape(self, length: int) -> Any:
        return (None, self.hidden_dim), (None,), (None,)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "hidden_dim": self.hidden_dim,
            "max_distance": self.max_distance,
            "norm_epsilon": self.norm_epsilon,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DisentangledSelfAttention(SelfAttention):
    """Multi-head self-attention whose scores have terms of relative positions.

    The score of query `i` and key `j` is

        (q_i k_j + q_i r_(i-j) + s_(i-j) k_j) / sqrt(3 head_dim)

    `q` and `k` are projections of a token's state. `r` and `s` are projections of the
    vector of a distance: `r` as a key, `s` as a query. The last term takes the distance
    `i - j`, as the released code does; the paper has `j - i`.

    Memory stays small: the layer gathers no `(length, length)` table of vectors. It
    computes a score for each distance, and `shift_rows` moves each row into its place.
    For queries 0, 1 and 2, and columns of the distances 3 down to -2:

        3  2  1  0 -1 -2          0 -1 -2
        3  2  1  0 -1 -2    ->    1  0 -1
        3  2  1  0 -1 -2          2  1  0

    Args:
        num_heads, head_dim: see `SelfAttention`.
        separate: bool. If true, distances have their own projections and keys have no
            bias, as in DeBERTa's first version. If false, `r` and `s` come from the
            projections of keys and queries, as in the second version.
        table_dropout: float. Dropout rate on the vectors of distances.
        scale: float. The factor of the scores. `None` stands for the one above.
        **kwargs: those of `SelfAttention`, except `causal`.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        relative: what `RelativeTable` returns for the number of keys.
        attention_mask, positions, head_mask, return_scores: see `SelfAttention`.
        memory: float tensor `(batch, keys, width)`, or `None`. If given, keys and
            values come from these states, and only the queries from `x`.
        places: int tensor `(batch, count)`, or `None`. The position in `memory` of each
            of the `count` tokens of `x`. `None`: `x` has one token for each of
            `memory`, in the same order.

    Returns:
        See `SelfAttention`.

    Reference: [He et al., 2020](https://arxiv.org/abs/2006.03654), section 3.1, and
    the released code.

    Example:

    ```python
    from keras_bertfam.layers.attention import disentangled
    table = disentangled.RelativeTable(16, hidden_dim=8, max_distance=16)
    attention = disentangled.DisentangledSelfAttention(num_heads=2, head_dim=4)
    x = keras.random.normal((1, 5, 8))
    attention(x, relative=table(length=5)).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        separate: bool = False,
        table_dropout: float = 0.0,
        scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        scale = (3 * head_dim) ** -0.5 if scale is None else scale
        super().__init__(num_heads, head_dim, scale=scale, **kwargs)
        if self.causal:
            raise ValueError(
                "`causal` must be left out: tokens see those after them, too. "
                "Received: True."
            )
        if self.num_key_value_heads != num_heads:
            raise ValueError(
                "`num_key_value_heads` must be left out, as each head has keys of its "
                f"own. Received: {self.num_key_value_heads}."
            )
        self.separate = separate
        self.table_dropout_rate = table_dropout
        self.table_dropout = Dropout(
            table_dropout, name="table_dropout", dtype=self.dtype_policy
        )

    def build(self, input_shape: Shape) -> None:
        inner, width = self._inner_dim, input_shape[-1]
        self.qkv = self._dense(3 * inner, width, "qkv", bias=not self.separate)
        mark_matrices(self.qkv, inner, inner, inner)
        if self.separate:
            if self.use_bias:
                self.biases = self.add_weight(
                    name="biases",
                    shape=(2, self.num_heads, self.head_dim),
                    initializer="zeros",
                )
            self.relative_key = self._dense(inner, width, "relative_key", bias=False)
            self.relative_query = self._dense(inner, width, "relative_query")
        self.output_dense = self._dense(width, inner, "output")
        self.built = True

    def call(  # type: ignore[override]
        self,
        x: Tensor,
        relative: tuple[Tensor, Tensor, Tensor],
        attention_mask: Any = None,
        positions: Tensor | None = None,
        head_mask: Tensor | None = None,
        memory: Tensor | None = None,
        places: Tensor | None = None,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        if memory is None:
            query, key, value = self._projected(x, positions, self.qkv)
        else:
            positions = places
            query = self._projected(x, None, self.qkv)[0]
            _, key, value = self._projected(memory, None, self.qkv)
        if self.separate and self.use_bias:
            biases = ops.cast(self.biases, query.dtype)
            query, value = query + biases[0], value + biases[1]
        keys = attention_mask
        if not isinstance(keys, VisibleKeys):
            keys = VisibleKeys(attention_mask)
        bias = self._bias(query, key, relative, positions, training)
        return self._attend_visible(
            (query, key, value),
            keys,
            positions,
            bias,
            head_mask,
            return_scores=return_scores,
            training=training,
        )

    def _bias(self, query, key, relative, positions, training):
        """Compute the terms with a distance, `(batch, num_heads, queries, keys)`."""
        table, down, up = relative
        table = self.table_dropout(table, training=training)
        heads = (-1, self.num_heads, self.head_dim)
        if self.separate:
            dense = self.relative_key, self.relative_query
            position_key, position_query = (
                ops.reshape(flat_dense(each, table), heads) for each in dense
            )
        else:
            parts = self._projected(ops.expand_dims(table, 0), None, self.qkv)
            position_query, position_key, _ = (part[0] for part in parts)
        # PyTorch multiplies equal dtypes only; a `DTypePolicyMap` can make them differ.
        position_query = ops.cast(position_query, query.dtype)
        position_key = ops.cast(position_key, query.dtype)
        count = ops.shape(key)[1]
        columns = "bqhd,rhd->bhqr"
        to_position = ops.einsum(
            columns, query * self.scale, ops.take(position_key, down, axis=0)
        )
        # Rows are keys here, so the distance is the column's place minus the row's.
        to_content = ops.einsum(
            columns, key, ops.take(position_query * self.scale, up, axis=0)
        )
        to_content = ops.transpose(shift_rows(to_content, count), (0, 1, 3, 2))
        if positions is None:
            return shift_rows(to_position, count) + to_content
        return _rows_at(to_position, positions, count) + _queries_at(
            to_content, positions
        )

    def get_config(self) -> Config:
        config = super().get_config()
        del config["causal"]
        return {
            **config,
            "separate": self.separate,
            "table_dropout": self.table_dropout_rate,
        }


def _rows_at(scores, positions, count):
    """Do what `shift_rows` does, for queries at given positions only.

    Args:
        scores: float tensor `(batch, num_heads, queries, 2 * count)`.
        positions: int tensor `(batch, queries)`.
        count: int. The number of keys.
    """
    batch, heads, queries, width = ops.shape(scores)
    rows = ops.arange(batch * heads * queries, dtype="int32") * width
    rows = ops.reshape(rows, (batch, heads, queries, 1))
    first = count - ops.cast(positions, "int32")[:, None, :, None]
    places = rows + first + ops.arange(count, dtype="int32")
    return ops.take(ops.reshape(scores, (-1,)), places, axis=0)


def _queries_at(scores, positions):
    """Take the queries at given positions of `(batch, num_heads, queries, keys)`."""
    batch, heads, queries, keys = ops.shape(scores)
    rows = ops.reshape(
        ops.transpose(scores, (0, 2, 1, 3)), (batch, queries, heads * keys)
    )
    count = ops.shape(positions)[1]
    rows = take_positions(rows, positions)
    rows = ops.reshape(rows, (batch, count, heads, keys))
    return ops.transpose(rows, (0, 2, 1, 3))
